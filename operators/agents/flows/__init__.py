"""Flows that come with rejuice, one a file."""
