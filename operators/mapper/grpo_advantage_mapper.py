"""The advantage of a response over the others of its group, on which GRPO trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..columns import numbers
from ..errors import DataError
from ..groups import Array, Groups
from ..operator import Change, Columns, Operator, Scope, ScopeByField, drop


class GrpoAdvantageMapper(Operator):
    """Write `advantage`, float64[N], from `reward`, as verl computes it but in float64.

    With the rewards r of a group of n, their mean m and unbiased standard deviation s:

        std            (r - m) / (max(s, std_floor) + epsilon)    https://arxiv.org/abs/2402.03300
        none           r - m                                      https://arxiv.org/abs/2503.20783
        leave_one_out  r - mean of the others = (r - m) n / (n - 1)
                                                                  https://arxiv.org/abs/2402.14740
        mean           (r - m) / (m + epsilon), MaxRL             https://arxiv.org/abs/2602.02710
        batch_std      (r - m) / (max(S, std_floor) + epsilon), S the unbiased standard deviation
                       of all r - m: REINFORCE++ with baseline    https://arxiv.org/abs/2501.03262

    A response without a finite reward gets a null advantage and is not counted in n, m and s. A
    group with a single reward has nothing to compare; verl uses the raw reward as its advantage,
    here the group is dropped. Equal rewards have an advantage of exactly 0.

    `mean` is MaxRL with its control variate, for rewards of 0 and 1: m estimates the pass rate, so
    a group with few right responses counts more, and one without any has advantages of 0.

    `batch_std` sees all rows. verl's `reinforce_plus_plus_baseline` takes mean and deviation over
    tokens, so that a long response counts more in them, and divides by sqrt(variance + 1e-8): it
    gives the same where each response has one token, and nearly so where all are equally long.
    Lite PPO (https://arxiv.org/abs/2508.08221, TRL's `scale_rewards: batch`) divides by the
    deviation of r, not of r - m: a factor that all rows share.

    Raises:
        DataError: a reward is below 0, with `normalise: mean`.
    """

    normalise: Literal["std", "none", "leave_one_out", "mean", "batch_std"] = "std"
    """How to normalise the distance from the mean: by the deviation in the group, not at all, as
    RLOO, by the mean itself (MaxRL), or by the deviation over all rows (REINFORCE++, Lite PPO)."""
    epsilon: float = Field(1e-6, gt=0, allow_inf_nan=False)
    """Added to what is divided by: the standard deviation, or the mean."""
    std_floor: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Smallest standard deviation to divide by: without it, a tiny bonus in a group that is all
    right or all wrong is scaled up to advantages around 1."""
    clip: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Largest absolute value: advantages beyond it are set to it, with their sign. Null: any."""

    scope = ScopeByField("normalise", Scope.GROUP, {"batch_std": Scope.DATASET})
    estimates: ClassVar[str] = "the mean and deviation of the rewards"
    reasons: ClassVar[Mapping[str, str]] = {
        "no_reward": "no response of the group has a finite reward",
        "group_of_one": "only one response of the group has a finite reward",
    }

    @model_validator(mode="after")
    def _floor_is_used(self) -> Self:
        if self.std_floor > 0 and self.normalise not in ("std", "batch_std"):
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
        defined_N = valid_N & (count_N > 1)
        mean_N = groups.mean(reward_N, valid_N)[groups.codes_N]
        with np.errstate(invalid="ignore"):
            distance_N = np.where(defined_N, reward_N - mean_N, np.nan)
        if self.normalise == "mean":
            _check_not_negative(table, groups, reward_N, valid_N)
        advantage_N = self._normalised(groups, distance_N, reward_N, valid_N)
        if self.clip is not None:
            advantage_N = np.clip(advantage_N, -self.clip, self.clip)
        return Change(
            columns={"advantage": pa.array(advantage_N, pa.float64(), mask=~defined_N)},
            reasons=drop({"no_reward": count_N == 0, "group_of_one": count_N == 1}),
        )

    def _normalised(
        self, groups: Groups, distance_N: Array, reward_N: Array, valid_N: Array
    ) -> Array:
        if self.normalise == "none":
            return distance_N
        if self.normalise == "batch_std":
            return over_batch(distance_N, self.std_floor, self.epsilon)
        if self.normalise == "leave_one_out":
            count_G = groups.sum(valid_N)
            with np.errstate(divide="ignore", invalid="ignore"):
                factor_G: Array = count_G / (count_G - 1)
                return np.asarray(distance_N * factor_G[groups.codes_N])
        if self.normalise == "mean":
            size_G = groups.mean(reward_N, valid_N)
        else:
            size_G = np.maximum(groups.std(reward_N, valid_N, ddof=1), self.std_floor)
        return np.asarray(distance_N / (size_G + self.epsilon)[groups.codes_N])


def over_batch(distance_N: Array, std_floor: float, epsilon: float) -> Array:
    """Divide by max(standard deviation of all rows, std_floor) + epsilon, float64[N].

    Distances are from the mean of the group, so that their own mean is 0: it is not subtracted, as
    its rounding error would give groups without signal an advantage. nan does not count.
    """
    known = distance_N[~np.isnan(distance_N)]
    std = math.sqrt(float(known @ known) / max(len(known) - 1, 1))
    return np.asarray(distance_N / (max(std, std_floor) + epsilon))


def _check_not_negative(table: pa.Table, groups: Groups, reward_N: Array, valid_N: Array) -> None:
    negative = np.flatnonzero(valid_N & (reward_N < 0))
    if len(negative):
        row = int(negative[0])
        index, prompt = int(groups.position()[row]), table["prompt_id"][row].as_py()
        raise DataError(
            f"the reward of response {index} of prompt '{prompt}' is {reward_N[row]:g}, below 0, "
            "and normalise mean divides by the mean of a group",
            "give rewards of 0 for wrong and 1 for right, or choose another normalise",
        )
