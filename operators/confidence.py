"""How certain a share is that was measured on a sample."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

Z_95 = 1.959963984540054
"""Standard deviations of a normal distribution on each side that leave 95% between them."""


class Interval95(NamedTuple):
    """Where a share is with 95% confidence."""

    low: float
    high: float


def wilson_interval(share: float, n: float) -> Interval95:
    """Wilson's score interval of a share of independent trials.

    https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval

    Example:
        >>> wilson_interval(0.0, 100).low
        0.0
    """
    middle = (share + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 * sqrt(share * (1 - share) / n + (Z_95 / (2 * n)) ** 2) / (1 + Z_95**2 / n)
    return Interval95(max(0.0, middle - half), min(1.0, middle + half))
