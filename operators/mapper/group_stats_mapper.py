"""Statistics of the group as it was sampled, before any step drops responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ..columns import right_and_wrong
from ..groups import Groups
from ..operator import Columns, Mapper, Scope


class GroupStatsMapper(Mapper):
    """Write `pass_rate` and `group_n` of the group, the same in all its rows.

    Put it right after the step that writes `verdict`: what later steps drop does not change the
    columns, and `pass_rate_filter` uses them.

    - `group_n`, int64[N], is the number of responses to the prompt, graded or not.
    - `pass_rate`, float64[N], is the share of `correct` among those that were graded. `no_answer`
      is graded, as wrong. A failure (`timeout`, `verifier_error`, no verdict) is neither right nor
      wrong and is not counted; where no response was graded, the pass rate is null, not 0.
    """

    scope: ClassVar[Scope] = Scope.GROUP
    estimates: ClassVar[str] = "the pass rate and size of the group"

    def reads(self) -> Columns:
        return ("prompt_id", "verdict")

    def writes(self) -> Columns:
        return ("pass_rate", "group_n")

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        groups = Groups.of(table)
        right_N, wrong_N = right_and_wrong(table["verdict"])
        rate_N = groups.mean(right_N, right_N | wrong_N)[groups.codes_N]
        return {
            "pass_rate": pa.array(rate_N, pa.float64(), mask=np.isnan(rate_N)),
            "group_n": pa.array(groups.sizes_G[groups.codes_N], pa.int64()),
        }
