"""What each step is worth: the recipe without it, over the responses of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..apply.frame import Frame
from ..apply.steps import AppliedStep
from ..recipe.steps import Step
from .comparison import Comparison
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


def measured(base: Frame, before: Sequence[AppliedStep], ablation: Ablation) -> AblationResult:
    """An ablation over some rows.

    Args:
        base: rows as sampled.
        before: what was done to them, see `replay.whole`.
        ablation: what to leave out.

    Raises:
        RejuiceError: a step failed.
    """
    if ablation.needed_by:
        return AblationResult(ablation, None)
    return AblationResult(ablation, compared(base, before, ablation.steps))


def _needed_by(step: Step, later: tuple[Step, ...]) -> tuple[str, ...]:
    """Later steps that cannot do without a column that only this step writes."""
    writes = set(step.operator.writes())
    return tuple(each.name for each in later if writes & set(each.operator.reads()))
