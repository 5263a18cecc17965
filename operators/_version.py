"""The version, once."""

__version__ = "0.4.0"
