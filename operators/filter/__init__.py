"""Operators that keep or drop rows by what a row or its group holds."""
