"""Statistics of the group as it was sampled, before any step drops responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ..columns import right_and_wrong
from ..groups import Array, Groups, hash_each
from ..operator import Columns, Mapper, Scope
from ..text.equations import equations


class GroupStatsMapper(Mapper):
    """Write `pass_rate` and `group_n` of the group, the same in all its rows.

    Put it right after the step that writes `verdict`: what later steps drop does not change the
    columns, and `pass_rate_filter` uses them.

    - `group_n`, int64[N], is the number of responses to the prompt, graded or not.
    - `pass_rate`, float64[N], is the share of `correct` among those that were graded. `no_answer`
      is graded, as wrong. A failure (`timeout`, `verifier_error`, no verdict) is neither right nor
      wrong and is not counted; where no response was graded, the pass rate is null, not 0.

    With `solution_paths: true`, also in how many ways the group was solved, whatever the words:

    - `solution_path`, string[N], has the equations of the response, in their order, each once and
      in one way of writing: `12+5=17; 17*2=34`. Null: the response has none.
    - `solution_paths`, int64[N], is the number of different ones among the `correct` responses of
      the group. 0: no response is correct. Null: none was graded, or no correct one has equations.
    """

    solution_paths: bool = False
    """Write `solution_path` and `solution_paths`, too."""

    scope: ClassVar[Scope] = Scope.GROUP
    estimates: ClassVar[str] = "the pass rate and size of the group"

    def reads(self) -> Columns:
        response = ("response",) if self.solution_paths else ()
        return ("prompt_id", "verdict", *response)

    def writes(self) -> Columns:
        paths = ("solution_path", "solution_paths") if self.solution_paths else ()
        return ("pass_rate", "group_n", *paths)

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        groups = Groups.of(table)
        right_N, wrong_N = right_and_wrong(table["verdict"])
        rate_N = groups.mean(right_N, right_N | wrong_N)[groups.codes_N]
        columns = {
            "pass_rate": pa.array(rate_N, pa.float64(), mask=np.isnan(rate_N)),
            "group_n": pa.array(groups.sizes_G[groups.codes_N], pa.int64()),
        }
        if not self.solution_paths:
            return columns
        texts = table["response"].cast(pa.string()).to_pylist()
        path_N = pa.array(["; ".join(equations(text or "")) or None for text in texts], pa.string())
        return columns | {
            "solution_path": path_N,
            "solution_paths": _distinct_paths(path_N, groups, right_N, right_N | wrong_N),
        }


def _distinct_paths(path_N: pa.Array, groups: Groups, right_N: Array, graded_N: Array) -> pa.Array:
    counted_N = right_N & np.asarray(path_N.is_valid())
    pairs = np.stack([groups.codes_N, hash_each(path_N).view(np.int64)], axis=1)[counted_N]
    codes = np.unique(pairs, axis=0)[:, 0]
    count_G = np.bincount(codes, minlength=len(groups.starts_G))
    right_G, graded_G = groups.sum(right_N) > 0, groups.sum(graded_N) > 0
    unknown_G = ~graded_G | (right_G & (count_G == 0))
    return pa.array(count_G, pa.int64(), mask=unknown_G).take(pa.array(groups.codes_N))
