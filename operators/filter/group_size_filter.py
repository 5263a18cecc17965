"""Keep groups that have enough responses, and not too many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..groups import Groups
from ..operator import Columns, GroupFilter, drop


class GroupSizeFilter(GroupFilter):
    """Drop whole groups with fewer than `min` or more than `max` responses.

    Earlier steps may have dropped single responses; GRPO has nothing to compare the only
    response of a group with, so the default drops such a group.
    """

    min: int = Field(2, ge=1)
    """Fewest responses to keep a group."""
    max: int | None = Field(None, ge=1)
    """Most responses to keep a group; any number by default."""

    reasons: ClassVar[Mapping[str, str]] = {
        "group_too_small": "the group has fewer than `min` responses",
        "group_too_large": "the group has more than `max` responses",
    }

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    def reads(self) -> Columns:
        return ("prompt_id",)

    def decide(self, table: pa.Table) -> pa.Array:
        groups = Groups.of(table)
        size_N = groups.sizes_G[groups.codes_N]
        most = np.inf if self.max is None else self.max
        return drop({"group_too_small": size_N < self.min, "group_too_large": size_N > most})
