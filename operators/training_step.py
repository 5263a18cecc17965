"""Operators that run before the sampling of each training step, and say which prompts it samples.

Steps of a recipe before the sampling run once, before training. From the first operator of this
kind on, they run again before each training step, on all prompts:

    prompts ──> history_mapper ──> filters and selectors ──> the first ones by `choice_rank`

Offline there are no training steps, and these operators run like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from pydantic import PrivateAttr
from typing_extensions import Self

from .groups import Array
from .operator import Operator

RANK = "choice_rank"
"""Column of numbers: prompts with lower ones are sampled first. Only the order counts."""
PROMPT_ROW = "prompt_row"
"""Column of int64, of prompts and of visits: which of the run's prompts it is."""


NEVER = int(np.iinfo(np.int64).min)  # the last visit of a prompt that had none


class StepContext(NamedTuple):
    number: int  # from 1
    progress: float  # of training, from 0 to 1
    prompts: int  # that it samples
    seed: int  # of the run
    # of all steps before it, as history.parquet has them, and `prompt_row`; steps of an earlier run
    # end with 0
    visits: pa.Table


class PerStepOperator(Operator):
    """An operator that runs before each training step, instead of once before training."""

    _step: StepContext | None = PrivateAttr(None)

    def drops_within_groups(self) -> bool:
        return False

    @property
    def step(self) -> StepContext | None:
        """None offline."""
        return self._step

    def at_step(self, step: StepContext) -> Self:
        """The operator for a training step."""
        copy = self.model_copy()
        copy._step = step
        return copy

    def last_visits(self, table: pa.Table) -> Array:
        """The step of the last visit of each prompt; offline, where none is known, 0."""
        if self._step is None or PROMPT_ROW not in table.column_names:
            return np.zeros(table.num_rows, np.int64)
        return last_visits(self._step.visits, np.asarray(table[PROMPT_ROW]))

    def random(self, seed: int) -> np.random.Generator:
        """Numbers by the operator's own seed, the run's and the step."""
        step = (0, 0) if self._step is None else (self._step.seed, self._step.number)
        return np.random.default_rng([crc32(self.name().encode()), seed, *step])


def last_visits(visits: pa.Table, row_P: Array) -> Array:
    """The step of the last visit of each prompt `row_P`; `NEVER`: there was none."""
    row_V = np.asarray(visits[PROMPT_ROW])
    size = max(int(row_P.max(initial=-1)), int(row_V.max(initial=-1))) + 1
    last = np.full(size, NEVER)
    last[row_V] = np.asarray(visits["step"])  # They are in order, and the last one counts.
    found_P: Array = last[row_P]
    return found_P


def mixed(queues: Sequence[Array], shares: Sequence[float] | Array) -> Array:
    """The rows of some queues in one order, each in its own: of any first k, share * k are of each
    queue, to the nearest number, as long as there are some of all.

    The i-th row of a queue with share s is at (i + 1/2) / s; without a share, its rows come last.
    """
    places = [
        (np.arange(len(rows)) + 0.5) / share if share else np.full(len(rows), np.inf)
        for rows, share in zip(queues, shares, strict=True)
    ]
    order: Array = np.concatenate(queues)[np.argsort(np.concatenate(places), kind="stable")]
    return order


def ranks(order_P: Array) -> pa.Array:
    """From the prompts in their order, int64[P]."""
    rank_P = np.empty(len(order_P), np.int64)
    rank_P[order_P] = np.arange(len(order_P))
    return pa.array(rank_P)
