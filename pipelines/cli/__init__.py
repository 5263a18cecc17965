"""The `rejuice` command."""
