"""Operators that choose which rows stay, over a group or the whole dataset."""
