"""What is used from a checkout and not installed."""
