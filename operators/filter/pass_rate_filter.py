"""Keep prompts that are neither too easy nor too hard for the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..columns import numbers, right_and_wrong
from ..errors import DataError
from ..groups import Array, Groups
from ..operator import Columns, GroupFilter, drop


class PassRateFilter(GroupFilter):
    """Drop whole groups whose pass rate is outside [min, max].

    The pass rate is the share of `correct` among the responses to a prompt that were graded;
    `no_answer` is wrong, and failures (`timeout`, `verifier_error`, no verdict) are not counted. It
    is the column `pass_rate`, which `group_stats_mapper` writes of the group as it was sampled.
    Without that column it is computed from the rows that are there: after a step that has dropped
    single responses, such as a deduplicator, it is that of the others.
    """

    min: float = Field(0.0, ge=0, le=1)
    """Lowest pass rate to keep."""
    max: float = Field(1.0, ge=0, le=1)
    """Highest pass rate to keep."""

    estimates: ClassVar[str] = "the pass rate"
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

    def optional_reads(self) -> Mapping[str, str]:
        return {"pass_rate": "verdict"}

    def decide(self, table: pa.Table) -> pa.Array:
        groups = Groups.of(table)
        if "pass_rate" in table.column_names:
            rate_G = _stored(groups, table)
        else:
            right_N, wrong_N = right_and_wrong(table["verdict"])
            rate_G = groups.mean(right_N, right_N | wrong_N)
        rate_N = rate_G[groups.codes_N]
        masks = {
            "not_graded": np.isnan(rate_N),
            "too_easy": rate_N > self.max,
            "too_hard": rate_N < self.min,
        }
        return drop(masks)


def _stored(groups: Groups, table: pa.Table) -> Array:
    """The column `pass_rate`, one value for each group, nan where it is null."""
    rate_N = numbers(table, "pass_rate")
    rate_G: Array = rate_N[groups.starts_G]
    differs_N = ~np.isclose(rate_N, rate_G[groups.codes_N], rtol=0, atol=0, equal_nan=True)
    if differs_N.any():
        prompt = table["prompt_id"][int(np.flatnonzero(differs_N)[0])].as_py()
        raise DataError(
            f"column 'pass_rate' differs between the responses to prompt '{prompt}'",
            "a pass rate is that of the prompt: let group_stats_mapper write it",
        )
    return rate_G
