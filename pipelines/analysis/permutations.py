"""p-values by random permutations within strata, and Holm's correction of many of them.

    T = sum_i fixed_i moved_i            moved values are permuted within each stratum
    p = 10 / b                           the b-th permutation is the 10th with T_b >= T
    p = (1 + #{T_b >= T}) / (B + 1)      there were fewer than 10 in B permutations

The second rule is the usual one of a Monte Carlo test; the first stops early where nothing is to be
found. Under the null hypothesis, P(p <= a) <= a for every a, whatever the distribution of the data.

Source: Besag and Clifford, Sequential Monte Carlo p-values, Biometrika 78 (1991) 301-304.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...operators.groups import Array

DRAWS = 9_999
"""Permutations at most, so the least p-value is 0.0001."""
EXCEEDANCES = 10
"""Permutations with a statistic as great as the observed one after which none is drawn."""
_FIRST_BATCH = 32
_CELLS = 1 << 20  # of a batch, permutations x rows: it stays in the processor's cache
_ROUNDING = 1e-9

NullDraws = Callable[[int], Array]
"""The statistics of the next so many permutations, float64[draws]."""


class StratifiedPairs(NamedTuple):
    """Pairs of values, one fixed and one to be moved, in strata with spread.

    Strata whose fixed or moved values are all equal are left out: permutations change nothing
    there. Rows are in the order of their strata; axis _N.

    Attributes:
        fixed_N: float64, less the mean of the stratum.
        moved_N: float64, less the mean of the stratum.
        codes_N: int64, the stratum of each row, from 0.
        rows_N: int64, the place of each row in what was given.
        strata: how many there are.
    """

    fixed_N: Array
    moved_N: Array
    codes_N: Array
    rows_N: Array
    strata: int

    @classmethod
    def of(cls, codes_N: Array, fixed_N: Array, moved_N: Array) -> StratifiedPairs:
        """Pairs of rows that are all finite.

        Args:
            codes_N: any integer for each stratum.
            fixed_N: numbers; a row in which either number is not finite is left out.
            moved_N: numbers.
        """
        rows_N = np.flatnonzero(np.isfinite(fixed_N) & np.isfinite(moved_N))
        fixed_N, moved_N = fixed_N[rows_N].astype(float), moved_N[rows_N].astype(float)
        _, dense_N = np.unique(codes_N[rows_N], return_inverse=True)
        strata = int(dense_N.max()) + 1 if len(dense_N) else 0
        varied_S = _varies(dense_N, fixed_N, strata) & _varies(dense_N, moved_N, strata)
        order_N = np.argsort(dense_N, kind="stable")
        order_N = order_N[varied_S[dense_N[order_N]]]
        _, codes = np.unique(dense_N[order_N], return_inverse=True)
        codes = codes.astype(np.int64)
        fixed, moved = (_centred(codes, each[order_N]) for each in (fixed_N, moved_N))
        return cls(fixed, moved, codes, rows_N[order_N], int(varied_S.sum()))

    @property
    def correlation(self) -> float:
        """Pearson's r of both after the means of strata are taken off; NaN without strata."""
        scale = float(np.sqrt((self.fixed_N**2).sum() * (self.moved_N**2).sum()))
        return float((self.fixed_N * self.moved_N).sum()) / scale if scale else float("nan")

    def p_value(self, rng: np.random.Generator) -> float:
        """One-sided p-value of a great sum of products; 1 without strata."""
        if not self.strata:
            return 1.0
        observed = float((self.fixed_N * self.moved_N).sum())
        scale = float(np.linalg.norm(self.fixed_N) * np.linalg.norm(self.moved_N))
        return sequential_p_value(observed, self._draws(rng), len(self.rows_N), scale)

    def _draws(self, rng: np.random.Generator) -> NullDraws:
        """Strata of the same size are permuted at once, as rows of a matrix."""
        sizes_S = np.bincount(self.codes_N)
        sizes_N = sizes_S[self.codes_N]
        blocks = [
            (self.fixed_N[sizes_N == size], self.moved_N[sizes_N == size].reshape(-1, size))
            for size in np.unique(sizes_S)
        ]

        def draw(draws: int) -> Array:
            sums = np.zeros(draws)
            for fixed, moved in blocks:
                repeated = np.tile(moved, (draws, 1))
                rng.permuted(repeated, axis=1, out=repeated)
                sums += repeated.reshape(draws, -1) @ fixed
            return sums

        return draw


def sign_flips(values_G: Array, rng: np.random.Generator) -> NullDraws:
    """The null of values that are symmetric about 0: sums with random signs."""

    def draw(draws: int) -> Array:
        flips = rng.integers(0, 2, (draws, len(values_G)), np.int8)
        found: Array = (2.0 * flips - 1.0) @ values_G
        return found

    return draw


def sequential_p_value(observed: float, draw: NullDraws, rows: int, scale: float) -> float:
    """Sequential Monte Carlo p-value of Besag and Clifford, one-sided.

    Args:
        observed: the statistic T.
        draw: statistics of permutations.
        rows: numbers that a permutation needs, for the size of batches.
        scale: how great T can be; differences of 1e-9 of it are rounding, and count as equal.

    Example:
        >>> sequential_p_value(0.0, lambda draws: np.ones(draws), 1, 1.0)
        1.0
    """
    least = observed - _ROUNDING * scale
    drawn = reached = 0
    batch = _FIRST_BATCH
    while drawn < DRAWS:
        batch = max(1, min(batch, _CELLS // max(1, rows), DRAWS - drawn))
        great = np.cumsum(draw(batch) >= least) + reached
        if great[-1] >= EXCEEDANCES:
            return EXCEEDANCES / (drawn + int(np.argmax(great >= EXCEEDANCES)) + 1)
        drawn, reached, batch = drawn + batch, int(great[-1]), 2 * batch
    return (1 + reached) / (DRAWS + 1)


def holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Which null hypotheses Holm's procedure rejects: one false one at most in a share of `alpha`.

    It holds for p-values that depend on one another in any way.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6
    (1979) 65-70.

    Example:
        >>> holm([0.04, 0.001, 0.03], 0.05)
        [False, True, False]
    """
    rejected = [False] * len(p_values)
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[at] > alpha / (len(p_values) - rank):
            break
        rejected[at] = True
    return rejected


def ranks_within(codes_N: Array, values_N: Array) -> Array:
    """Average ranks of values within strata, from 0 to 1, without either; float64[N]."""
    order_N = np.lexsort((values_N, codes_N))
    codes, values = codes_N[order_N], values_N[order_N]
    new = np.ones(len(order_N), bool)
    new[1:] = (codes[1:] != codes[:-1]) | (values[1:] != values[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order_N))
    places = np.repeat((starts + ends + 1) / 2, ends - starts)
    first_N = np.searchsorted(codes, codes)
    sizes_N = np.searchsorted(codes, codes, side="right") - first_N
    ranks_N = np.empty(len(order_N))
    ranks_N[order_N] = (places - first_N) / (sizes_N + 1)
    return ranks_N


def _varies(codes_N: Array, values_N: Array, strata: int) -> Array:
    low_S, high_S = np.full(strata, np.inf), np.full(strata, -np.inf)
    np.minimum.at(low_S, codes_N, values_N)
    np.maximum.at(high_S, codes_N, values_N)
    return low_S < high_S


def _centred(codes_N: Array, values_N: Array) -> Array:
    sizes_S = np.bincount(codes_N)
    centred: Array = values_N - (np.bincount(codes_N, values_N) / sizes_S)[codes_N]
    return centred
