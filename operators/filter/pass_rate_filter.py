"""Keep prompts that are neither too easy nor too hard for the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..columns import right_and_wrong
from ..groups import Groups
from ..operator import Columns, Filter, Scope, drop


class PassRateFilter(Filter):
    """Drop whole groups whose pass rate is outside [min, max].

    The pass rate is the share of `correct` among the responses of a prompt that have a verdict.
    Responses that could not be graded (`timeout`, `verifier_error`) are not counted.
    """

    min: float = Field(0.0, ge=0, le=1)
    """Lowest pass rate to keep."""
    max: float = Field(1.0, ge=0, le=1)
    """Highest pass rate to keep."""

    scope: ClassVar[Scope] = Scope.GROUP
    reasons: ClassVar[Mapping[str, str]] = {
        "too_easy": "the pass rate of the prompt is above `max`",
        "too_hard": "the pass rate of the prompt is below `min`",
        "not_graded": "no response of the prompt has a verdict",
    }

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    def reads(self) -> Columns:
        return ("prompt_id", "verdict")

    def decide(self, table: pa.Table) -> pa.Array:
        groups = Groups.of(table)
        right_N, wrong_N = right_and_wrong(table["verdict"])
        rate_N = groups.mean(right_N, right_N | wrong_N)[groups.codes_N]
        return drop(
            {
                "not_graded": np.isnan(rate_N),
                "too_easy": rate_N > self.max,
                "too_hard": rate_N < self.min,
            }
        )
