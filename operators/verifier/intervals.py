"""Intervals, as brackets or as inequalities in one variable."""

from __future__ import annotations

import re
from typing import NamedTuple

from .lists import split_items
from .notation import closes_at, split_top

LETTER = r"(?:[A-Za-z]|\\[a-zA-Z]{2,8})(?:_(?:\{[^{}]*\}|\w))?'*"
NOT_NAMES = frozenset({r"\pi", r"\infty", "i", "e"})
_OR_ONLY = re.compile(r"\s*\bor\b\s*")
_UNION = re.compile(r"\s*(?:\\cup(?![a-zA-Z])|(?<=[\])])\s*\bU\b)\s*")
ORDER = re.compile(r"\s*(<|>|\\(?:le|ge)(?![a-zA-Z]))\s*")
REALS = frozenset({r"\mathbb{R}", "all real numbers", "all reals", "all real x"})
# What makes a set of reals of others: computer algebra compares these.
OPERATION = re.compile(
    r"\\(?:cup|cap|setminus|backslash|ne)(?![a-zA-Z])|(?:[<>|]|\\[lg]e).*\b(?:and|or)\b"
    r"|[\])}] ?- ?\\\{|^\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]"
    r"|\|\s*[a-zA-Z]\s*\|\s*(?:[<>]|\\[lg]e)|(?:[<>]|\\[lg]e)\s*\|\s*[a-zA-Z]\s*\|"
)
INFINITY = re.compile(r"([+-]?)\s*(?:\\infty|\binfinity\b|\binf\b)$", re.IGNORECASE)


class Interval(NamedTuple):
    """Closed or open at either end; None is infinity. `variable` is empty for brackets."""

    low: str | None
    low_closed: bool
    high: str | None
    high_closed: bool
    variable: str = ""


def read_intervals(text: str) -> list[Interval] | None:
    """Return the text as a union of intervals; a bracketed pair may also be a point."""
    member = re.match(r"([a-zA-Z])\s*\\in(?![a-zA-Z])\s*(.+)$", text, re.DOTALL)
    parts = [condition(p) for p in split_top(member[2] if member else text, _UNION)]
    if len(parts) == 1:
        if parts[0] in REALS:
            return [Interval(None, False, None, False)]
        if other := re.match(rf"{LETTER}\s*\\ne\s+(.+)$", parts[0]):
            return [Interval(None, False, other[1], False), Interval(other[1], False, None, False)]
        parts = split_top(parts[0], _OR_ONLY)
    found = [bracketed(p) or ordered(p) for p in parts]
    if not found or not all(found):
        return None
    name = member[1] if member else ""
    return [i._replace(variable=i.variable or name) for i in found if i]


def condition(text: str) -> str:
    r"""Return the condition of a set-builder `\{x | x > 2\}`; any other text unchanged."""
    built = re.match(r"\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]\s*(.+)\\\}$", text)
    return built[1].strip() if built and closes_at(text, 1) == len(text) - 1 else text


def bracketed(text: str) -> Interval | None:
    """`[0, 1)`, which may also be a point."""
    if text[:1] not in ("(", "[") or closes_at(text, 0) != len(text) - 1:
        return None
    ends = split_items(text[1:-1], bracketed=True)
    if len(ends) != 2 or text[-1] not in ")]":
        return None
    low, high = (None if INFINITY.match(e) else e for e in ends)
    if low is None and not ends[0].lstrip().startswith("-"):
        return None
    if high is None and ends[1].lstrip().startswith("-"):
        return None
    return Interval(
        low, text[0] == "[" and low is not None, high, text[-1] == "]" and high is not None
    )


def ordered(text: str) -> Interval | None:
    """`x > 2`, `3 < x`, `-1 \\le x < 1` with one plain variable."""
    parts = ORDER.split(text)
    signs = parts[1::2]
    if len(parts) not in (3, 5) or any(s in "<\\le" for s in signs) == any(
        s in ">\\ge" for s in signs
    ):
        return None
    if signs[0] in (">", "\\ge"):
        parts = parts[::-1]
        signs = [{">": "<", "\\ge": "\\le"}[s] for s in reversed(signs)]
    closed = [s == "\\le" for s in signs]
    terms = [p.strip() for p in parts[::2]]
    variable = re.compile(LETTER + "$")
    if len(terms) == 3:
        if not variable.match(terms[1]):
            return None
        low, high = (None if INFINITY.match(t) else t for t in (terms[0], terms[2]))
        return Interval(
            low, closed[0] and low is not None, high, closed[1] and high is not None, terms[1]
        )
    if variable.match(terms[0]) and terms[0] not in NOT_NAMES and not variable.match(terms[1]):
        return Interval(None, False, terms[1], closed[0], terms[0])
    if variable.match(terms[1]) and terms[1] not in NOT_NAMES and not variable.match(terms[0]):
        return Interval(terms[0], closed[0], None, False, terms[1])
    return None
