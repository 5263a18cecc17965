"""Datasets on disk: reading, writing, and Arrow files that appear atomically."""
