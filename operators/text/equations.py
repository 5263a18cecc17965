"""Statements of arithmetic in a text, such as `12 + 5 = 17`, and whether they are true.

A statement is an equation between two expressions of numbers, at least one of which contains an
operation; `2 + 3 = 5 + 1 = 6` has two statements, the first of them false. Numbers may have
thousands separators (`1,200`), decimals, a leading currency sign and a trailing `%`. Equations
with anything but numbers, such as `x + 3 = 7`, are not statements.

Values are exact fractions. A result with decimals may be rounded or truncated: `10 / 3 = 3.33` is
true. A whole number may not: `10 / 3 = 3` is false. Results in double precision count as exact:
`0.1 + 0.2 = 0.30000000000000004` is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

# Limits that no written calculation exceeds.
_LONGEST_PIECE = 200
_MOST_TOKENS = 40

_DOUBLE = Fraction(1, 10**12)  # relative to the value
_RUN = re.compile(
    r"(?:[0-9.()+\-−–*/×÷·⋅xX$€£%=]|\\times|\\cdot|\\div)"
    r"(?:[0-9.,()+\-−–*/×÷·⋅xX$€£%= \t]|\\times|\\cdot|\\div)*"
)
_BREAK = re.compile(r"[.,](?:[ \t]+|$)")
_TOKEN = re.compile(
    r"[ \t]*(?:([()+\-−–*/×÷·⋅]|[xX](?=[ \t]*[0-9.$€£(])|\\times|\\cdot|\\div)"
    r"|[$€£]?(\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,24}(?![\d,]))?(\.\d{1,24})?(%?))"
)
_SIGNS = {"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "x": "*", "X": "*", "÷": "/"}
_SIGNS |= {"\\times": "*", "\\cdot": "*", "\\div": "/"}
_OPERATION = re.compile(r"[\d)][-+*/]")


class Arithmetic(NamedTuple):
    """How many statements a text makes, and how many of them are false."""

    statements: int
    false: int


class _Literal(NamedTuple):
    """A number in an expression, how many decimals it has, and whether it is a percentage."""

    value: Fraction
    decimals: int
    percent: bool


_Terms = list["_Literal | str"]


class _Statement(NamedTuple):
    """Two sides of an equation, the value of the left one, and whether they agree."""

    left: _Terms
    right: _Terms
    value: Fraction
    holds: bool


def arithmetic(text: str) -> Arithmetic:
    """The statements in a text.

    >>> arithmetic("<think>12 + 5 = 17, 17 * 2 = 35.</think><answer>35</answer>")
    Arithmetic(statements=2, false=1)
    >>> arithmetic("If x + 3 = 7, then x = 4.")
    Arithmetic(statements=0, false=0)
    """
    if "=" not in text:
        return Arithmetic(0, 0)
    statements = false = 0
    for piece, whole in _pieces(text):
        found, wrong = _count(piece, whole)
        statements += found
        false += wrong
    return Arithmetic(statements, false)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Runs of numbers and signs with an equals sign, and whether each starts an expression."""
    for run in _RUN.finditer(text):
        matched = run[0]
        if "=" not in matched:
            continue
        start, end = run.span()
        pieces = _BREAK.split(matched)
        if text[end : end + 1].isalpha() and not matched[-1].isspace():
            pieces.pop()  # `= 7y`: the number is only a part of the term.
        for number, piece in enumerate(pieces):
            if "=" in piece and len(piece) <= _LONGEST_PIECE:
                yield piece.strip(), number > 0 or _starts_expression(text, start)


def _starts_expression(text: str, start: int) -> bool:
    """Whether the run at `start` is not the continuation of something before it."""
    before = text[start - 1 : start]
    if before.isspace():
        # After a word, a number starts an expression, a sign continues one: `y - 3 + 5 = 2`.
        before = text[:start].rstrip()[-1:] if text[start] in "-−–" else ""
        return not (before.isalnum() or before in {")", "]", "}"})
    return not (before.isalnum() or before in {"^", "_", ":", "}", "]", "\\", "√", "#"})


@lru_cache(maxsize=1 << 16)
def _count(piece: str, whole: bool) -> tuple[int, int]:
    found = list(_statements(piece, whole))
    return len(found), sum(not statement.holds for statement in found)


def _statements(piece: str, whole: bool) -> Iterator[_Statement]:
    sides = [_read(side) for side in piece.split("=")]
    if not whole:
        sides[0] = []
    for left, right in pairwise(sides):
        if max(_numbers(left), _numbers(right)) < 2:  # Neither side has an operation.
            continue
        values = _value(left), _value(right)
        if values[0] is None or values[1] is None:
            continue
        yield _Statement(left, right, values[0], _agree(values[0], values[1], right))


def equations(text: str) -> tuple[str, ...]:
    """The statements in a text, each once, in the order of the text and in one way of writing.

    White space, currency signs, separators, brackets around a whole side, the order of the terms
    of a sum or of the factors of a product make no difference, nor does how a true result is
    rounded.

    >>> equations("5 + 12 = <<5+12=17>>17 apples cost 17 x $2.50 = $42.50.")
    ('12+5=17', '17*2.5=42.5')
    >>> equations("34 = 2 * (12 + 5), and 10 / 3 = 3.33, so 2 + 2 = 5")
    ('(12+5)*2=34', '10/3=3.33333', '2+2=5')
    """
    found = dict[str, None]()
    for piece, whole in _pieces(text) if "=" in text else ():
        found.update(dict.fromkeys(map(_written, _statements(piece, whole))))
    return tuple(found)


def _written(statement: _Statement) -> str:
    left, right, value, holds = statement
    if _numbers(left) < 2:
        left, right = right, left
    result = _bare(_sum_text(right[::-1]))
    if holds and _numbers(right) < 2:
        result = _number_text(value)
    return f"{_bare(_sum_text(left[::-1]))}={result}"


def _number_text(value: Fraction) -> str:
    """A decimal number; one without an end is rounded to six digits."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest > 1:
        return f"{float(value):.6g}"
    with localcontext(prec=2 * _LONGEST_PIECE):
        return f"{(Decimal(value.numerator) / value.denominator).normalize():f}"


def _sum_text(left: _Terms) -> str:
    """A sum in one way of writing; `left` is taken from its end, as by `_sum`."""
    terms, sign = list[str](), "+"
    while True:
        term = _product_text(left)
        minus = (sign == "-") != term.startswith("-")
        terms.append(("-" if minus else "+") + term.removeprefix("-"))
        if not left or left[-1] not in ("+", "-"):
            return "".join(sorted(terms)).removeprefix("+")
        sign = str(left.pop())


def _product_text(left: _Terms) -> str:
    factors, sign, minus = list[str](), "*", False
    while True:
        factor = _factor_text(left)
        minus ^= factor.startswith("-")
        factors.append(sign + factor.removeprefix("-"))
        if not left or left[-1] not in ("*", "/"):
            return ("-" if minus else "") + "".join(sorted(factors)).removeprefix("*")
        sign = str(left.pop())


def _factor_text(left: _Terms) -> str:
    token = left.pop()
    if isinstance(token, _Literal):
        return _number_text(token.value)
    if token == "-":
        factor = _factor_text(left)
        return factor.removeprefix("-") if factor.startswith("-") else f"-{factor}"
    inner = _bare(_sum_text(left))
    left.pop()
    return f"({inner})" if _OPERATION.search(inner) else inner


def _bare(text: str) -> str:
    """An expression without a pair of brackets around all of it."""
    depths = list(accumulate((c == "(") - (c == ")") for c in text))
    return text[1:-1] if text[0] == "(" and depths.index(0) == len(text) - 1 else text


def _numbers(tokens: _Terms) -> int:
    return sum(not isinstance(token, str) for token in tokens)


def _agree(left: Fraction, right: Fraction, written: _Terms) -> bool:
    if left == right:
        return True
    number = written[-1]
    if isinstance(number, str) or written[:-1] not in ([], ["-"]):
        return False
    if number.percent and left == right * 100:  # `5 / 20 * 100 = 25%`
        return True
    error, last_place = abs(left - right), Fraction(1, 10**number.decimals)
    rounded = error <= last_place / 2 or (error < last_place and abs(right) < abs(left))
    return number.decimals > 0 and (rounded or error <= abs(left) * _DOUBLE)


def _read(side: str) -> _Terms:
    """The tokens of one side of an equation; empty if it is not an expression."""
    tokens: _Terms = []
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
            tokens.append(_Literal(value / 100 if percent else value, places, bool(percent)))
        else:
            return []
    return [] if at < len(side) else _without_unmatched_bracket(tokens)


def _without_unmatched_bracket(tokens: _Terms) -> _Terms:
    """Remove an unmatched bracket that belongs to the sentence: `(3 + 4` and `7)`."""
    excess = tokens.count("(") - tokens.count(")")
    if excess == 1 and tokens[0] == "(":
        return tokens[1:]
    if excess == -1 and tokens[-1] == ")":
        return tokens[:-1]
    return tokens


def _value(tokens: _Terms) -> Fraction | None:
    """The value of an expression; None if it has none."""
    numbers = [token for token in tokens if not isinstance(token, str)]
    percents = sum(number.percent for number in numbers)
    if 0 < percents < len(numbers) and ("+" in tokens or "-" in tokens):
        return None  # `50 + 10%` is ambiguous.
    left = tokens[::-1]
    try:
        value = _sum(left)
    except (ZeroDivisionError, _NoExpressionError):
        return None
    return None if left else value


class _NoExpressionError(Exception): ...


def _sum(left: _Terms) -> Fraction:
    value = _product(left)
    while left and left[-1] in ("+", "-"):
        value = value + _product(left) if left.pop() == "+" else value - _product(left)
    return value


def _product(left: _Terms) -> Fraction:
    value = _factor(left)
    while left and left[-1] in ("*", "/"):
        value = value * _factor(left) if left.pop() == "*" else value / _factor(left)
    return value


def _factor(left: _Terms) -> Fraction:
    if not left:
        raise _NoExpressionError
    token = left.pop()
    if isinstance(token, _Literal):
        return token.value
    if token == "-":
        return -_factor(left)
    if token != "(":
        raise _NoExpressionError
    value = _sum(left)
    if not left or left.pop() != ")":
        raise _NoExpressionError
    return value
