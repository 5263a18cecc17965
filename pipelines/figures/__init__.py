"""Figures of stored runs: tables and numbers of their rows; nothing is sampled or sent."""
