"""YAML to operators: the recipe, its head and its train section."""

from .read import load
from .recipe import Recipe

__all__ = ["Recipe", "load"]
