"""Several answers in one span: lists, sets, intervals, tuples, plus-minus."""

from __future__ import annotations

import re
from typing import NamedTuple

from .fractions_and_decimals import read_plain
from .notation import closes_at, plain, split_top

# --- Intervals ------------------------------------------------------------------------

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


# --- Lists ----------------------------------------------------------------------------

MAX_ITEMS = 64  # unordered matching tries every pair
_OR = re.compile(r"\s*,?\s*(?:\b(?:or|and)\b|;)\s*")
_BUILDER = re.compile(r"\\\{\s*[a-zA-Z]\s*(?:\\in[^|:]*)?[|:]")
_COMMA = re.compile(r"\s*,\s*(?:and\b|or\b)?\s*")
_SPACED_COMMA = re.compile(r"\s*,\s+(?:and\b|or\b)?\s*")
UNION = re.compile(r"\s*(?:\\cup(?![a-zA-Z])|(?<=[\])}])\s*\bU\b)\s*")
_SETS = {"union": UNION, "intersection": re.compile(r"\s*\\cap(?![a-zA-Z])\s*")}
_PART = re.compile(r"(?:\A|[,;]\s*(?:and )?|\band )\(?(\d|[a-e]|i{1,3})\)\s+(?=\S)")
_PART_LABELS = (("1", "2", "3", "4", "5"), ("a", "b", "c", "d", "e"), ("i", "ii", "iii"))


def read_collection(text: str) -> AnswerCollection | None:
    """The answers in a span, None if it contains only one."""
    if text.startswith("\\{") and closes_at(text, 1) == len(text) - 1:
        if _BUILDER.match(text):
            return None  # `\{x | x > 2\}` lists no members
        inside = text[2:-2].strip()
        return AnswerCollection("set", tuple(split_items(inside, bracketed=True)) if inside else ())
    if text[:1] in ("(", "[") and closes_at(text, 0) == len(text) - 1:
        items = split_items(text[1:-1], bracketed=True)
        if len(items) == 1 and text[0] == "(":
            return None
        return AnswerCollection(brackets(items[0], text[0], text[-1], items[-1]), tuple(items))
    if text.startswith("\\langle") and text.endswith("\\rangle"):
        return AnswerCollection("<>", tuple(split_items(text[7:-7], bracketed=True)))
    items = split_items(text)
    if len(items) > 1:
        return AnswerCollection("list", tuple(items))
    signs = plus_minus(text)
    return AnswerCollection("list", signs) if signs else None


def read_set(text: str) -> AnswerCollection | None:
    """The sets of a union, or an inequality in one variable as its ends in their brackets."""
    for kind, sign in _SETS.items():
        if len(pieces := split_top(text, sign)) > 1:
            return AnswerCollection(kind, tuple(pieces))
    return read_inequality(text)


def read_parts(text: str) -> AnswerCollection | None:
    """The answers to the parts of a question, labelled from the first on: `a) 5, b) 12`."""
    if ")" not in text or len(labels := list(_PART.finditer(text))) < 2 or labels[0].start():
        return None
    if tuple(each[1] for each in labels) not in [each[: len(labels)] for each in _PART_LABELS]:
        return None
    ends = [each.start() for each in labels[1:]] + [len(text)]
    items = (text[each.end() : end].strip() for each, end in zip(labels, ends, strict=True))
    return AnswerCollection("parts", tuple(items))


def split_items(text: str, *, bracketed: bool = False) -> list[str]:
    """`1,000` is one member of a list, `1, 000` and `1,2` are two.

    In brackets a comma separates, so that `(2,251,252)` is a point; it groups thousands only beside
    commas with a space, as in `(1,000, 2,000)` and not in `(1,7,103, 105)`.
    """
    if bracketed and not _groups_thousands(text):
        pieces = [p for part in split_top(text, _OR) for p in split_top(part, _COMMA)]
        return pieces if len(pieces) <= MAX_ITEMS else [text]
    if read_plain(text):
        return [text]
    pieces = list[str]()
    for part in split_top(text, _OR):
        comma = (
            _SPACED_COMMA
            if re.search(r",\s", part) and re.search(r"\d,\d{3}(?!\d)", part)
            else _COMMA
        )
        pieces += [part] if read_plain(part) else split_top(part, comma)
    return pieces if len(pieces) <= MAX_ITEMS else [text]


def _groups_thousands(text: str) -> bool:
    pieces = split_top(text, _SPACED_COMMA)
    return len(pieces) > 1 and all(read_plain(p) or "," not in p for p in pieces)


def plus_minus(text: str) -> tuple[str, str] | None:
    if not re.search(r"\\(?:pm|mp)(?![a-zA-Z])", text):
        return None
    up = re.sub(r"\\mp(?![a-zA-Z])", "-", re.sub(r"\\pm(?![a-zA-Z])", "+", text))
    down = re.sub(r"\\mp(?![a-zA-Z])", "+", re.sub(r"\\pm(?![a-zA-Z])", "-", text))
    return re.sub(r"^\s*\+|(?<==)\s*\+", "", up), down


def as_tuple(text: str) -> str:
    """A list whose order counts: `1, 2` as `(1, 2)`; names such as `x=1, y=2` give their own."""
    found = read_collection(plain(text)) if "," in text and "=" not in text else None
    return f"({', '.join(found.items)})" if found and found.kind == "list" else text
