"""What a cache holds, who uses it, and how it is removed."""
