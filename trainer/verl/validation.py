"""A validation: the groups of its sets, and the figures of each set.

Of a prompt with n graded responses, c of them right:

    mean@n   the mean accuracy
    pass@k   1 - C(n - c, k) / C(n, k): the chance that one of k of them is right
             (Chen et al. 2021, https://arxiv.org/abs/2107.03374)
    maj@n    whether the answer that most of them give is right; in a tie, the mean over the answers

Those of a set are means over its prompts. A response that could not be graded is neither right nor
wrong, and counts in none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from math import comb, sqrt
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators.columns import numbers, right_and_wrong
from ...operators.confidence import Z_95, wilson_interval
from ...operators.groups import Array, Groups
from ...operators.judgements import same_text
from ..split import ACCURACY

_ROUNDING = 1e-12  # a variance below it is rounding error


class AccuracyInterval(NamedTuple):
    """A mean, and where it is with 95% confidence."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, mean_P: Array, responses: int) -> AccuracyInterval:
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
    """The chance that one of k out of n responses is right, of which so many are.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    return 1 - comb(n - right, k) / comb(n, k)


def majority(answers: Iterable[str | None], rights: Iterable[bool]) -> float:
    """Whether the most frequent answer is right; the share of them that are where several tie.

    Responses without an answer do not vote; where none votes, the majority is wrong.

    Example:
        >>> majority(["3", "4", "3", None], [True, False, True, False])
        1.0
        >>> majority(["3", "4"], [True, False])
        0.5
    """
    pairs = [(answer, right) for answer, right in zip(answers, rights, strict=True) if answer]
    votes = Counter(answer for answer, _ in pairs)
    right = {answer for answer, is_right in pairs if is_right}
    winners = [answer for answer, count in votes.items() if count == max(votes.values())]
    return sum(answer in right for answer in winners) / len(winners) if winners else 0.0


def set_figures(graded: pa.Table, n: int) -> dict[str, float]:
    """The figures of a set, by names such as `mean@8`.

    Args:
        graded: the responses that have an accuracy; rows of a prompt are adjacent.
        n: responses that were requested to each prompt. A prompt of which fewer than k could be
            graded has no part in pass@k.
    """
    accuracy_N, groups = numbers(graded, ACCURACY), Groups.of(graded)
    found, right_N = (
        AccuracyInterval.of(groups.mean(accuracy_N), len(accuracy_N)),
        _right(graded, accuracy_N),
    )
    figures = {f"mean@{n}": found.mean, "mean_low": found.low, "mean_high": found.high}
    rights = np.split(right_N, groups.starts_G[1:])
    for k in _powers(n):
        chances = [pass_at_k(len(each), int(each.sum()), k) for each in rights if len(each) >= k]
        if chances:
            figures[f"pass@{k}"] = float(np.mean(chances))
    if n > 1 and "extracted_answer" in graded.column_names:
        texts = np.array(same_text(graded["extracted_answer"]).to_pylist(), object)
        votes = zip(np.split(texts, groups.starts_G[1:]), rights, strict=True)
        figures[f"maj@{n}"] = float(np.mean([majority(*each) for each in votes]))
    return figures


def _right(graded: pa.Table, accuracy_N: Array) -> Array:
    """Which responses are right: by their verdicts; without these, those of accuracy 1."""
    if "verdict" in graded.column_names:
        return right_and_wrong(graded["verdict"])[0]
    full_N: Array = accuracy_N >= 1
    return full_N


def _powers(n: int) -> list[int]:
    """Powers of 2 below n, and n; none of one response."""
    return [k for k in (2**power for power in range(1, n.bit_length())) if k < n] + [n] * (n > 1)
