"""Operators that add columns or expand rows."""
