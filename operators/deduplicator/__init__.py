"""Operators that drop repeated texts."""
