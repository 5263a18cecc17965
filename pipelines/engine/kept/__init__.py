"""Rows of resumable operators, persisted one by one and found again by their content."""
