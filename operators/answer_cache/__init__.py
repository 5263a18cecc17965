"""Answers that cost something, kept in a folder that several nodes may share."""
