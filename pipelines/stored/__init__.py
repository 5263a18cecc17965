"""Runs as they are on file."""
