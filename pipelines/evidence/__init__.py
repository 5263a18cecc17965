"""What the values that steps wrote rest on, as far as the row and files show it."""
