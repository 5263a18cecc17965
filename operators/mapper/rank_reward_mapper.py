"""A reward component from the order of a column within the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from ..columns import component, component_columns, numbers
from ..groups import Groups, average_ranks
from ..operator import Columns, Mapper, Scope, drop


class RankRewardMapper(Mapper):
    """Write `reward_rank`: the place of a number among those of its group, from 0 to 1.

    With the values in ascending order, p the place of a value from 0 and n how many there are:

        p / (n - 1), and equal values share the mean of their places

    so the smallest has 0, the largest 1, and where all are equal each has 0.5. Use it where the
    numbers of a judge or a reward model can be compared within a prompt, and not between prompts.

    A value that is null or not finite has no rank, and the others are ranked without it.
    """

    column: str
    """The column of numbers, such as `reward_quality` or one of your own."""
    order: Literal["ascending", "descending"] = "ascending"
    """`ascending`: the largest number has 1. `descending`: the smallest has 1."""
    component: str = "rank"
    """The component: the reward is `reward_NAME`."""

    scope: ClassVar[Scope] = Scope.GROUP
    estimates: ClassVar[str] = "the rank in the group"
    retryable: ClassVar[frozenset[str] | None] = frozenset()
    reasons: ClassVar[Mapping[str, str]] = {
        "no_value": "the column has no finite number",
        "group_too_small": "only one response of the group has a finite number",
    }

    def reads(self) -> Columns:
        return ("prompt_id", self.column)

    def writes(self) -> Columns:
        return component_columns(self.component)

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        groups, value_N = Groups.of(table), numbers(table, self.column)
        known_N = np.isfinite(value_N)
        count_N = groups.sum(known_N)[groups.codes_N]
        codes_K = groups.codes_N[known_N]
        rank_N = np.zeros(table.num_rows)
        rank_N[known_N] = average_ranks(codes_K, value_N[known_N]) - np.searchsorted(
            codes_K, codes_K
        )
        share_N = rank_N / np.maximum(count_N - 1, 1)
        if self.order == "descending":
            share_N = 1.0 - share_N
        missing = drop({"no_value": ~known_N, "group_too_small": count_N < 2})
        return component(self.component, share_N, missing)
