"""A stored run, and the recipe that is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...operators import DataError
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..dataset.remote import AnyPath
from ..recipe.read import load, load_without_code
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from ..recipe.stored_operator import StoredOperator
from .open import RECIPES, open_stored
from .stored import Stored, StoredSet


def opened(
    recipe: Path,
    run: Path | None,
    overrides: Mapping[str, str],
    steps: range | None = None,
    *,
    trust: Callable[[Stored], None],
) -> tuple[Stored, Recipe]:
    """The stored run, and the recipe with other fields, with the code of their operators.

    Args:
        recipe: in YAML, or a stored run, whose own recipe is meant.
        run: the stored run; None: that of the recipe.
        overrides: by `step.field`.
        steps: of a training run, those that are wanted; None: all.
        trust: called with each stored run before its code is imported; raises an error where the
            user does not trust it.

    Raises:
        RejuiceError: either cannot be read, or the overrides do not fit.
    """
    stored = open_with_code(run or recipe, steps, trust)
    if recipe.suffix in RECIPES:
        return stored, load(recipe, overrides)
    own = stored if run is None else open_with_code(recipe, None, trust)
    return stored, own.read_recipe(overrides)


def open_with_code(path: AnyPath, steps: range | None, trust: Callable[[Stored], None]) -> Stored:
    """A stored run, with the code of its operators as far as it is trusted.

    Args:
        path: as `open_stored` takes it.
        steps: of a training run, those that are wanted; None: all.
        trust: called with the run, before any of its code is imported.

    Raises:
        RejuiceError: it cannot be read, or what `trust` raises.
    """
    stored = open_stored(path, steps=steps)
    trust(stored)
    if any(isinstance(x.operator, StoredOperator) for one in stored.sets for x in one.recipe.steps):
        return open_stored(path, steps=steps)
    return stored


def has_run(path: Path) -> bool:
    """Whether there is a stored run of a recipe, or a path is one.

    Raises:
        RejuiceError: the recipe cannot be read.
    """
    if path.suffix not in RECIPES or not path.is_file():
        return True  # Or what is wrong will be found when it is opened.
    load_without_code(path)
    try:
        open_stored(path)
    except DataError:
        return False
    return True


def trained(stored: Stored, recipe: Recipe) -> tuple[StoredSet, ...]:
    """The sets of an export or of the last training step whose advantages a recipe computes.

    Raises:
        DataError: there are none.
    """
    last = answers(stored)[-1]
    sets = [one for one in stored.sets if one.training_step == last.training_step]
    found = tuple(one for one in sets if any(map(_is_advantage, one.fit(recipe))))
    if not found:
        raise DataError("the recipe has no grpo_advantage_mapper", "add one as the last step")
    return found


def _is_advantage(step: Step) -> bool:
    return isinstance(step.operator, GrpoAdvantageMapper)


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
