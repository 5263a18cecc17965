"""Intervals, as brackets or as inequalities in one variable."""

from __future__ import annotations

import re
from typing import NamedTuple

from .lists import split_items
from .notation import closes_at

LETTER = r"(?:[A-Za-z]|\\[a-zA-Z]{2,8})(?:_(?:\{[^{}]*\}|\w))?'*"
NOT_NAMES = frozenset({r"\pi", r"\infty", "i", "e"})
ORDER = re.compile(r"\s*(<|>|\\(?:le|ge)(?![a-zA-Z]))\s*")
_TURNED = {">": "<", "\\ge": "\\le", "<": ">", "\\le": "\\ge"}
_VARIABLE = re.compile(LETTER + "$")
REALS = frozenset({r"\mathbb{R}", "all real numbers", "all reals", "all real x"})
# What makes a set of reals of others: computer algebra compares these.
OPERATION = re.compile(
    r"\\(?:cup|cap|setminus|backslash|ne)(?![a-zA-Z])|[\])}] ?- ?\\\{"
    r"|^\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]"
    r"|\|\s*[a-zA-Z]\s*\|\s*(?:[<>]|\\[lg]e)|(?:[<>]|\\[lg]e)\s*\|\s*[a-zA-Z]\s*\|"
)
_MEMBER = re.compile(r"([a-zA-Z])\s*\\in(?![a-zA-Z])\s*(.+)$", re.DOTALL)
INFINITY = re.compile(r"([+-]?)\s*(?:\\infty|\binfinity\b|\binf\b)$", re.IGNORECASE)


class Interval(NamedTuple):
    """Closed or open at either end; None is infinity. `variable` is empty for brackets."""

    low: str | None = None
    low_closed: bool = False
    high: str | None = None
    high_closed: bool = False
    variable: str = ""


def read_interval(text: str) -> Interval | None:
    """One interval, maybe with a name (`x \\in [0, 1)`); a bracketed pair may also be a point."""
    member = _MEMBER.match(text)
    text = condition(member[2] if member else text)
    found = Interval() if text in REALS else bracketed(text) or ordered(text)
    return found._replace(variable=member[1]) if found and member else found


def condition(text: str) -> str:
    r"""The condition of a set-builder `\{x | x > 2\}`; any other text unchanged."""
    built = re.match(r"\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]\s*(.+)\\\}$", text)
    return built[1].strip() if built and closes_at(text, 1) == len(text) - 1 else text


def bracketed(text: str) -> Interval | None:
    """`[0, 1)`, which may also be a point."""
    if text[:1] not in ("(", "[") or closes_at(text, 0) != len(text) - 1:
        return None
    ends = split_items(text[1:-1], bracketed=True)
    signs = [found and found[1] for found in map(INFINITY.match, ends)]
    if len(ends) != 2 or text[-1] not in ")]" or signs[0] in ("", "+") or signs[1] == "-":
        return None
    return _between(ends[0], text[0] == "[", ends[1], text[-1] == "]")


def ordered(text: str) -> Interval | None:
    """`x > 2`, `3 < x`, `-1 \\le x < 1` with one plain variable."""
    parts = ORDER.split(text)
    if ">" in parts or "\\ge" in parts:
        parts = [_TURNED.get(part, part) for part in reversed(parts)]
    are_names = [bool(_VARIABLE.match(t)) and t not in NOT_NAMES for t in parts[::2]]
    if are_names == [True, False]:
        parts = ["-\\infty", "<", *parts]
    elif are_names == [False, True]:
        parts = [*parts, "<", "\\infty"]
    elif len(parts) != 5 or not are_names[1]:
        return None
    low, below, name, above, high = parts
    if not {below, above} <= {"<", "\\le"}:
        return None
    return _between(low, below == "\\le", high, above == "\\le", name)


def _between(low: str, low_closed: bool, high: str, high_closed: bool, name: str = "") -> Interval:
    lowest, highest = (bool(INFINITY.match(end)) for end in (low, high))
    return Interval(
        None if lowest else low,
        low_closed and not lowest,
        None if highest else high,
        high_closed and not highest,
        name,
    )
