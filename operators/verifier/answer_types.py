"""Types of answers: what a reference is, how an answer of its type is found, and what equals it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import NamedTuple


class Conventions(NamedTuple):
    """What is equal where either reading is fine."""

    worked_out: bool = True  # an equal value is not enough: a numeral asks for a numeral
    tolerance: float | None = None  # of a number or amount, relative to the reference
    ordered_lists: bool = False  # whether a list has an order

    def is_near(self, answer: Fraction, reference: Fraction) -> bool:
        tolerance = Fraction(str(self.tolerance or 0))
        return abs(answer - reference) <= tolerance * abs(reference)


class Mention(NamedTuple):
    """A value of a type in a text, at text[start:end]."""

    value: Hashable
    start: int
    end: int


class AnswerRules(NamedTuple):
    """What a type is."""

    # whether a reference, stripped, is one value of this type and nothing else
    takes: Callable[[str], bool]
    mentions: Callable[[str], list[Mention]]  # in their order, each as long as it can be
    equal: Callable[[Hashable, Hashable], bool]  # the first is of the answer
