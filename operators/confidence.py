"""How certain a share is that was measured on a sample, and pass@k."""

from __future__ import annotations

from functools import cache
from math import comb, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.959963984540054
"""Standard deviations of a normal distribution on each side that leave 95% between them."""


class Interval95(NamedTuple):
    """Where a share is with 95% confidence."""

    low: float
    high: float


def wilson_interval(share: float, n: float) -> Interval95:
    """Wilson's score interval of a share of independent trials.

    https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval
    """
    middle = (share + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 * sqrt(share * (1 - share) / n + (Z_95 / (2 * n)) ** 2) / (1 + Z_95**2 / n)
    return Interval95(max(0.0, middle - half), min(1.0, middle + half))


_ROUNDING = 1e-12  # a variance below it is rounding error


class AccuracyInterval(NamedTuple):
    """A mean, and where it is with 95% confidence."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, mean_P: NDArray[np.float64], responses: int) -> AccuracyInterval:
        """The mean of the accuracies of prompts, which are independent of one another.

        The responses to one prompt are not. So in [0, 1] it is Wilson's score interval for as many
        independent responses as would have the variance that the prompts have; with one response
        each it is Wilson's own. Where all prompts are alike, each counts as one response.
        https://pmc.ncbi.nlm.nih.gov/articles/PMC6690503
        """
        prompts, mean = len(mean_P), float(mean_P.mean())
        variance = float(mean_P.var()) / prompts
        if mean_P.min() < 0 or mean_P.max() > 1:
            return cls(mean, mean - Z_95 * sqrt(variance), mean + Z_95 * sqrt(variance))
        n = min(mean * (1 - mean) / variance, responses) if variance > _ROUNDING else prompts
        return cls(mean, *wilson_interval(mean, n))


@cache
def pass_at_k(n: int, right: int, k: int) -> float:
    """The unbiased estimator 1 - C(n - c, k) / C(n, k) of Chen et al. 2021, Evaluating large
    language models trained on code: https://arxiv.org/abs/2107.03374"""
    return 1 - comb(n - right, k) / comb(n, k)


def pass_at_powers(n: int) -> list[int]:
    """Powers of 2 below n, and n; none of one response."""
    return [k for k in (2**power for power in range(1, n.bit_length())) if k < n] + [n] * (n > 1)
