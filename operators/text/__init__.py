"""Texts as arrays: tokens, embeddings, near-duplicate signatures, statistics, equations."""
