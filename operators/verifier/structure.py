r"""Answers that are more than a number: lists, sets, tuples, intervals, matrices, relations.

`same(answer, reference, leaf)` compares structure first and leaves last, so that no parser can
confuse two structures: `(1,2)` is not `[1,2]`, `42 or 43` is not 42, `x \ge 2` not `x > 2`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import chain

from .fractions_and_decimals import Number, read_plain, read_simple, refusal, same_number
from .lists import (
    INFINITY,
    LETTER,
    MAX_ITEMS,
    NOT_NAMES,
    OPERATION,
    ORDER,
    AnswerCollection,
    condition,
    plus_minus,
    read_collection,
    read_parts,
    read_set,
    split_items,
)  # fmt: skip
from .notation import closes_at, plain, split_top
from .units import split_unit

# --- Values with their rounding: `10\pi \approx 31.4` ---------------------------------

_APPROXIMATELY = re.compile(r"\s*\\approx(?![a-zA-Z])\s*")


def _stated(text: str) -> list[str]:
    r"""What `10\pi \approx 31.4` or `x \approx 11` states; nothing if its numbers disagree.

    Of a formula, the rounding does not count, because it is not checked.
    """
    value, *rounded = split_top(text, _APPROXIMATELY)
    if len(rounded) == 1 and is_name(value):
        value = rounded.pop()
    decimals = [number for each in rounded if (number := read_plain(each)) and number.digits]
    exact = read_plain(value)
    if len(decimals) < len(rounded) or (exact and not all(_rounds(exact, d) for d in decimals)):
        return []
    return [value, *rounded] if exact else [value]


def _rounds(exact: Number, rounded: Number) -> bool:
    more, unit = abs(exact.value) - abs(rounded.value), rounded.ulp or 1
    return exact.value * rounded.value >= 0 and -unit / 2 <= more < unit


# --- Rows and cells of matrices and of definitions by cases ---------------------------

ENVIRONMENT = "\\begin"
_MATRIX = re.compile(r"\\begin\{([pbBv]?)(?:small)?matrix\}(.*?)\\end\{[a-zA-Z]*\}$", re.DOTALL)
_CASE_MARK = re.compile(r"\\(?:begin|end)\{[dr]?cases\}|\b(?:if|when|where|for)\b|[\s&,.;{}]|\\$")
_ROW = re.compile(r"\\\\(?:\[[^\]]*\])?")


def read_matrix(text: str) -> AnswerCollection | None:
    """The cells of a matrix, row by row; None for anything else, such as a product of two."""
    text = text.strip()
    if text[:1] in ("[", "(") and text[1:].lstrip(" {").startswith(ENVIRONMENT):
        text = text[1:-1].strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    found = _MATRIX.match(text)
    if not found or found[1] == "v" or ENVIRONMENT in found[2]:
        return None  # bars denote a determinant: a number, left to the symbolic tier
    rows = [row.split("&") for row in _ROW.split(found[2]) if row.strip()]
    # As one cell, `1, 2` would be a list, whose order is free.
    cells = [[item for cell in row for item in split_items(cell.strip())] for row in rows]
    return AnswerCollection(f"matrix {[*map(len, cells)]}", tuple(chain.from_iterable(cells)))


# --- Names of answers: `x`, `f(2)`, `Area`, `\frac{AB}{CD}` ---------------------------

_FUNCTION = (
    r"(?!(?:sin|cos|tan|cot|sec|csc|log|ln|exp)(?![a-z]))(?:[A-Za-z]{1,3}"
    r"|(?:[A-Za-z]|\\(?:[Pp]hi|varphi|[Pp]si|[Gg]amma|[Ss]igma|[Tt]heta))"
    r"(?:_(?:\{[^{}]*\}|\w))?)'*(?:\s*\^\s*\{\s*-1\s*\})?(?:\s*\([^()=]*\))"
)
_TERM = rf"(?:[A-Z]{{2,3}}|{LETTER})"
# The last two lines: a ratio, a length, an inverse or a derivative of names. In two unknowns an
# equation has no other reading.
_NAME = re.compile(
    rf"(?:{_FUNCTION}|{LETTER}|\\(?:det|dim)\s*\(?[A-Z]\)?|[A-Za-z][A-Za-z ]{{1,40}}"
    r"|m?\\angle\s?[A-Z]+|[A-Z]{{2,3}}"
    rf"|\\(?:overline|vec|hat|bar)\s*\{{\s*[A-Za-z]+\s*\}}"
    rf"|\([a-zA-Z](?:\s*,\s*[a-zA-Z])+\)|{LETTER}(?:\s*[+-]\s*{LETTER}){{1,4}}"
    rf"|{_TERM}(?:\s*[:/]\s*{_TERM})+|\\frac\{{{_TERM}\}}\{{{_TERM}\}}|\|\s*[A-Z]{{2,3}}\s*\|"
    r"|[A-Z]\^\{-1\}|\\frac\{d[a-zA-Z]\}\{d[a-z]\})$"
)
_OF_X = re.compile(r"[a-zA-Z]\(x\)$")


def is_name(text: str) -> bool:
    """A name of an answer (`x`, `f(2)`, `Area`), not mathematics."""
    return bool(_NAME.match(text)) and text not in NOT_NAMES


def _have_other_names(a: str, b: str) -> bool:
    """Whether `y = 2x + 1` and `x = 2y + 1` are different lines although the values look equal."""
    if a.replace(" ", "") == b.replace(" ", "") or any(map(_WORD.match, (a, b))):
        return False
    return "y" not in (a, b) or not any(map(_OF_X.match, (a, b)))


# --- As far as it is decidable without computer algebra -------------------------------


class UndecidedError(Exception):
    """The exact tier cannot decide: a leaf is not a number."""


_PRIME = re.compile(r"'(?!\d)|\\prime(?![a-zA-Z])")
_MISSING = frozenset(
    {"nan", "inf", "none", "null", "n/a", "<na>", "proof", "notfound", "not found", "tbd"}
    | {"not provided", "no answer", "see solution", "see below", "omitted", "unknown"}
)
_TEXT = re.compile(r"\\text\{([^{}]*)\}")


def is_missing(reference: str) -> bool:
    """Such as `nan` or `None`."""
    if len(reference) >= 20:
        return False
    text = _TEXT.fullmatch(reference.strip())
    return (text[1] if text else reference).strip(" .").lower().lstrip("+-") in _MISSING


def is_nothing(text: str) -> bool:
    """Whether a text says that there is no value: an empty set, `DNE`."""
    return bool(_EMPTY.fullmatch(text) or _UNDEFINED.fullmatch(text))


def exactly(answer: str, reference: str) -> bool | None:
    """True or False if numbers and structure decide, None if the symbolic tier must.

    An answer over the limits is wrong if the reference is within them: the limits are part of the
    definition of an answer, so most pathological answers earn a 0 and not a missing reward. An
    answer within the limits whose evaluation never ends is still a timeout.
    """
    if answer == reference:
        return None if not answer.isdecimal() and is_missing(reference) else True
    if answer.isdecimal() and reference.isdecimal() and len(answer) + len(reference) < 300:
        return int(answer) == int(reference)
    if (a := read_simple(answer)) and (b := read_simple(reference)):
        return same_number(a, b)
    if is_missing(reference) or refusal(reference):
        return None
    if refusal(answer):
        return False

    try:
        return same(plain(answer), plain(reference), _exact_leaf)
    except UndecidedError:
        return None


def _exact_leaf(answer: str, reference: str) -> bool:
    a, b = read_plain(answer), read_plain(reference)
    if a and b:
        return same_number(a, b)

    if is_prose(answer) or is_prose(reference):
        return False
    if len(_PRIME.findall(answer)) != len(_PRIME.findall(reference)):
        return False  # the parser ignores primes: `42'` would be 42
    raise UndecidedError


# --- Structure ------------------------------------------------------------------------

SameLeaf = Callable[[str, str], bool]
_EQUALS = re.compile(r"\s*(?<![<>!])=\s*")
_SEPARATOR = re.compile(r",|;|\b(?:or|and)\b|\\c[au]p(?![a-zA-Z])")
_STEPS = re.compile(r"\s*(?:(?<![<>!])=|\\(?:implies|Rightarrow)(?![a-zA-Z]))\s*")
_MEMBER = re.compile(r"([a-zA-Z])\s*\\in(?![a-zA-Z])\s*(.+)$", re.DOTALL)
_POINT_NAME = re.compile(r"\(([a-z](?:\s*,\s*[a-z])+)\)\s*=\s*")
_FREE = re.compile(r"\+ ?(?:[CKck]|C_\{?\d\}?)$")
_IN_WORDS = re.compile(r"[A-Za-z]{2,}(?:[ .-]+[A-Za-z]{2,})*[.]?$")
_PARAMETER = re.compile(
    r"\s*(?:[,;]\s*(?:where|for|with)?|\b(?:where|for|with)|\()\s*([a-zA-Z])\s*\\in\s*"
    r"(?:\\mathbb\s*(?:\{\s*Z\s*\}|Z)|Z|ℤ)\)?$"
)
_WORD = re.compile(r"[A-Za-z]{3,}$")
_EMPTY = re.compile(
    r"\\emptyset|\\\{ ?\\\}|no (?:real )?solutions?|(?:the )?empty set|null set", re.IGNORECASE
)
_UNDEFINED = re.compile("dne|undefined|does not exist", re.IGNORECASE)
_RATIO = re.compile(r"(\d+(?:\.\d+)?)\s*(?::|\bto\b)\s*(\d+(?:\.\d+)?)(?:\s*:\s*(\d+(?:\.\d+)?))?$")
_PROSE = re.compile(
    r"(?<![\\A-Za-z])(?:[A-Za-z]{4,}|yes|no|not|or|and|true|none"
    r"|may|jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec)(?![A-Za-z])",
    re.IGNORECASE,
)
_SHORT_WORD = re.compile(r"[A-Za-z]{3}$")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-zA-Z]+\}")
_MATHS_WORD = re.compile(
    r"sqrt|sinh|cosh|tanh|arc(?:sin|cos|tan)|\ba(?:sin|cos|tan)h?\b", re.IGNORECASE
)


def is_prose(text: str) -> bool:
    """Whether a leaf is words rather than mathematics, apart from a unit at its end."""
    if not text.isascii():
        from .phrases import has_foreign_words

        if has_foreign_words(split_unit(text)[0]):
            return True
    return bool(_PROSE.search(_MATHS_WORD.sub("", _ENVIRONMENT.sub("", split_unit(text)[0]))))


def same(answer: str, reference: str, leaf: SameLeaf) -> bool:
    """Whether two spans in plain notation are the same answer. `leaf` compares two spans without
    structure; it raises if it cannot."""
    answer, reference = unwrap(answer), unwrap(reference)
    if (free := _FREE.search(reference)) and (named := _FREE.search(answer)):
        answer = answer[: named.start()] + free[0]  # The name of a free constant does not matter.
    if free := _PARAMETER.search(reference):
        reference = reference[: free.start()]
        if named := _PARAMETER.search(answer):
            its_name = rf"(?<![\\A-Za-z]){named[1]}(?![A-Za-z])"
            answer = re.sub(its_name, free[1], answer[: named.start()])
    if answer == reference:
        return bool(answer)
    a, b = read_plain(answer), read_plain(reference)
    if a and b:
        return leaf(answer, reference)
    if "\\approx" in answer or "\\approx" in reference:
        wanted = split_top(reference, _APPROXIMATELY)
        return any(same(p, q, leaf) for p in _stated(answer) for q in wanted)
    if ("=" in answer) != ("=" in reference):
        left, right = _unnamed(answer), _unnamed(reference)
        if (left, right) != (answer, reference):
            return same(left, right, leaf)
    for rule in (_as_nothing, _as_ratio, _as_cases, _as_collections, _as_relation):
        verdict = rule(answer, reference, leaf)
        if verdict is not None:
            return verdict
    return _as_leaf(answer, reference, leaf)


def parts(text: str) -> list[str]:
    """The leaves of a span: items, ends of intervals, cells; the span itself if it has none."""
    text = _PARAMETER.sub("", unwrap(text))
    found = _collection(text)
    return [leaf for item in found.items for leaf in parts(item)] if found else [text]


def _collection(text: str) -> AnswerCollection | None:
    member = _MEMBER.match(text)
    text = condition(member[2] if member else text)
    found = read_parts(text) or read_matrix(text) or read_set(text) or read_collection(text)
    return found._replace(name=member[1]) if found and member else found


def unwrap(text: str) -> str:
    """The span without redundant round brackets, and without the name of a point."""
    text = text.strip()
    if (named := _POINT_NAME.match(text)) and (names := re.findall("[a-z]", named[1])) == sorted(
        names
    ):
        text = text[named.end() :]
    if ORDER.search(text) or OPERATION.search(text):  # `x < 1 or x > 2` is a union
        text = re.sub(r"\bor\b", r"\\cup", re.sub(r",?\s*\band\b", r" \\cap", text))
    while text.startswith("(") and closes_at(text, 0) == len(text) - 1:
        inner = text[1:-1].strip()
        if text[-1] != ")" or (
            len(split_items(inner, bracketed=True)) > 1 and not read_plain(text)
        ):
            break
        text = inner
    return text


def _as_nothing(a: str, b: str, leaf: SameLeaf) -> bool | None:
    for pattern in (_EMPTY, _UNDEFINED, INFINITY):
        x, y = pattern.fullmatch(a), pattern.fullmatch(b)
        if x or y:
            return bool(x and y and (x[0][0] == "-") == (y[0][0] == "-"))
    return None


def _as_ratio(a: str, b: str, leaf: SameLeaf) -> bool | None:
    x, y = (_RATIO.match(text) for text in (a, b))
    if not (x and y):
        return False if x or y else None
    p, q = ([Fraction(term) for term in m.groups() if term] for m in (x, y))
    return len(p) == len(q) and all(m * q[0] == n * p[0] for m, n in zip(p, q, strict=True))


def _as_cases(a: str, b: str, leaf: SameLeaf) -> bool | None:
    if "cases}" not in a and "cases}" not in b:
        return None
    x, y = ({_CASE_MARK.sub("", row) for row in _ROW.split(text)} for text in (a, b))
    return x == y


# --- Collections ----------------------------------------------------------------------


def _as_collections(a: str, b: str, leaf: SameLeaf) -> bool | None:
    """Items one by one; what operations make of sets or of matrices is for `leaf`."""
    p, q = _collection(a), _collection(b)
    x, y = (found or AnswerCollection("one", (text,)) for found, text in ((p, a), (q, b)))
    # `2x > 6` is to be compared with `x > 3` as a relation, `6` is not.
    is_relation = bool(p) != bool(q) and (x.name or y.name) and all(map(ORDER.search, (a, b)))
    verdict = _same_collections(x, y, leaf) if (p or q) and not is_relation else None
    is_made = OPERATION.search(a) or OPERATION.search(b)
    are_matrices = bool(p) != bool(q) and ENVIRONMENT in a and ENVIRONMENT in b
    return leaf(a, b) if not verdict and (is_made or are_matrices) else verdict


def _same_collections(a: AnswerCollection, b: AnswerCollection, leaf: SameLeaf) -> bool:
    kinds, loose = {a.kind, b.kind}, {"list", "set", "one"}
    if a.name and b.name and a.name != b.name:
        return False
    if kinds & {"union", "intersection"}:
        return a.kind == b.kind and _same_set(a.items, b.items, leaf)
    if "parts" in kinds:
        return _same_sequence(a.items, b.items, leaf)
    if b.kind == "list" and len(set(b.items)) < len(b.items) and len(a.items) != len(b.items):
        return False  # 2, 5 for 2, 2, 5
    x, y = (_named(each.items) if each.kind in loose else None for each in (a, b))
    if x and y:
        return x.keys() == y.keys() and all(same(x[k], y[k], leaf) for k in x)
    # Brackets imply an order, as names such as `x=1, y=2` do, and not those of `x_1=1, x_2=2`.
    if (x or y) and kinds <= loose | {"()"} and not (a.name or b.name):
        left = [x[name] for name in sorted(x)] if x else a.items
        right = [y[name] for name in sorted(y)] if y else b.items
        stems = {each.partition("_")[0] for each in x or y or ()}
        is_free = kinds <= loose and len(stems) == 1 and stems <= {"x", "z", "t", "r", r"\lambda"}
        return (_same_set if is_free else _same_sequence)(left, right, leaf)
    if not kinds <= loose:  # A list of two has no brackets, for it could be a point or an interval.
        is_list = "list" in kinds and kinds <= {"list", "()", "[]"} and len(b.items) != 2
        return (a.kind == b.kind or is_list) and _same_sequence(a.items, b.items, leaf)
    expand = [tuple(e for item in g.items for e in (plus_minus(item) or (item,))) for g in (a, b)]
    return _same_set(expand[0], expand[1], leaf)


def _named(items: Sequence[str]) -> dict[str, str] | None:
    pairs = [split_top(item, _EQUALS) for item in items]
    if len(items) < 2 or any(len(p) != 2 or not is_name(p[0]) for p in pairs):
        return None
    values = {pair[0]: pair[1] for pair in pairs}
    return values if len(values) == len(items) else None


def _same_sequence(a: Sequence[str], b: Sequence[str], leaf: SameLeaf) -> bool:
    return len(a) == len(b) and all(same(p, q, leaf) for p, q in zip(a, b, strict=True))


def _same_set(a: Sequence[str], b: Sequence[str], leaf: SameLeaf) -> bool:
    if max(len(a), len(b)) > MAX_ITEMS or not a or not b:
        return not a and not b
    covered = all(any(same(p, q, leaf) for q in b) for p in a)
    return covered and all(any(same(p, q, leaf) for p in a) for q in b)


# --- relations and leaves -------------------------------------------------------------


def _unnamed(text: str) -> str:
    """The value of `x = 3`, `x = y = z = 3` or `\\frac{AB}{CD} = 3`, any other text unchanged."""
    *names, value = split_top(text, _EQUALS)
    several = ENVIRONMENT not in text and len(split_top(text, _SEPARATOR)) > 1
    # Names of coordinates have an order, which `_POINT_NAME` reads.
    are_names = all(is_name(name) and name[0] != "(" for name in names)
    return value if are_names and not several else text


def _as_relation(a: str, b: str, leaf: SameLeaf) -> bool | None:
    x, y = split_top(a, _EQUALS), split_top(b, _EQUALS)
    if len(x) == 1 == len(y):
        return _as_ordering(a, b, leaf)
    steps = split_top(a, _STEPS)
    values = steps[1:] if is_name(steps[0]) else steps
    if len(values) > 1 and len(y) == 1:  # `10^3 = 1000`, not `6 \\cdot 8 = 42` or `0 = 0`
        return len(set(values)) > 1 and all(same(v, b, leaf) for v in reversed(values))
    left, right = _value(x), _value(y)
    is_equation = min(len(x), len(y)) > 1 and _have_other_names(x[0], y[0])
    if left is None or right is None or is_equation:
        return len(x) == 2 == len(y) and leaf(a, b)
    return same(left, right, leaf)


def _as_ordering(a: str, b: str, leaf: SameLeaf) -> bool | None:
    """`a > b > c` against another order of as many terms, term by term."""
    x, y = ORDER.split(a), ORDER.split(b)
    if len(x) < 5 or len(x) != len(y):
        return None
    return x[1::2] == y[1::2] and _same_sequence(x[::2], y[::2], leaf)


def _value(chain: list[str]) -> str | None:
    """The final value of `x = 1 + 2 = 3`; None if the chain is an equation to compare."""
    *steps, value = chain
    shown = steps[1:] if steps and is_name(steps[0]) else steps
    # `x = 41 = 42` is no answer: numerals of a chain agree, or it has no value.
    numbers = [n for n in map(read_plain, (*shown, value)) if n]
    differ = any(not same_number(n, numbers[0]) for n in numbers)
    is_sum = bool(shown) and shown == steps and read_plain(steps[0])
    return None if differ or is_sum or any(map(_has_letters, shown)) else value


def _has_letters(text: str) -> bool:
    return bool(re.search(r"(?<![\\a-zA-Z])[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", " ", text)))


def _as_leaf(a: str, b: str, leaf: SameLeaf) -> bool:
    x, y = (_words(s) for s in (a, b))
    if x == y:
        return bool(x)
    if is_prose(a) or is_prose(b) or (_SHORT_WORD.match(a) and _SHORT_WORD.match(b)):
        return False  # "cat" is not a product of three variables, or it would equal "act"
    return leaf(a, b)


def _words(text: str) -> str:
    # Letters in mathematics are names: x and X differ, and LC is a product.
    in_words = _IN_WORDS.match(text) and not re.fullmatch(r"[A-Z]{2}", text)
    text = text.lower() if in_words or is_prose(text) else text
    marks = "[.,!]" if is_prose(text) else "[.,]"  # after a letter `!` is a factorial
    text = re.sub(rf"(?<=[a-z]){marks}(?=\s|$)|^(?:the|an?)\s(?=\w)", "", text)
    return " ".join(text.split())
