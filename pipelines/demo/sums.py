"""Sums and differences of numbers up to 99, in one step or more, in one short question.

They are at the level of a language model of some hundred million parameters, which has no use for
the worded problems of `problems.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from .problems import Split, check_asked, distinct, pick, seeded, split_of
from .recorded import write_rows

_MOST = 99
_SCHEMA = pa.schema([("question", pa.string()), ("answer", pa.string()), ("level", pa.int64())])


class Sum(NamedTuple):
    """A question with its answer: a whole number from 0."""

    question: str  # such as `What is 23 + 45 - 6?`
    answer: str  # the number
    level: int  # how many numbers are added or subtracted, 1 to 4


def sum_of(seed: int, split: Split, i: int, levels: Sequence[int]) -> Sum:
    """Sum `i` of a split, which depends on the arguments and on nothing else.

    No result on the way is below 0.

    Raises:
        RejuiceError: there is no such split or level.

    Example:
        >>> sum_of(0, "train", 1, levels=(2,)).question
        'What is 40 + 38 - 14?'
    """
    check_asked(split, levels)
    rng = seeded(seed, split, i)
    level = pick(rng, levels)
    while True:
        numbers = [1 + int(rng.random() * _MOST) for _ in range(level + 1)]
        signs = [pick(rng, "+-") for _ in range(level)]
        text, result, least = str(numbers[0]), numbers[0], 0
        for sign, number in zip(signs, numbers[1:], strict=True):
            text += f" {sign} {number}"
            result += number if sign == "+" else -number
            least = min(least, result)
        if least == 0 and split_of(text, numbers) == split:
            return Sum(f"What is {text}?", str(result), level)


def sums(seed: int, split: Split, n: int, levels: Sequence[int] = (1, 2)) -> Iterator[Sum]:
    """Yield the first `n` sums of a split that differ; no two splits share one.

    Raises:
        RejuiceError: there are fewer.
    """
    return distinct(lambda i: sum_of(seed, split, i, levels), n, "sums of these levels")


def write_sums(
    path: Path,
    *,
    seed: int = 0,
    prompts: int = 200,
    split: Split = "train",
    levels: Sequence[int] = (1, 2),
) -> None:
    """Write one row per sum: `question`, `answer`, `level`.

    Raises:
        RejuiceError: the path has no known format, or there are fewer sums.
    """
    write_rows(path, _SCHEMA, (each._asdict() for each in sums(seed, split, prompts, levels)))


def first_sums(
    *, seed: int, prompts: int, split: Split, levels: Sequence[int], most: int = 100
) -> pa.Table:
    """Return the first rows that `write_sums` would write, at most `most` of them."""
    rows = [each._asdict() for each in sums(seed, split, min(prompts, most), levels)]
    return pa.Table.from_pylist(rows, _SCHEMA)
