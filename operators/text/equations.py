"""Statements of arithmetic in a text, such as `12 + 5 = 17`, and whether they are true.

A statement is an equation between two expressions of numbers, of which one calculates something;
`2 + 3 = 5 + 1 = 6` has two statements, the first of them false. Numbers may have thousands
(`1,200`), decimals, a currency sign in front and `%` behind. What is not all numbers, such as
`x + 3 = 7`, is no statement.

Values are exact fractions. A result with decimals may be rounded or cut there: `10 / 3 = 3.33` is
true. A whole number may not: `10 / 3 = 3` is false. What double precision prints is as good as
exact: `0.1 + 0.2 = 0.30000000000000004` is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

# Beyond these nobody calculates in a text.
_LONGEST_PIECE = 200
_MOST_TOKENS = 40

_DOUBLE = Fraction(1, 10**12)  # as a share of the value
_RUN = re.compile(
    r"(?:[0-9.()+\-−–*/×÷·⋅xX$€£%=]|\\times|\\cdot|\\div)"
    r"(?:[0-9.,()+\-−–*/×÷·⋅xX$€£%= \t]|\\times|\\cdot|\\div)*"
)
_BREAK = re.compile(r"[.,](?:[ \t]+|$)")
_SIMPLE = re.compile(r"(\d{1,15}) ?([-+*/]) ?(\d{1,15}) ?= ?(\d{1,15})")
_TOKEN = re.compile(
    r"[ \t]*(?:([()+\-−–*/×÷·⋅]|[xX](?=[ \t]*[0-9.$€£(])|\\times|\\cdot|\\div)"
    r"|[$€£]?(\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,24}(?![\d,]))?(\.\d{1,24})?(%?))"
)
_SIGNS = {"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "x": "*", "X": "*", "÷": "/"}
_SIGNS |= {"\\times": "*", "\\cdot": "*", "\\div": "/"}


class Arithmetic(NamedTuple):
    """How many statements a text makes, and how many of them are false."""

    statements: int
    false: int


class _Number(NamedTuple):
    """A number in an expression, how many decimals it was written with, whether as a percentage."""

    value: Fraction
    decimals: int
    percent: bool


_Tokens = list["_Number | str"]


def arithmetic(text: str) -> Arithmetic:
    """The statements in a text.

    Example:
        >>> arithmetic("<think>12 + 5 = 17, 17 * 2 = 35.</think><answer>35</answer>")
        Arithmetic(statements=2, false=1)
        >>> arithmetic("If x + 3 = 7, then x = 4.")
        Arithmetic(statements=0, false=0)
    """
    if "=" not in text:
        return Arithmetic(0, 0)
    statements = false = 0
    for piece, whole in _pieces(text):
        made, wrong = _judged(piece, whole)
        statements += made
        false += wrong
    return Arithmetic(statements, false)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Stretches of numbers and signs with an equals sign, and whether each begins by itself."""
    for run in _RUN.finditer(text):
        said = run[0]
        if "=" not in said:
            continue
        start, end = run.span()
        pieces = _BREAK.split(said)
        if text[end : end + 1].isalpha() and not said[-1].isspace():
            pieces.pop()  # `= 7y`: what is there is not the number.
        for number, piece in enumerate(pieces):
            if "=" in piece and len(piece) <= _LONGEST_PIECE:
                yield piece.strip(), number > 0 or _begins(text, start)


def _begins(text: str, start: int) -> bool:
    """Whether what begins at `start` does not belong to something before it."""
    before = text[start - 1 : start]
    if before.isspace():
        # After a word a number begins something new, a sign goes on: `y - 3 + 5 = 2`.
        before = text[:start].rstrip()[-1:] if text[start] in "-−–" else ""
        return not (before.isalnum() or before in {")", "]", "}"})
    return not (before.isalnum() or before in {"^", "_", ":", "}", "]", "\\", "√", "#"})


@lru_cache(maxsize=1 << 16)
def _judged(piece: str, whole: bool) -> tuple[int, int]:
    """Statements in a piece, and how many are false."""
    simple = _SIMPLE.fullmatch(piece)
    if simple and whole and int(simple[3]):
        return 1, not _holds(int(simple[1]), simple[2], int(simple[3]), int(simple[4]))
    sides = [_read(side) for side in piece.split("=")]
    if not whole:
        sides[0] = []
    statements = false = 0
    for left, right in pairwise(sides):
        if max(_numbers(left), _numbers(right)) < 2:  # Neither side calculates.
            continue
        values = _value(left), _value(right)
        if values[0] is None or values[1] is None:
            continue
        statements += 1
        false += not _agree(values[0], values[1], right)
    return statements, false


def _numbers(tokens: _Tokens) -> int:
    return sum(not isinstance(token, str) for token in tokens)


def _holds(one: int, sign: str, other: int, result: int) -> bool:
    if sign == "+":
        return one + other == result
    if sign == "-":
        return one - other == result
    if sign == "*":
        return one * other == result
    return one == result * other


def _agree(left: Fraction, right: Fraction, written: _Tokens) -> bool:
    if left == right:
        return True
    number = written[-1]
    if isinstance(number, str) or written[:-1] not in ([], ["-"]):
        return False
    if number.percent and left == right * 100:  # `5 / 20 * 100 = 25%`
        return True
    off, last_place = abs(left - right), Fraction(1, 10**number.decimals)
    rounded = off <= last_place / 2 or (off < last_place and abs(right) < abs(left))
    return number.decimals > 0 and (rounded or off <= abs(left) * _DOUBLE)


def _read(side: str) -> _Tokens:
    """The tokens of one side of an equation; empty where it is no expression."""
    tokens: _Tokens = []
    at, side = 0, side.strip()
    while at < len(side) and len(tokens) < _MOST_TOKENS:
        found = _TOKEN.match(side, at)
        if found is None or found.end() == at:
            return []
        at = found.end()
        sign, whole, decimals, percent = found.groups()
        if sign:
            tokens.append(_SIGNS.get(sign, sign))
        elif whole or decimals:
            value = Fraction((whole or "0").replace(",", "") + (decimals or ""))
            places = max(len(decimals or "") - 1, 0)
            tokens.append(_Number(value / 100 if percent else value, places, bool(percent)))
        else:
            return []
    return [] if at < len(side) else _without_lone_brackets(tokens)


def _without_lone_brackets(tokens: _Tokens) -> _Tokens:
    """Without a bracket of the sentence around the statement: `(3 + 4` and `7)`."""
    surplus = tokens.count("(") - tokens.count(")")
    if surplus == 1 and tokens[0] == "(":
        return tokens[1:]
    if surplus == -1 and tokens[-1] == ")":
        return tokens[:-1]
    return tokens


def _value(tokens: _Tokens) -> Fraction | None:
    """The value of an expression; None where it has none."""
    numbers = [token for token in tokens if not isinstance(token, str)]
    percents = sum(number.percent for number in numbers)
    if 0 < percents < len(numbers) and ("+" in tokens or "-" in tokens):
        return None  # `50 + 10%`: of what?
    left = tokens[::-1]
    try:
        value = _sum(left)
    except (ZeroDivisionError, _NoExpressionError):
        return None
    return None if left else value


class _NoExpressionError(Exception): ...


def _sum(left: _Tokens) -> Fraction:
    value = _product(left)
    while left and left[-1] in ("+", "-"):
        value = value + _product(left) if left.pop() == "+" else value - _product(left)
    return value


def _product(left: _Tokens) -> Fraction:
    value = _factor(left)
    while left and left[-1] in ("*", "/"):
        value = value * _factor(left) if left.pop() == "*" else value / _factor(left)
    return value


def _factor(left: _Tokens) -> Fraction:
    if not left:
        raise _NoExpressionError
    token = left.pop()
    if isinstance(token, _Number):
        return token.value
    if token == "-":
        return -_factor(left)
    if token != "(":
        raise _NoExpressionError
    value = _sum(left)
    if not left or left.pop() != ")":
        raise _NoExpressionError
    return value
