"""The figures of a validation set, in training and by `rejuice eval`.

Of a prompt with n graded responses, c of them right:

    mean@n   the mean accuracy
    pass@k   1 - C(n - c, k) / C(n, k): the chance that one of k of them is right
             (Chen et al. 2021, https://arxiv.org/abs/2107.03374)
    maj@n    whether the answer that most of them give is right; in a tie, the mean over the
             answers

Those of a set are means over its prompts. A response that could not be graded is neither right
nor wrong, and counts in none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from ..operators.arrow_compute import pc
from ..operators.columns import NOT_APPLICABLE, numbers, right_and_wrong
from ..operators.confidence import AccuracyInterval, pass_at_k, pass_at_powers
from ..operators.groups import Array, Groups
from ..operators.judgements import same_text
from .split import ACCURACY


def majority(answers: Iterable[str | None], rights: Iterable[bool]) -> float:
    """Whether the most frequent answer is right; the share of them that are where several tie.

    Responses without an answer do not vote; where none votes, the majority is wrong.
    """
    pairs = [(answer, right) for answer, right in zip(answers, rights, strict=True) if answer]
    votes = Counter(answer for answer, _ in pairs)
    right = {answer for answer, is_right in pairs if is_right}
    winners = [answer for answer, count in votes.items() if count == max(votes.values())]
    return sum(answer in right for answer in winners) / len(winners) if winners else 0.0


def with_accuracy(table: pa.Table) -> pa.Table:
    """One that could not be graded has none."""
    return table.filter(pc.is_finite(table[ACCURACY]).fill_null(False))


def of_graded_tasks(table: pa.Table) -> pa.Table:
    """The responses that a step with an accuracy is meant for, by its condition."""
    reasons = f"{ACCURACY}_missing"
    if reasons not in table.column_names:
        return table
    return table.filter(pc.not_equal(table[reasons], NOT_APPLICABLE).fill_null(True))


def set_figures(graded: pa.Table, n: int) -> dict[str, float]:
    """The figures of `with_accuracy`, rows of a prompt adjacent, by names such as `mean@8`.

    A prompt of which fewer than k could be graded has no part in pass@k.
    """
    accuracy_N, groups = numbers(graded, ACCURACY), Groups.of(graded)
    found = AccuracyInterval.of(groups.mean(accuracy_N), len(accuracy_N))
    right_N = _right(graded, accuracy_N)
    figures = {f"mean@{n}": found.mean, "mean_low": found.low, "mean_high": found.high}
    rights = np.split(right_N, groups.starts_G[1:])
    for k in pass_at_powers(n):
        chances = [pass_at_k(len(each), int(each.sum()), k) for each in rights if len(each) >= k]
        if chances:
            figures[f"pass@{k}"] = float(np.mean(chances))
    if n > 1 and "extracted_answer" in graded.column_names:
        texts = np.array(same_text(graded["extracted_answer"]).to_pylist(), object)
        votes = zip(np.split(texts, groups.starts_G[1:]), rights, strict=True)
        figures[f"maj@{n}"] = float(np.mean([majority(*each) for each in votes]))
    return figures


def _right(graded: pa.Table, accuracy_N: Array) -> Array:
    """By their verdicts; without these, those of accuracy 1."""
    if "verdict" in graded.column_names:
        return right_and_wrong(graded["verdict"])[0]
    full_N: Array = accuracy_N >= 1
    return full_N
