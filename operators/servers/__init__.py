"""Servers that models and judges answer from: client, endpoints, judges, kept answers."""
