"""What scores the quality of a response: an LLM behind a server, or statistics of its text."""
