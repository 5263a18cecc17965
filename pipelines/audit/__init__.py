"""What may be wrong with a stored run: its verdicts, and what its reward pays for."""
