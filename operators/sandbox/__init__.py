"""Runs Python code that a policy has written, confined: no files, no network, no processes, limits.

`run.py` is what others use.
"""
