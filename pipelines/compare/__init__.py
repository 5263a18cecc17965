"""What other settings would have made of stored samples."""
