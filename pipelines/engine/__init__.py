"""A recipe over chunks: commits, resume, workers, export."""
