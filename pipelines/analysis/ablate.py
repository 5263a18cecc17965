"""What each step is worth: the recipe without it, over the responses of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .comparison import Comparison, combined
from .replay import whole
from .stored import StoredSet
from .whatif import compared


class Ablation(NamedTuple):
    """A recipe without one part.

    Attributes:
        left_out: the name of the step, `weight NAME`, or "" for the whole recipe.
        steps: those after sampling that are left.
        needed_by: steps that read what it writes, so that it cannot be left out.
    """

    left_out: str
    steps: tuple[Step, ...]
    needed_by: tuple[str, ...] = ()


class AblationResult(NamedTuple):
    """An ablation and what it does; `comparison` is None where the step is needed."""

    ablation: Ablation
    comparison: Comparison | None


def ablations(steps: tuple[Step, ...]) -> list[Ablation]:
    """All steps after sampling, then without each of them, and with each weight at 0."""
    found = [Ablation("", steps)]
    for at, step in enumerate(steps):
        rest = (*steps[:at], *steps[at + 1 :])
        found.append(Ablation(step.name, rest, _needed_by(step, steps[at + 1 :])))
    for at, step in enumerate(steps):
        if isinstance(step.operator, RewardSumMapper) and len(step.operator.weights) > 1:
            for name in step.operator.weights:
                weights = {**step.operator.weights, name: 0.0}
                operator = step.operator.model_copy(update={"weights": weights})
                others = (*steps[:at], step._replace(operator=operator), *steps[at + 1 :])
                found.append(Ablation(f"weight {name}", others))
    return found


def measured(sets: Sequence[StoredSet], recipe: Recipe) -> Iterator[AblationResult]:
    """What each part of a recipe is worth, over the rows of one or more sets.

    Args:
        sets: of the same kind, such as the answers of training steps.
        recipe: whose parts are left out.

    Raises:
        RejuiceError: a step failed, or what the steps did is not on file.
    """
    replayed = [whole(one) for one in sets]
    of_sets = [ablations(one.fit(recipe)) for one in sets]  # Weights may have a schedule.
    for same in zip(*of_sets, strict=True):
        if same[0].needed_by:
            yield AblationResult(same[0], None)
            continue
        found = [
            compared(base, before, each.steps)
            for (base, before), each in zip(replayed, same, strict=True)
        ]
        yield AblationResult(same[0], combined(found))


def _needed_by(step: Step, later: tuple[Step, ...]) -> tuple[str, ...]:
    """Later steps that cannot do without a column that only this step writes."""
    writes = set(step.operator.writes())
    return tuple(each.name for each in later if writes & set(each.operator.reads()))
