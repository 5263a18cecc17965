"""Types of answers: what a reference is, how an answer of its type is found, and what equals it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import NamedTuple


class Conventions(NamedTuple):
    """What is equal where either reading is fine.

    Attributes:
        worked_out: whether an equal value is not enough: a numeral asks for a numeral.
        tolerance: of a number or amount, relative to the reference.
        ordered_lists: whether a list has an order.
    """

    worked_out: bool = True
    tolerance: float | None = None
    ordered_lists: bool = False

    def is_near(self, answer: Fraction, reference: Fraction) -> bool:
        tolerance = Fraction(str(self.tolerance or 0))
        return abs(answer - reference) <= tolerance * abs(reference)


class Mention(NamedTuple):
    """A value of a type in a text, at text[start:end]."""

    value: Hashable
    start: int
    end: int


class AnswerRules(NamedTuple):
    """What a type is.

    Attributes:
        takes: whether a reference, stripped, is a value of this type and nothing else.
        mentions: the values in a text, in their order, each as long as it can be.
        equal: whether a value answers that of the reference; the first is of the answer.
    """

    takes: Callable[[str], bool]
    mentions: Callable[[str], list[Mention]]
    equal: Callable[[Hashable, Hashable], bool]
