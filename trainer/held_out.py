"""The validation sets of a run: their prompts, and how they are sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..operators.errors import RecipeError, suggest
from ..operators.fields import build
from ..operators.sampling.protocol import Settings
from ..pipelines.recipe.steps import Step
from ..pipelines.recipe.train import ONE_SET, Train
from .split import SplitRecipe

RESPONSES = "__rollout_n__"
"""Field of a prompt by which verl's agent loops know that it has an n of its own."""


class HeldOutSet(NamedTuple):
    """A validation set of a run.

    Attributes:
        name: the one that it is reported by.
        path: of its dataset.
        split: the name of its files, without their endings.
        source: its name in verl's own metrics, verl's `data_source`.
        steps: the steps before sampling, with the set's own fields.
        settings: how its prompts are sampled.
        max_samples: the most prompts that it has; None: all.
    """

    name: str
    path: Path
    split: str
    source: str
    steps: tuple[Step, ...]
    settings: Settings
    max_samples: int | None = None


def held_out_sets(parts: SplitRecipe, config: Train, where: str) -> tuple[HeldOutSet, ...]:
    """The validation sets of a recipe.

    Raises:
        RecipeError: a set overrides what is not there.
    """
    rollout, found = parts.rollout, list[HeldOutSet]()
    for name, each in config.validation_sets.items():
        try:
            steps = _overridden(parts.before, each.overrides)
        except RecipeError as error:
            raise error.at(f"{where}, train.validation.{name}.overrides") from None
        temperature = rollout.temperature if each.temperature is None else each.temperature
        top_p = rollout.top_p if each.top_p is None else each.top_p
        settings = Settings(each.n, temperature, top_p, rollout.max_tokens)
        # The single set of `validation_path` has the names that it has always had.
        split, source = (f"{ONE_SET}-{name}", name) if name != ONE_SET else (name, parts.source)
        found.append(HeldOutSet(name, each.path, split, source, steps, settings, each.max_samples))
    return tuple(found)


def _overridden(
    steps: Sequence[Step], overrides: Mapping[str, Mapping[str, Any]]
) -> tuple[Step, ...]:
    names = [step.name for step in steps]
    for name in overrides:
        if name not in names:
            raise RecipeError(f"no step '{name}' before sampling", _one_of(name, names))
    return tuple(_with(step, overrides.get(step.name, {})) for step in steps)


def _one_of(name: str, names: Iterable[str]) -> str:
    return suggest(name, names) or f"the steps before sampling are: {', '.join(names) or 'none'}"


def _with(step: Step, fields: Mapping[str, Any]) -> Step:
    if not fields:
        return step
    try:
        operator = build(type(step.operator), {**step.operator.model_dump(), **fields})
    except RecipeError as error:
        raise error.at(step.name) from None
    return step._replace(operator=operator)
