"""Texts as arrays: tokens, embeddings, near-duplicate signatures, equations."""
