r"""The last number of a text, as an answer, or the mathematical expression that contains it.

A number is isolated if it is surrounded by prose. A number next to an operator, an exponent, a
bracket with something before it or a word that changes its value is part of an expression, and
the whole expression is the answer (`3^{2}` is 9, `x^{9}` is not a number).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .end_of_turn import begins_item
from .phrases import is_hinted
from .units import read_unit
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
    listed("sin cos tan cot sec csc log ln lg exp sqrt root mod modulo plus times power")
)
_VARIABLES = frozenset("bcdefghijklmnopqrstuvwxyzBCDEFGHJKLMNOPQRSTUVWXYZ")
_UNIT_LETTERS = frozenset("aAIgmshlLKJNWVCF")
# The simple case, which most numbers are: prose on both sides.
_PROSE_BEFORE = re.compile(
    r"(?:^|>>|(?:^|[\s(])[A-Za-z]{2,}[.,:;?]? |[a-z)\d][.:;]? ?= ?)[-–−]?\s?(?:\\?\$|[€£])?\Z"
)
_PROSE_AFTER = re.compile(r"[.,;:?]*(?:$|\s*\n|[.;?]? (?=([A-Za-z]{2,})(?![\w^(\\])))")
# A hedge stays with its number ("not 20", "20 or 30", "20 to 30"), and so does an operation
# ("twice 4", "the root of 4", "4x + 2").
_HEDGED = re.compile(
    r"(?:\b(?:not|never|isn't|than|half of|twice|thrice|double|triple|(?:divided|multiplied) by"
    r"|(?:root|square|cube|power|multiple|factor|factorial|reciprocal|inverse|log|logarithm|sine"
    r"|cosine|tangent|third|quarter|fifth|tenth|percent|%) of)|between [\d$.,]+ and"
    r"|[\d$.,]+\*{0,2} (?:to|(?:[A-Za-z]+ )?or)|(?:[A-Za-z]+ )?\d[\d.,]* ?[-–])"
    r"(?: maybe| perhaps)?\s*[*$]{0,2}$"
)
# "If he gives 33 away, 12 are left": the comma ends a clause and is no list's.
_INTRODUCED = re.compile(
    r"(?:^|[.!?:\n]\s*)(?:(?:So|Then|Thus|Therefore|Hence|And|But),? )?(?:If|When|After|Once|Since"
    r"|Because|As"
    r"|With|Without|By|Of|Out of|From|Given|For|\w+ing) (?:[^,.;:\n]|[.,]\d)*\d(?:[^,.;:\n]"
    r"|[.,]\d)*, \Z"
)
_CLAUSE = 200
_COUNTS = re.compile(r"[*$]{0,3} [A-Za-z]{2}")
_LARGER = re.compile(r"\d[\d.,]* ?([A-Za-z]+),? (?:and )?\$?\Z")
_SMALLER = re.compile(r" ?([A-Za-z]+)")
_BRACKETED = re.compile(r"[(\[]\s*(\d+(?:\.\d+)?|\d{1,3}(?:,\d{3})+)\s*[)\]]")
_DENIED = re.compile(r"[\s*$]{1,3}(?:is|are) (?:not|wrong|incorrect)\b|[\s*$]{1,3}isn't\b")
_NEGATED = re.compile(
    r"(?:\bnegative|(?:^|\b(?:is|are|was|be|to|of|equals|answer)|[:=])[\s*$]*\bminus)\s?[*$]{0,2}$",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"(?<!\\)\$([^$]{0,200}[\\^][^$]{0,200}?)(?<!\\)\$|\\\((.{1,400}?)\\\)")
_DELIMITED = re.compile(r"(?<!\\)\$(?=[^\s$])([^$\n]{0,200}?)(?<=\S)(?<!\\)\$(?!\d)|\\\(|\\\)")
_TOKEN = re.compile(
    r"(?P<end><</?|>>|[-=]+>|→|⇒|</?[a-zA-Z]+>|<br|={1,3}|≈|~|\\(?:text|mathrm|mbox|approx|to"
    r"|q?quad"
    r"|rightarrow|Rightarrow|implies|therefore|left|right|boxed|fbox)(?![a-zA-Z])|\\[\\\[\]])"
    r"|(?P<gap>\s+|\\[,;:! ])"
    r"|(?P<join>(?<=\d)['’′](?=\d)"
    r"|\*\*(?=[\w({\\])|(?<!\*)\*(?!\*)|(?<!_)_(?!_)|[-+/^<>≤≥≠×÷·⋅∕⁄−–|:]"
    r"|\\(?:cdot|times|div|pm|mp|le|leq|ge|geq|ne|neq|lt|gt|mod|pmod|bmod|choose)(?![a-zA-Z]))"
    r"|(?P<lead>[√±∓∛]|\\[a-zA-Z]+)"
    r"|(?P<suffix>!|%|\\%|°|[⁰¹²³⁴⁵⁶⁷⁸⁹½¼¾]+)"
    r"|(?P<number>(?:\\?\$|[€£])?\s?\d(?:\d|[.,](?=\d))*(?:[eE][+-]?\d+)?(?:st|nd|rd"
    r"|th)?(?![A-Za-z\d])"
    r"|(?:\\?\$|[€£])?\d(?:\d|[.,](?=\d))*|\.\d+)"
    r"|(?P<word>[A-Za-z]+'?[A-Za-z]*)"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)|(?P<other>.)",
    re.DOTALL,
)


def last_number(text: str) -> str | None:
    """The last number with sign, currency and percent mark, or the expression that contains it."""
    if not text.isascii() or is_hinted(text):
        from .other_languages import number as foreign_number

        if (found := foreign_number(text, english_number)) is not None:
            return found.answer
    return english_number(text)


def english_number(text: str) -> str | None:
    """Return the same by the rules for English, of a text in which they hold."""
    number = _last(text)
    if number is None:
        return None
    start, end = number.span()
    before = text[max(0, start - 60) : start]
    if hedge := _HEDGED.search(before) or _compound(before, text[end : end + 20]):
        return _expression(text, number, start - len(hedge[0]))
    shown = number[0].strip()
    if ("inus" in before or "egative" in before) and _NEGATED.search(before):
        return "-" + _expression(text, number, start)
    if denied := _DENIED.match(text, end):
        return shown + denied[0]
    if (
        before.endswith(", ")
        and _COUNTS.match(text, end)
        and _INTRODUCED.search(text, max(0, start - _CLAUSE), start)
    ):
        return shown
    return shown if _is_isolated(text, number, before) else _expression(text, number, start)


def _last(text: str) -> re.Match[str] | None:
    for number in reversed(list(_NUMBER.finditer(text))):
        if begins_item(text, *number.span()):
            continue
        if not number[0][0].isdigit() or not _IN_A_NAME.search(
            text, max(0, number.start() - 40), number.start()
        ):
            return number
    return None


def _compound(before: str, after: str) -> re.Match[str] | None:
    """Return the `3 feet ` of `3 feet 5 inches`."""
    larger, smaller = _LARGER.search(before), _SMALLER.match(after)
    if not larger or not smaller:
        return None
    a, b = (read_unit(unit, attached=False) for unit in (larger[1], smaller[1]))
    if not (a and b and a.known and b.known) or a.known.dimension != b.known.dimension:
        return None
    return larger if a.known.scale > b.known.scale else None


def _is_isolated(text: str, number: re.Match[str], before: str) -> bool:
    after = _PROSE_AFTER.match(text, number.end())
    if not after or after[1] in _CHANGING or after[1] in _JOINING:
        return False
    prose = _PROSE_BEFORE.search(before)
    if not prose:
        return not before and number[0][0].isdigit()
    word = prose[0].strip(" .,:;?=()->$\\€£−–")
    return word not in _LEADING and word not in _JOINING and "," not in prose[0]


class _MathToken(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def _expression(text: str, number: re.Match[str], start: int) -> str:
    """Return the expression that a number is part of, from `start` or further left."""
    first = max(text.rfind("\n", 0, start + 1) + 1, start - _REACH)
    last = text.find("\n", number.end())
    last = min(last if last >= 0 else len(text), number.end() + _REACH)
    line = text[first:last]
    # Delimiters of formulas are not part of them; single dollar signs are money.
    flat = _DELIMITED.sub(lambda m: f" {m[1]} " if m[1] else " " * len(m[0]), line)
    tokens = [_MathToken(m.lastgroup or "", m[0], *m.span()) for m in _TOKEN.finditer(flat)]
    inside = [
        i
        for i, token in enumerate(tokens)
        if token.start < number.end() - first
        and token.end > number.start() - first
        and any(c.isdigit() for c in token.text)
    ]
    low, high = _MathRun(tokens).around(inside[0], inside[-1])
    begin, end = tokens[low].start, tokens[high].end
    for formula in _FORMULA.finditer(line):
        if formula.start() <= begin and end <= formula.end():
            return next(body for body in formula.groups() if body).strip()
    if start < number.start():
        begin = min(begin, start - first)
    found = flat[begin:end].strip()
    alone = _BRACKETED.fullmatch(found)
    return alone[1] if alone else found


class _MathRun:
    """Grows an expression from a number over adjacent tokens of its line."""

    def __init__(self, tokens: list[_MathToken]) -> None:
        self.tokens = tokens
        self.partners = dict[int, int]()
        opened = list[int]()
        for i, token in enumerate(tokens):
            if token.kind == "open":
                opened.append(i)
            elif token.kind == "close" and opened:
                self.partners[i] = opened[-1]
                self.partners[opened.pop()] = i

    def around(self, low: int, high: int) -> tuple[int, int]:
        """Return the first and the last token of the expression around these."""
        while True:
            left, right = min(low, self._left(low)), max(high, self._right(low, high))
            wider = self._bracketed(left, right)
            if wider == (low, high):
                return wider
            low, high = wider

    def _bracketed(self, low: int, high: int) -> tuple[int, int]:
        """Including the bracket that opens right before and closes right after."""
        before, after = self._skip(low, -1), self._skip(high, 1)
        if self._kind(before) == "open" and self.partners.get(before) == after:
            return before, after
        return low, high

    def _kind(self, i: int) -> str:
        return self.tokens[i].kind if 0 <= i < len(self.tokens) else ""

    def _skip(self, i: int, step: int) -> int:
        i += step
        while self._kind(i) == "gap":
            i += step
        return i

    def _left(self, low: int) -> int:
        i = self._skip(low, -1)
        kind, near = self._kind(i), i == low - 1
        if not kind:
            return low
        text = self.tokens[i].text
        if kind == "lead" or (kind == "word" and text in _LEADING):
            return i
        if kind == "join":
            return self._joined_left(i, low)
        joins = kind == "comma" or (kind == "word" and text in _JOINING)
        if joins and self._valued(self._skip(i, -1)):
            return self._operand_left(i)
        if near and kind in {"close", "suffix", "number"}:
            return self.partners.get(i, i)
        if near and kind == "word":
            bracket = self._kind(low) == "open"
            return i if len(text) < 4 or bracket else low
        lead = self._kind(low) == "lead"
        return i if lead and (kind == "number" or (kind == "word" and len(text) == 1)) else low

    def _joined_left(self, i: int, low: int) -> int:
        operand = self._skip(i, -1)
        kind, text = self._kind(operand), self.tokens[i].text
        touching = operand == i - 1
        named = text == "_" and touching and kind == "word"
        if text in {"*", "**", ":", "_"} and not named and not self._valued(operand):
            return low  # markdown, a label
        if text == ":" and not (touching and i == low - 1):
            return low
        if kind == "word" and touching and text in "-–−" and len(self.tokens[operand].text) > 1:
            return low  # covid-19
        if text in "-–−>*" and operand < 0 and (text in ">*" or i != low - 1):
            return low  # a bullet, a quotation
        if text == "|" and i != low - 1:
            return low  # a cell of a table
        return self._operand_left(i) if self._valued(operand) else i

    def _operand_left(self, i: int) -> int:
        operand = self._skip(i, -1)
        return self.partners.get(operand, operand)

    def _valued(self, i: int) -> bool:
        """Return whether a token may end the left operand of an operator."""
        kind = self._kind(i)
        if kind == "suffix" and self.tokens[i].text == "!":
            return self._kind(i + 1) != "gap"
        return kind in {"number", "close", "suffix", "lead"} or self._variable(i)

    def _variable(self, i: int) -> bool:
        return self._kind(i) == "word" and self.tokens[i].text in _VARIABLES

    def _right(self, low: int, high: int) -> int:
        i = self._skip(high, 1)
        kind, near = self._kind(i), i == high + 1
        if not kind:
            return high
        text = self.tokens[i].text
        if kind == "join":
            return self._joined_right(i, low, high)
        if kind == "lead" or (kind == "word" and text in _CHANGING):
            return i
        if near and kind in {"suffix", "number"}:
            return i
        if near and kind == "open":
            return self.partners.get(i, i)
        if kind == "suffix" and text != "!":
            return i
        if kind == "word" and text in _JOINING:
            operand = self._skip(i, 1)
            if self._kind(operand) in {"number", "lead"}:
                return operand
        if kind != "word":
            return high
        letter = len(text) == 1 and text not in _UNIT_LETTERS
        return i if letter or (near and self._kind(high) == "number" and len(text) < 3) else high

    def _joined_right(self, i: int, low: int, high: int) -> int:
        operand = self._skip(i, 1)
        near, touching = i == high + 1, operand == i + 1
        text = self.tokens[i].text
        starts = self._kind(operand) in {"number", "open", "lead"} or self._variable(operand)
        if not starts or (near and not touching and text in {"*", "_", ":", "-"}):
            # Markdown, a label, a dash, a rate; but the number of `5^` is never isolated.
            closes = text == "|" and self.tokens[low].text == "|"
            return i if near and (text == "^" or closes) else high
        if text in {":", "|"} and not (near and touching):
            return high
        return self.partners.get(operand, operand)
