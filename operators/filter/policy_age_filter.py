"""Drop responses that a policy of too long ago has sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import NonNegativeInt

from ..columns import numbers
from ..groups import Groups
from ..importance import POLICY_AGE
from ..operator import Columns, GroupFilter, drop

TOO_OLD = "too_old"  # the reason of what it drops


class PolicyAgeFilter(GroupFilter):
    """Drop groups with a response that a policy of more than `max_age` training steps ago sampled.

    Where training samples ahead (`train.mode`), responses have `policy_age`: the training steps
    between the policy that sampled the first token and the current one; 0: it is the same. With
    `wait_for_slow: false`, prompts that take long are the old ones: what this drops of each source
    is in the figures and on the page of the run.

    A response without an age is by the current policy, as all are offline.

    Source: verl's `max_off_policy_threshold`, which counts one more.
    """

    max_age: NonNegativeInt = 1
    """The greatest age that stays."""

    reasons: ClassVar[Mapping[str, str]] = {
        TOO_OLD: "a response of the group has a `policy_age` of more than `max_age`"
    }

    def reads(self) -> Columns:
        return ("prompt_id",)

    def optional_reads(self) -> Mapping[str, str]:
        return {POLICY_AGE: POLICY_AGE}

    def decide(self, table: pa.Table) -> pa.Array:
        if POLICY_AGE not in table.column_names:
            return drop({TOO_OLD: np.zeros(table.num_rows, bool)})
        groups = Groups.of(table)
        # A comparison with nan, of a response without an age, is false.
        old_G = groups.sum(numbers(table, POLICY_AGE) > self.max_age) > 0
        return drop({TOO_OLD: old_G[groups.codes_N]})
