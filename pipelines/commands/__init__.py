"""Commands of `rejuice` that look at runs, one to a module."""
