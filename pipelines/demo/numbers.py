"""Short questions about small numbers: the larger of two, a sum or difference, two of these.

They are at the level of a language model of some hundred million parameters, which has no use for
the worded problems of `problems.py`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from .problems import Split, check_asked, distinct, pick, seeded, split_of

_SUMS = {2: (1, 20), 3: (1, 99), 4: (2, 99)}
"""Levels from 2 on: how many signs there are, and the largest number."""


class NumberQuestion(NamedTuple):
    """A question with its answer: a whole number from 0."""

    question: str  # such as `What is 23 + 45 - 6?`
    answer: str  # the number
    level: int  # 1 to 4


def number_question(seed: int, split: Split, i: int, levels: Sequence[int]) -> NumberQuestion:
    """Question `i` of a split, which depends on the arguments and on nothing else.

    Level 1 asks for the larger or smaller of two numbers up to 99, level 2 for a sum or
    difference of numbers up to 20, level 3 up to 99, and level 4 for two operations on numbers up
    to 99. No result on the way is below 0.

    Example:
        >>> number_question(0, "train", 1, levels=(4,)).question
        'What is 40 + 38 - 14?'
    """
    check_asked(split, levels)
    rng = seeded(seed, split, i)
    level = pick(rng, levels)
    while True:
        made = _comparison(rng) if level == 1 else _sum(rng, *_SUMS[level])
        if made and _split(made[0]) == split:
            return NumberQuestion(*made, level)


def _split(question: str) -> Split:
    """`3 + 4` and `4 + 3`, larger or smaller, are in the same."""
    numbers = sorted(map(int, re.findall(r"\d+", question)))
    return split_of("".join(sorted(set(question) & {"+", "-"})), numbers)


def _comparison(rng: random.Random) -> tuple[str, str]:
    word = pick(rng, ("larger", "smaller"))
    a, b = rng.sample(range(1, 100), 2)
    answer = max(a, b) if word == "larger" else min(a, b)
    return f"Which number is {word}, {a} or {b}?", str(answer)


def _sum(rng: random.Random, operations: int, most: int) -> tuple[str, str] | None:
    numbers = [1 + int(rng.random() * most) for _ in range(operations + 1)]
    text, result = str(numbers[0]), numbers[0]
    for number in numbers[1:]:
        sign = pick(rng, "+-")
        text += f" {sign} {number}"
        result += number if sign == "+" else -number
        if result < 0:
            return None
    return f"What is {text}?", str(result)


def number_questions(
    seed: int, split: Split, n: int, levels: Sequence[int] = (1, 2, 3)
) -> Iterator[NumberQuestion]:
    """The first `n` questions of a split that differ; no two splits share one.

    Nor do they share one with its numbers in another order.
    """
    made = partial(number_question, seed, split, levels=levels)
    return distinct(made, n, "questions of these levels", lambda each: each.question)
