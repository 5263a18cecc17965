"""A stored run, and the recipe that is compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...operators import DataError
from ..recipe.read import load
from ..recipe.recipe import Recipe
from ..stored.open import RECIPES, open_stored
from ..stored.stored import Stored, StoredSet


def opened(
    recipe: Path, run: Path | None, overrides: Mapping[str, str], steps: range | None = None
) -> tuple[Stored, Recipe]:
    """The stored run, and the recipe with other fields.

    Args:
        recipe: in YAML, or a stored run, whose own recipe is meant.
        run: the stored run; None: that of the recipe.
        overrides: by `step.field`.
        steps: of a training run, those that are wanted; None: all.

    Raises:
        RejuiceError: either cannot be read, or the overrides do not fit.
    """
    stored = open_stored(run or recipe, steps=steps)
    if recipe.suffix in RECIPES:
        return stored, load(recipe, overrides)
    own = stored if run is None else open_stored(recipe)
    return stored, load(own.recipe, overrides)


def answers(stored: Stored) -> tuple[StoredSet, ...]:
    """Its sets of answers.

    Raises:
        DataError: it has none.
    """
    found = tuple(one for one in stored.sets if one.kind == "answers")
    if not found:
        right = "give a training run with `train.keep_rollouts: true`"
        raise DataError(f"{stored.path} keeps no rollouts", right)
    return found
