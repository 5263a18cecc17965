"""The `train:` section of a recipe, where there has to be one."""

from __future__ import annotations

from ..operators.errors import RecipeError
from ..pipelines.recipe import Recipe
from ..pipelines.train_section import Train

__all__ = ["Train", "train_config"]


def train_config(recipe: Recipe) -> Train:
    """The `train:` section of a recipe.

    Raises:
        RecipeError: there is none.
    """
    if recipe.head.train is None:
        raise RecipeError("there is no `train:` section", "add one", where=str(recipe.path))
    return recipe.head.train
