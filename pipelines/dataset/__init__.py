"""Datasets on disk: read, written, and Arrow files put in place atomically."""
