r"""Sets of real numbers: unions, complements and conditions that one interval cannot express.

`structure` compares single intervals itself; what is written with operations (`\cup`, `\cap`,
`\setminus`, `x \ne 2`, `|x| < 1`) is compared here, as sets of sympy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import sympy

from .intervals import LETTER, ORDER, REALS, Interval, bracketed, condition, ordered
from .lists import MAX_ITEMS, split_items
from .notation import split_top

RealSet = Any  # sympy ships no types
# The value of an end of an interval, equal values for equal ends; None if it has none.
ValueOf = Callable[[str], Any]

_MEMBER = re.compile(r"([a-zA-Z])\s*\\in(?![a-zA-Z])\s*")
_MINUS = re.compile(r"\s*\\(?:setminus|backslash)(?![a-zA-Z])\s*|(?<=[})\]])\s*-\s*(?=\\?\{)")
_UNION = re.compile(r"\s*(?:\\cup(?![a-zA-Z])|(?<=[\])}])\s*\bU\b)\s*")
_BOTH = re.compile(r"\s*\\cap(?![a-zA-Z])\s*")
_COMMA = re.compile(r"\s*,\s*")
_EXCEPT = re.compile(rf"({LETTER})\s*\\ne(?![a-zA-Z])\s*")
_IS = re.compile(rf"({LETTER})\s*=\s*")
_ABSOLUTE = re.compile(rf"\|\s*({LETTER})\s*\|")


def same_set(answer: str, reference: str, value_of: ValueOf) -> bool | None:
    """Whether two sets of real numbers are equal, None if the reference is not read as one."""
    readers = [_SetReader(value_of), _SetReader(value_of)]
    x, y = (reader.read(text) for reader, text in zip(readers, (answer, reference), strict=True))
    if y is None:
        return None
    if x is None:
        return False
    names = [reader.variables for reader in readers]
    if any(len(n) > 1 for n in names) or (names[0] and names[1] and names[0] != names[1]):
        return False
    return bool(x == y)


class _SetReader:
    """Reads a set and remembers the variables that its conditions are about."""

    def __init__(self, value_of: ValueOf) -> None:
        self.variables = set[str]()
        self._value_of = value_of

    def read(self, text: str) -> RealSet | None:
        text = text.strip()
        if member := _MEMBER.match(text):
            self.variables.add(member[1])
            text = text[member.end() :]
        whole, text = text, condition(text)
        removed = split_top(text, _MINUS)[1:]
        if any(_UNION.search(part) for part in removed):
            return None  # `A \setminus B \cup C` has two readings
        for separator, combine in (
            (_MINUS, _difference),
            (_UNION, sympy.Union),
            (_BOTH, sympy.Intersection),
        ):
            parts = split_top(text, separator)
            if 1 < len(parts) <= MAX_ITEMS:
                sets = [self.read(part) for part in parts]
                return combine(*sets) if all(s is not None for s in sets) else None
        if text != whole or "\\ne" in text:
            return self._conditions(text)
        return self._single(text)

    def _conditions(self, text: str) -> RealSet | None:
        r"""`x > 0, x \ne 1` and `x \ne 1, 2`: all conditions hold."""
        found, excluding = sympy.S.Reals, False
        for part in split_top(text, _COMMA):
            excepted = _EXCEPT.match(part)
            excluding = bool(excepted) or (excluding and not ORDER.search(part))
            if excepted:
                self.variables.add(excepted[1])
                part = part[excepted.end() :]
            operand = self._points([part]) if excluding else self._single(part)
            if operand is None:
                return None
            found = found - operand if excluding else found & operand
        return found

    def _single(self, text: str) -> RealSet | None:
        if text in REALS:
            return sympy.S.Reals
        braces = re.match(r"\\?\{(.*?)\\?\}$", text)
        if braces and "{" not in re.sub(r"\{[^{}]*\}", "", braces[1]):
            return self._points(split_items(braces[1].strip(), bracketed=True))
        if point := _IS.match(text):
            self.variables.add(point[1])
            return self._points([text[point.end() :]])
        interval = bracketed(text) or ordered(_ABSOLUTE.sub(r"\1", text))
        found = self._interval(interval) if interval else None
        if found is None or not _ABSOLUTE.search(text):
            return found
        found &= sympy.Interval(0, sympy.oo)
        return found | _mirrored(found)

    def _points(self, items: list[str]) -> RealSet | None:
        values = [self._value_of(item) for item in items]
        return sympy.FiniteSet(*values) if all(v is not None for v in values) else None

    def _interval(self, interval: Interval) -> RealSet | None:
        low = -sympy.oo if interval.low is None else self._value_of(interval.low)
        high = sympy.oo if interval.high is None else self._value_of(interval.high)
        if interval.variable:
            self.variables.add(interval.variable)
        if low is None or high is None or low > high:
            return None  # `(2, 1)` is a mistake, not the empty set
        return sympy.Interval(low, high, not interval.low_closed, not interval.high_closed)


def _difference(first: RealSet, *others: RealSet) -> RealSet:
    for other in others:
        first = first - other
    return first


def _mirrored(found: RealSet) -> RealSet:
    if isinstance(found, sympy.Interval):
        return sympy.Interval(-found.end, -found.start, found.right_open, found.left_open)
    return sympy.FiniteSet(*(-value for value in found))
