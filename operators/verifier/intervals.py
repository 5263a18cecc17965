"""Intervals, as brackets or as inequalities in one variable."""

from __future__ import annotations

import re
from typing import NamedTuple

from .notation import closes_at

LETTER = r"(?:[A-Za-z]|\\[a-zA-Z]{2,8})(?:_(?:\{[^{}]*\}|\w))?'*"
NOT_NAMES = frozenset({r"\pi", r"\infty", "i", "e"})
ORDER = re.compile(r"\s*(<|>|\\(?:le|ge)(?![a-zA-Z]))\s*")
TURNED = {">": "<", "\\ge": "\\le", "<": ">", "\\le": "\\ge"}
_VARIABLE = re.compile(LETTER + "$")
REALS = frozenset({r"\mathbb{R}", "all real numbers", "all reals", "all real x"})
# What makes a set of reals of others: computer algebra compares these.
OPERATION = re.compile(
    r"\\(?:cup|cap|setminus|backslash|ne)(?![a-zA-Z])|[\])}] ?- ?\\\{"
    r"|^\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]"
    r"|\|\s*[a-zA-Z]\s*\|\s*(?:[<>]|\\[lg]e)|(?:[<>]|\\[lg]e)\s*\|\s*[a-zA-Z]\s*\|"
)
INFINITY = re.compile(r"([+-]?)\s*(?:\\infty|\binfinity\b|\binf\b)$", re.IGNORECASE)


def condition(text: str) -> str:
    r"""The condition of a set-builder `\{x | x > 2\}`; any other text unchanged."""
    built = re.match(r"\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]\s*(.+)\\\}$", text)
    return built[1].strip() if built and closes_at(text, 1) == len(text) - 1 else text


class AnswerCollection(NamedTuple):
    """Several answers of a kind: `list`, `set`, `union`, or the pair of brackets, such as `(]`.

    An interval has its ends for items; `name` is the variable of an inequality.
    """

    kind: str
    items: tuple[str, ...]
    name: str = ""


def read_inequality(text: str) -> AnswerCollection | None:
    """`x > 2`, `3 < x`, `-1 \\le x < 1` with one plain variable; also all real numbers."""
    if text in REALS:
        return AnswerCollection("()", ("-\\infty", "\\infty"))
    parts = ORDER.split(text)
    if ">" in parts or "\\ge" in parts:
        parts = [TURNED.get(part, part) for part in reversed(parts)]
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
    kind = brackets(low, "(" if below == "<" else "[", ")" if above == "<" else "]", high)
    return AnswerCollection(kind, (low, high), name)


def brackets(low: str, opening: str, closing: str, high: str) -> str:
    """Those around two ends: round ones beside infinity."""
    return ("(" if INFINITY.match(low) else opening) + (")" if INFINITY.match(high) else closing)
