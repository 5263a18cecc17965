"""Drop prompts that have become too easy for the policy, or are too hard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ..columns import numbers
from ..operator import Columns, Filter, drop


class RetireFilter(Filter):
    """Drop prompts that have become too easy for the policy, or are too hard.

    It follows `history_mapper`, before the sampling. What counts is `history_mean_pass_rate`, the
    mean pass rate of the last visits, of which `history_mapper` says how many. A group that is all
    right or all wrong has no gradient.

    A prompt that is dropped is not visited, so its pass rate stays as it was: it comes back after
    `for_steps`, and is dropped again if the next visit is no other.
    """

    max: float | None = Field(1.0, ge=0, le=1)
    """Drop prompts with this mean pass rate or a higher one. 1: those with right responses only.
    Null: none is too easy."""
    min: float | None = Field(None, ge=0, le=1)
    """Drop prompts with this mean pass rate or a lower one. 0: those with wrong responses only.
    Null: none is too hard."""
    visits: PositiveInt = 2
    """Prompts with fewer visits stay."""
    for_steps: PositiveInt | None = None
    """How many training steps after its last visit a prompt may be sampled again. Null: never."""

    reasons: ClassVar[Mapping[str, str]] = {
        "too_easy": "its mean pass rate is `max` or more",
        "too_hard": "its mean pass rate is `min` or less",
    }

    @model_validator(mode="after")
    def _drops_something(self) -> Self:
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError("min is not below max: every prompt would be dropped")
        return self

    def reads(self) -> Columns:
        return ("history_mean_pass_rate", "history_visits", "history_age")

    def drops_within_groups(self) -> bool:
        return False

    def decide(self, table: pa.Table) -> pa.Array:
        rate_P, visits_P, age_P = (numbers(table, name) for name in self.reads())
        rate_P, known_P = np.round(rate_P, 9), visits_P >= self.visits
        if self.for_steps is not None:
            known_P &= age_P < self.for_steps
        none_P = np.zeros(len(rate_P), bool)
        # A comparison with a rate that is unknown, nan, is false.
        easy_P = none_P if self.max is None else known_P & (rate_P >= self.max)
        hard_P = none_P if self.min is None else known_P & (rate_P <= self.min)
        return drop({"too_easy": easy_P, "too_hard": hard_P})
