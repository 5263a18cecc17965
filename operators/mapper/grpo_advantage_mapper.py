"""The advantage of a response over the others of its group, on which GRPO trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..columns import numbers
from ..groups import Array, Groups
from ..operator import Change, Columns, Operator, Scope, drop


class GrpoAdvantageMapper(Operator):
    """Write `advantage`, float64[N], from `reward`, as verl computes it but in float64.

    With the rewards r of a group of n, their mean m and unbiased standard deviation s:

        std            (r - m) / (max(s, std_floor) + epsilon)    https://arxiv.org/abs/2402.03300
        none           r - m                                      https://arxiv.org/abs/2503.20783
        leave_one_out  r - mean of the others = (r - m) n / (n - 1)
                                                                  https://arxiv.org/abs/2402.14740

    A response without a finite reward gets a null advantage and is not counted in n, m and s. A
    group with a single reward has nothing to compare; verl uses the raw reward as its advantage,
    here the group is dropped. Equal rewards have an advantage of exactly 0.
    """

    normalise: Literal["std", "none", "leave_one_out"] = "std"
    """How to normalise the distance from the mean: by the deviation, not at all, or as RLOO."""
    epsilon: float = Field(1e-6, gt=0, allow_inf_nan=False)
    """Added to the standard deviation."""
    std_floor: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Smallest standard deviation to divide by: without it, a tiny bonus in a group that is all
    right or all wrong is scaled up to advantages around 1."""

    scope: ClassVar[Scope] = Scope.GROUP
    estimates: ClassVar[str] = "the mean and deviation of the rewards"
    reasons: ClassVar[Mapping[str, str]] = {
        "no_reward": "no response of the group has a finite reward",
        "group_of_one": "only one response of the group has a finite reward",
    }

    @model_validator(mode="after")
    def _floor_is_used(self) -> Self:
        if self.std_floor > 0 and self.normalise != "std":
            raise ValueError(f"std_floor has no effect with normalise {self.normalise}")
        return self

    def reads(self) -> Columns:
        return ("prompt_id", "reward")

    def writes(self) -> Columns:
        return ("advantage",)

    def apply(self, table: pa.Table) -> Change:
        groups = Groups.of(table)
        reward_N = numbers(table, "reward")
        valid_N = np.isfinite(reward_N)
        count_N = groups.sum(valid_N)[groups.codes_N]
        factor_N = self._factors(groups, reward_N, valid_N)[groups.codes_N]
        with np.errstate(invalid="ignore"):
            distance_N = reward_N - groups.mean(reward_N, valid_N)[groups.codes_N]
            advantage_N = (
                distance_N * factor_N if self.normalise != "std" else distance_N / factor_N
            )
        defined_N = valid_N & (count_N > 1)
        return Change(
            columns={"advantage": pa.array(advantage_N, pa.float64(), mask=~defined_N)},
            reasons=drop({"no_reward": count_N == 0, "group_of_one": count_N == 1}),
        )

    def _factors(self, groups: Groups, reward_N: Array, valid_N: Array) -> Array:
        # What the distance from the mean is divided by (std) or multiplied with.
        if self.normalise == "std":
            std_G: Array = np.maximum(groups.std(reward_N, valid_N, ddof=1), self.std_floor)
            return std_G + self.epsilon
        if self.normalise == "none":
            return np.ones(len(groups.starts_G))
        count_G = groups.sum(valid_N)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor_G: Array = count_G / (count_G - 1)
        return factor_G
