"""Scoring the quality of responses: LLM judges, their cache, and the reward scale."""
