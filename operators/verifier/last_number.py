r"""The last number of a text, as an answer, or the mathematical expression that contains it.

A number next to an operator, an exponent, a bracket with something before it or a word that changes
its value is part of an expression, and the whole expression is the answer (`3^{2}` is 9, `x^{9}` is
not a number).
"""

from __future__ import annotations

import re

from .end_of_turn import begins_item
from .phrases import phrases_of
from .words import ASCII_MAGNITUDES, MAGNITUDES, listed

_REACH = 1_000  # characters of an expression on either side; the limits refuse longer ones

_NUMBER = re.compile(
    r"(?<![\d.,])(?:(?<![\w.,^)}\]!])[-–−]\s?)?(?:(?:\\?\$|[€£])\s?)?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?(?:\s?\\?%)?"
)
# Digits in a name (H2O, covid-19, utf8) are not a number.
_IN_A_NAME = re.compile(
    r"(?:[A-Za-z]\w*[A-Za-z]|[A-Z])[\d.]*\Z|[A-Za-z]{2}-\Z"
    # Nor are exponents of units.
    r"|\d ?[A-Za-z]{2,}\^\{?\Z|\d [mgsl]\^\{?\Z|\\(?:text|mathrm)\{[^{}]*\}\^\{?\Z"
)
_CHANGING = frozenset(
    {
        *MAGNITUDES,
        *(f"{word}s" for word in MAGNITUDES),
        *listed("squared cubed factorial percent halves thirds fourths fifths sixths sevenths"),
        *listed("eighths ninths tenths hundredths thousandths millionths millionth thousandth"),
        *listed("k K M B bn mil"),
        *(word for each in ASCII_MAGNITUDES if each != "bin" for word in (each, each.title())),
    }
)
_JOINING = frozenset(
    listed("or to and of mod modulo plus minus times over choose point remainder versus vs x R r")
)
_LEADING = frozenset(
    listed("sin cos tan cot sec csc log ln lg exp sqrt root mod modulo plus times power than")
)
_BRACKETED = re.compile(r"[(\[]\s*(\d+(?:\.\d+)?|\d{1,3}(?:,\d{3})+)\s*[)\]]")
_NEGATED = re.compile(
    r"(?:\bnegative|(?:^|\b(?:is|are|was|be|to|of|equals|answer)|[:=])[\s*$]*\bminus)\s?[*$]{0,2}$",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"(?<!\\)\$([^$]{0,200}[\\^][^$]{0,200}?)(?<!\\)\$|\\\((.{1,400}?)\\\)")
_DELIMITED = re.compile(r"(?<!\\)\$(?=[^\s$])([^$\n]{0,200}?)(?<=\S)(?<!\\)\$(?!\d)|\\\(|\\\)")


def _any(words: frozenset[str]) -> str:
    return rf"(?<![A-Za-z\\])(?:{'|'.join(sorted(words))})(?![A-Za-z])"


_PIECES = "|".join(
    [
        r"(?:\\?\$|[€£])?\d(?:\d|[.,](?=\d))*(?:[eE][+-]?\d+)?(?:st|nd|rd|th)?|\.\d+",
        r"\\(?!(?:text|mathrm|mbox|approx|to|q?quad|[rR]ightarrow|implies|therefore|[fb]?boxed?)\b)"
        r"(?:[a-zA-Z]+|[{}%,;:! ])",
        r"[()\[\]{}^+≤≥≠×÷·⋅∕⁄/√±∓∛%°⁰¹²³⁴⁵⁶⁷⁸⁹½¼¾_]|\*{1,2}",
        r"(?<![A-Za-z]{2})(?<!-)[-–−](?![->])",
        r"(?<![-=<>])(?:<(?![<>/]|[a-zA-Z]+>)|(?<!<[a-z])(?<![a-zA-Z]{2})>(?!>))",
        r"(?<=[\d)}\]$%a-zA-Z]),(?= ?(?:[-\\$(\[{\d]|or ))|(?<=\d)[:'’′](?=\d)",
        r"(?<=[\w)}\]])!|[A-Za-z]{2,}(?=\()",
        r"(?<=[\d)}\]*])(?: ?[aAIgmshlLKJNWVCF])(?=[\^(*/])",
        r"(?<=\d)[A-Za-z]{1,2}(?![A-Za-z])|(?<![A-Za-z\\'’])[b-zB-HJ-Z](?![A-Za-z'’])",
        *map(_any, (_CHANGING, _JOINING, _LEADING)),
    ]
)
_RUN = re.compile(rf"(?:(?:{_PIECES})[ \t]*)+")
# What joins nothing is markdown, a bullet, a dash, or a word of the prose.
_WORDS = frozenset(word for word in _JOINING if len(word) > 1)
_NOTHING_BEFORE = re.compile(
    rf"\A[-*>] |[*_:,)}}\]!%\s]+|{_any(_WORDS - _LEADING)}|{_any(_CHANGING)}"
    r"|[A-Za-z](?= [\d$])"
)
_NOTHING_AFTER = re.compile(
    rf"(?:[-–−+*/_:,<>=(\[{{\s]|{_any(_WORDS | _LEADING)}|(?<=\s)[aAIgmshlLKJNWVCF])\Z"
)
_PARTNERS = {")": "(", "]": "[", "}": "{"}


def last_number(text: str) -> str | None:
    """The last number with sign, currency and percent mark, or the expression that contains it."""
    if (phrases := phrases_of(text)) is None:
        return english_number(text)
    from .other_languages import number as foreign_number

    return foreign_number(text, english_number, phrases)


def english_number(text: str) -> str | None:
    """The same by the rules for English, of a text in which they hold."""
    text = text.replace("=\n- ", "= -")  # a sign, and no bullet
    number = _last(text)
    if number is None:
        return None
    start = number.start()
    before = text[max(0, start - 60) : start]
    sign = "-" if ("inus" in before or "egative" in before) and _NEGATED.search(before) else ""
    return sign + _expression(text, number)


def _last(text: str) -> re.Match[str] | None:
    for number in reversed(list(_NUMBER.finditer(text))):
        if begins_item(text, *number.span()):
            continue
        if not number[0][0].isdigit() or not _IN_A_NAME.search(
            text, max(0, number.start() - 40), number.start()
        ):
            return number
    return None


def _expression(text: str, number: re.Match[str]) -> str:
    first = max(text.rfind("\n", 0, number.start() + 1) + 1, number.start() - _REACH)
    last = text.find("\n", number.end())
    last = min(last if last >= 0 else len(text), number.end() + _REACH)
    line = text[first:last]
    # Delimiters of formulas are not part of them; single dollar signs are money.
    flat = _DELIMITED.sub(lambda m: f" {m[1]} " if m[1] else " " * len(m[0]), line)
    at = max(i for i in range(number.start(), number.end()) if text[i].isdigit()) - first
    run = next((each for each in _RUN.finditer(flat) if each.start() <= at < each.end()), None)
    if run is None:
        return number[0].strip()
    begin, end = _trimmed(flat, *run.span(), at)
    for formula in _FORMULA.finditer(line):
        if formula.start() <= begin and end <= formula.end():
            return next(body for body in formula.groups() if body).strip()
    found = flat[begin:end].strip()
    alone = _BRACKETED.fullmatch(found)
    return alone[1] if alone else found


def _trimmed(text: str, begin: int, end: int, at: int) -> tuple[int, int]:
    while True:
        opened, closed = _unpaired(text[begin:end])
        lead, rest = _NOTHING_BEFORE.match(text, begin, at), _NOTHING_AFTER.search(text, at, end)
        if lead:
            begin = lead.end()
        elif rest:
            end = rest.start()
        elif opened is not None and begin + opened < at:
            begin += opened + 1
        elif closed is not None and begin + closed > at:
            end = begin + closed
        else:
            return begin, end


def _unpaired(text: str) -> tuple[int | None, int | None]:
    """Where the last bracket opens that nothing closes, and the first closes that nothing opens."""
    opened = list[int]()
    for i, mark in enumerate(text):
        if mark in "([{":
            opened.append(i)
        elif mark in _PARTNERS:
            if not opened:
                return None, i
            opened.pop()
    return (opened[-1] if opened else None), None
