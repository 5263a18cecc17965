"""Tools that come with rejuice, one a file."""
