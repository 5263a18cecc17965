"""Stored runs: what an export, a training run or a training step has left on file."""
