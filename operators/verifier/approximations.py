r"""Values with their rounding: `10\pi \approx 31.4`."""

from __future__ import annotations

import re
from typing import NamedTuple

from .exact import Number, read_plain
from .intervals import NOT_NAMES
from .notation import split_top

APPROXIMATELY = "\\approx"
_SIGN = re.compile(r"\s*\\approx(?![a-zA-Z])\s*")
_LETTERS = re.compile(r"[a-zA-Z](?:_\{?\w+\}?)?$|[A-Za-z]\([a-z0-9]+\)$")


class Approximation(NamedTuple):
    """What an answer states, and all that is as good if the reference states it.

    Of an answer, the rounding counts only where it can be checked: of a number.
    """

    stated: tuple[str, ...]
    all: tuple[str, ...]


def read_approximation(text: str) -> Approximation:
    r"""The values of `10\pi \approx 31.4` or `x \approx 11`; none if numbers disagree."""
    value, *rounded = split_top(text, _SIGN)
    if not rounded:
        return Approximation((text,), (text,))
    decimals = [number for each in rounded if (number := read_plain(each)) and number.digits]
    if len(decimals) < len(rounded):
        return Approximation((), ())
    if len(rounded) == 1 and _LETTERS.match(value) and value not in NOT_NAMES:
        return Approximation((rounded[0],), (rounded[0],))
    exact = read_plain(value)
    if exact and not all(_rounds(exact, decimal) for decimal in decimals):
        return Approximation((), ())
    every = (value, *rounded)
    return Approximation(every if exact else (value,), every)


def _rounds(exact: Number, rounded: Number) -> bool:
    """Whether the second number is the first, rounded or cut off at its last place."""
    more, unit = abs(exact.value) - abs(rounded.value), rounded.ulp or 1
    return exact.value * rounded.value >= 0 and -unit / 2 <= more < unit
