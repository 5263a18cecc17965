"""What is seen of a run: figures, progress, outcome, curves."""
