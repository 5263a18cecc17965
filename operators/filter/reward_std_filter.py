"""Keep groups whose rewards differ: in GRPO, only they have a gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from ..columns import numbers
from ..groups import Groups
from ..operator import Columns, GroupFilter, drop


class RewardStdFilter(GroupFilter):
    """Drop whole groups whose rewards have a standard deviation of `min` or less.

    The deviation is the population's (ddof 0), as in verl's `filter_groups`, which implements
    the dynamic sampling of DAPO (https://arxiv.org/abs/2503.14476). Unlike `numpy.std` it is
    exactly 0 for equal rewards, without rounding errors. Responses without a finite reward are not
    counted, and are kept or dropped with their group; a group with a single reward has no spread.
    """

    column: str = "reward"
    """The reward to filter by: `reward`, or a component such as `reward_accuracy`."""
    min: float = Field(0.0, ge=0)
    """Keep groups with a larger standard deviation than this."""

    estimates: ClassVar[str] = "the deviation of the rewards"
    reasons: ClassVar[Mapping[str, str]] = {
        "no_reward": "no response of the group has a finite reward",
        "no_reward_spread": "the standard deviation of the group's rewards is not above `min`",
    }

    def reads(self) -> Columns:
        return ("prompt_id", self.column)

    def decide(self, table: pa.Table) -> pa.Array:
        groups = Groups.of(table)
        reward_N = numbers(table, self.column)
        std_N = groups.std(reward_N, np.isfinite(reward_N))[groups.codes_N]
        return drop({"no_reward": np.isnan(std_N), "no_reward_spread": std_N <= self.min})
