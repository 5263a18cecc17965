"""YAML to operators: the recipe, its head and its train section."""

from .recipe import Recipe, load

__all__ = ["Recipe", "load"]
