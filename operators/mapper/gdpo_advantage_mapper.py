"""The advantage of GDPO: each reward component is normalised before they are summed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, FiniteFloat, model_validator
from typing_extensions import Self

from ..columns import numbers
from ..groups import Array, Groups
from ..operator import Change, Columns, Operator, Scope, drop
from .grpo_advantage_mapper import over_batch
from .reward_sum_mapper import NO_COMPONENT, OnMissing, RewardGate, RewardSumMapper

_DISTANCE, _REASON = "distance", "reason"


class GdpoAdvantageMapper(Operator):
    """Write `advantage`, float64[N], from reward components, by GDPO.

    With the values c of a component in a group, their mean m_c and unbiased standard deviation s_c:

        d = sum of the weights w_c times (c - m_c) / (s_c + epsilon)
        advantage = d / (standard deviation of d over all rows + epsilon)

    So rewards that are summed to the same number, such as a right answer without the format and a
    wrong one with it, still differ where the group has more of one than of the other. Source:
    https://arxiv.org/abs/2601.05242; TRL's `multi_objective_aggregation: normalize_then_sum`, but
    for its 1e-4 in place of epsilon; verl's estimator `gdpo`, which takes the last deviation over
    tokens, and is the same where each response has one.

    `reward` stays the weighted sum that `reward_sum_mapper` writes: put this step after it, in
    place of `grpo_advantage_mapper`, with the same weights, gates and `on_missing`. A component
    whose gate is closed is 0, as there. A row without an advantage is in no statistic.

    Raises:
        DataError: a component is missing, or none is for a row, and `on_missing` is `fail`.
    """

    weights: dict[str, FiniteFloat] = Field(min_length=1)
    """Weight of each component, a number: `accuracy` is the column `reward_accuracy`."""
    gates: dict[str, RewardGate] = Field({})
    """Where a component counts, as in `reward_sum_mapper`."""
    on_missing: OnMissing = "fail"
    """What to do if a component is missing, as in `reward_sum_mapper`: end the run, drop the row,
    drop the whole group, or substitute its mean over the group, so that it adds 0."""
    epsilon: float = Field(1e-6, gt=0, allow_inf_nan=False)
    """Added to the standard deviations."""

    scope: ClassVar[Scope] = Scope.DATASET
    estimates: ClassVar[str] = "the mean and deviation of each reward component"
    reasons: ClassVar[Mapping[str, str]] = {
        "missing_component": "a reward component is missing and has no substitute",
        "no_component": NO_COMPONENT,
        "group_of_one": "no other response of the group has all components",
    }

    @model_validator(mode="after")
    def _sums(self) -> Self:
        self._sum()
        return self

    def _sum(self) -> RewardSumMapper:
        """The sum of the same components, which knows what counts and what is missing."""
        return RewardSumMapper(
            weights=dict(self.weights), gates=self.gates, on_missing=self.on_missing
        )

    def reads(self) -> Columns:
        return self._sum().reads()

    def optional_reads(self) -> Mapping[str, str]:
        return self._sum().optional_reads()

    def writes(self) -> Columns:
        return ("advantage",)

    def digest(self, table: pa.Table) -> pa.Table:
        """d, and why a row is dropped: the groups of a chunk are whole."""
        groups, distance_N, total = Groups.of(table), np.zeros(table.num_rows), self._sum()
        parts = total.components(table)
        without_N = total.dropped(table, total.without_component(table))
        lacking = [part.missing_N for part in parts.values()]
        missing_N = total.dropped(table, np.any(lacking, axis=0))
        kept_N = ~(missing_N | without_N)
        for name, part in parts.items():
            mean_G = groups.mean(part.value_N, kept_N)
            std_G = groups.std(part.value_N, kept_N, ddof=1) + self.epsilon
            part_N = (part.value_N - mean_G[groups.codes_N]) / std_G[groups.codes_N]
            distance_N += self.weights[name] * part_N
        alone_N = kept_N & (groups.sum(kept_N)[groups.codes_N] < 2)
        reasons = drop(
            {"missing_component": missing_N, "no_component": without_N, "group_of_one": alone_N}
        )
        gone_N = np.asarray(reasons.is_valid())
        distance = pa.array(distance_N, pa.float64(), mask=gone_N)
        return pa.table({_DISTANCE: distance, _REASON: reasons})

    def apply(self, table: pa.Table) -> Change:
        distance_N: Array = numbers(table, _DISTANCE)
        advantage_N = over_batch(distance_N, 0.0, self.epsilon)
        advantage = pa.array(advantage_N, pa.float64(), mask=np.isnan(distance_N))
        return Change({"advantage": advantage}, table[_REASON].combine_chunks())
