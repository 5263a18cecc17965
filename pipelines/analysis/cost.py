"""What a step of training is expected to take: prompts, tokens, requests and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...operators.groups import Array
from ...operators.sampling.rollout import RolloutMapper
from ..recipe.train import Train
from .preview import Preview
from .stored import Stored, StoredSet

_STEPS = 10_000
"""Training steps that are simulated."""
_MOST_REFILLS = 9
_ENOUGH = 0.05


class RefillFigures(NamedTuple):
    """Training steps that may sample more prompts so many times.

    Attributes:
        refills: `train.refill`.
        short: the share of steps that have too few groups all the same.
        prompts: the mean number that a step samples.
    """

    refills: int
    short: float
    prompts: float


class StepCost(NamedTuple):
    """What a step of training is expected to take; None: not known.

    Attributes:
        refills: with the recipe's `train.refill`, then with more, until few steps are short.
        prompts: that are sampled.
        responses: to them.
        tokens: of the responses.
        judge_calls: requests of the steps that ask a server.
        sampling_s: seconds to sample.
        steps_s: seconds in the steps of the recipe.
        training_s: seconds of the whole step, with the update.
    """

    refills: tuple[RefillFigures, ...]
    prompts: float
    responses: float
    tokens: float | None
    judge_calls: float
    sampling_s: float | None
    steps_s: float | None
    training_s: float | None


def step_cost(found: Preview, train: Train, stored: Stored, one: StoredSet) -> StepCost:
    """The cost of a step, if it goes as the stored responses went.

    Args:
        found: their preview.
        train: of the recipe.
        stored: the run that they are of.
        one: the set of it.
    """
    refills = tuple(refill_figures(found.groups_left / found.prompts, train))
    prompts = refills[0].prompts
    responses = prompts * found.responses / found.prompts
    tokens = None if found.tokens is None else found.tokens * responses
    logged = [_mean_metric(stored, f"timing_s/{name}") for name in ("gen", "step")]
    sampling = logged[0] if logged[0] is not None else _times(_sampling_s(stored, one), responses)
    judge_calls, steps_s = found.judge_calls * responses, _times(found.seconds, responses)
    return StepCost(refills, prompts, responses, tokens, judge_calls, sampling, steps_s, logged[1])


def refill_figures(share: float, train: Train) -> list[RefillFigures]:
    """Simulated steps, with the recipe's `refill` and with more, until few have too few groups.

    A group is left with probability `share`, whatever becomes of the others. Refills are sampled as
    training does: as many prompts as will fill the batch at the rate at which groups were left.

    Args:
        share: of groups that are left.
        train: of the recipe.
    """
    found = [_simulated(share, train.prompts_per_step, train.refill)]
    while found[-1].short > _ENOUGH and share > 0 and found[-1].refills < _MOST_REFILLS:
        found.append(_simulated(share, train.prompts_per_step, found[-1].refills + 1))
    return found


def _simulated(share: float, wanted: int, refills: int) -> RefillFigures:
    draw = np.random.default_rng(0)
    requested_N = np.full(_STEPS, wanted)
    left_N: Array = draw.binomial(requested_N, share)
    for _ in range(refills):
        missing_N = np.maximum(wanted - left_N, 0)
        more_N = np.minimum(wanted, -(-missing_N * requested_N // np.maximum(left_N, 1)))
        requested_N = requested_N + more_N
        left_N = left_N + draw.binomial(more_N, share)
    return RefillFigures(refills, float((left_N < wanted).mean()), float(requested_N.mean()))


def _mean_metric(stored: Stored, name: str) -> float | None:
    """The mean of a metric over training steps but the first, which compiles and loads."""
    values = [point[name] for point in stored.points if name in point]
    later: Sequence[float] = values[1:] or values
    return float(np.mean(later)) if later else None


def _sampling_s(stored: Stored, one: StoredSet) -> float | None:
    """Seconds to sample a response of an export; None: nothing was sampled in that run."""
    if stored.report is None:
        return None
    names = {x.name for x in one.recipe.steps if isinstance(x.operator, RolloutMapper)}
    steps = [each for each in stored.report.steps if each.step in names]
    rows = sum(each.rows_out for each in steps)
    seconds = sum(each.seconds for each in steps)
    return seconds / rows if rows and seconds else None


def _times(each: float | None, n: float) -> float | None:
    return None if each is None else each * n
