"""The advantage of training for pass@k: of the right one among k responses, not of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from ..columns import right_and_wrong
from ..groups import Groups
from ..operator import Change, Columns, Operator, Scope, drop


class PassAtKAdvantageMapper(Operator):
    """Write `advantage`, float64[N], from `verdict`: that of k responses, of which the best counts.

    Of the n graded responses of a group, c are right. The mean reward of k of them, drawn without
    replacement, is rho, and s its standard deviation:

        rho = 1 - C(n - c, k) / C(n, k)         s = sqrt(rho (1 - rho))

        right   (1 - rho) / (s + epsilon)
        wrong   (1 - rho - C(n - c - 1, k - 1) / C(n - 1, k - 1)) / (s + epsilon)

    which is the mean, over all draws that have the response, of their advantage (r - rho) / s.
    Where most responses are right, little is left to learn, and wrong ones are hardly punished: it
    favours exploration. Source: https://arxiv.org/abs/2508.10751, its analytical derivation.

    A response that was not graded has a null advantage, and is not counted. Where all or none of
    the responses are right, the advantage is exactly 0.
    """

    k: int = Field(4, ge=1)
    """How many responses are drawn; with 1, the rewards are those of single responses."""
    epsilon: float = Field(1e-6, gt=0, allow_inf_nan=False)
    """Added to the standard deviation."""

    scope: ClassVar[Scope] = Scope.GROUP
    estimates: ClassVar[str] = "pass@k"
    reasons: ClassVar[Mapping[str, str]] = {
        "too_few_graded": "fewer than k responses of the group were graded",
        "group_of_one": "only one response of the group was graded",
    }

    @classmethod
    def name(cls) -> str:
        """The recipe key, as pass@k is written elsewhere."""
        return "pass_at_k_advantage_mapper"

    def reads(self) -> Columns:
        return ("prompt_id", "verdict")

    def writes(self) -> Columns:
        return ("advantage",)

    def apply(self, table: pa.Table) -> Change:
        groups = Groups.of(table)
        right_N, wrong_N = right_and_wrong(table["verdict"])
        graded_N = right_N | wrong_N
        n_G, c_G = groups.sum(graded_N), groups.sum(right_N)
        pairs = [self._pair(int(n), int(c)) for n, c in zip(n_G, c_G, strict=True)]
        values_G = np.array(pairs or np.zeros((0, 2)))[groups.codes_N]
        advantage_N = np.where(right_N, values_G[:, 0], values_G[:, 1])
        n_N = n_G[groups.codes_N]
        reasons = drop({"group_of_one": n_N == 1, "too_few_graded": n_N < self.k})
        defined_N = graded_N & (n_N >= max(self.k, 2))
        return Change({"advantage": pa.array(advantage_N, pa.float64(), mask=~defined_N)}, reasons)

    def _pair(self, n: int, c: int) -> tuple[float, float]:
        """The advantages of a right and of a wrong response, if c of n are right."""
        if n < self.k or c in (0, n):
            return 0.0, 0.0
        rho = 1 - comb(n - c, self.k) / comb(n, self.k)
        deviation = (rho * (1 - rho)) ** 0.5 + self.epsilon
        lost = comb(n - c - 1, self.k - 1) / comb(n - 1, self.k - 1)
        return (1 - rho) / deviation, (1 - rho - lost) / deviation
