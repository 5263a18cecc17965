"""Reads a recipe, runs its operators, keeps the books."""
