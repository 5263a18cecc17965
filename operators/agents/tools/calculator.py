"""Exact arithmetic on rational numbers, within bounds, for a policy that cannot calculate."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import Field

from ..tool import Tool

_LONGEST = 300
"""Characters of an expression, which also bounds how deep it is nested."""
_MOST_BITS = 4096
"""In the numerator and the denominator of every value on the way: 1,233 digits."""
_MOST_DECIMALS = 20
_LONGEST_FRACTION = 60  # characters
_ROUNDED, _EXACT = Context(prec=12), Context(prec=2000)

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d*)?|\.\d+"
_TOKEN = re.compile(
    rf"\s*(?:[$€£]?(?P<number>{_NUMBER})(?P<power>[eE][+-]?\d{{1,3}}(?!\w))?"
    # A percentage, as nothing follows that it could be divided by: `20% * 50`, but `7 % 2`.
    r"(?P<percent>%(?!\s*[\d.($€£]))?"
    r"|(?P<sign>\*\*|//|[-+*/%()^−–×·⋅÷])|(?P<times>[xX])(?=\s*[\d.($€£]))"
)
_SIGNS = {"^": "**", "−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/"}
_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}


class Calculator(Tool):
    """Calculate an expression of numbers exactly, with + - * / // % ** and parentheses."""

    is_local: ClassVar[bool] = True
    code: ClassVar[str | None] = "1"

    async def call(
        self, expression: Annotated[str, Field(description="such as 8 * (46 - 3)")]
    ) -> str:
        """Its value, exactly: a whole number, a decimal, or a fraction and what that is about."""
        return _shown(value_of(expression))


def value_of(expression: str) -> Fraction:
    """The value of an expression of numbers; a ValueError where it has none, or a huge one.

    Numbers may have thousands separators, decimals, an exponent of ten, a currency sign and a
    trailing `%`; `x`, `×`, `·`, `÷`, `−` and `^` are read as what they mean.

    >>> value_of("1,200 × 15%")
    Fraction(180, 1)
    """
    if len(expression) > _LONGEST:
        raise ValueError(f"the expression is longer than {_LONGEST} characters")
    numbers = list[Fraction]()
    text = expression.strip().removesuffix("=").rstrip()
    source = " ".join(_tokens(text, numbers))
    if not source:
        raise ValueError("there is no expression")
    try:
        return _value(ast.parse(source, mode="eval").body, numbers)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("this is not an expression of numbers") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None


def _tokens(text: str, numbers: list[Fraction]) -> Iterator[str]:
    """The expression in Python's syntax, with names `n0`, `n1`, … for numbers, which are added to
    `numbers`: Python's own numbers with decimals would not be exact."""
    at, percents, is_sum, is_left = 0, 0, False, False
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"'{text[at:].split()[0][:20]}' is neither a number nor an operation")
        at = found.end()
        if found["number"]:
            value = Fraction(found["number"].replace(",", "") + (found["power"] or ""))
            numbers.append(value / 100 if found["percent"] else value)
            percents += bool(found["percent"])
            token = f"n{len(numbers) - 1}"
        else:
            token = "*" if found["times"] else _SIGNS.get(found["sign"], found["sign"])
        is_sum |= is_left and token in ("+", "-")
        is_left = bool(found["number"]) or token == ")"
        yield token
    if is_sum and 0 < percents < len(numbers):
        raise ValueError("a percentage in a sum is ambiguous: write 0.1 * 50 for 10% of 50")


def _value(node: ast.expr, numbers: list[Fraction]) -> Fraction:
    if isinstance(node, ast.Name):
        return numbers[int(node.id[1:])]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, numbers)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, numbers), _value(node.right, numbers)
        if isinstance(node.op, ast.Pow):
            return _bounded(_power(left, right))
        return _bounded(_BINARY[type(node.op)](left, right))
    raise ValueError("this is not an expression of numbers")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError("an exponent must be a whole number")
    if abs(exponent) * (_bits(base) - 1) > _MOST_BITS:
        raise ValueError("the result is too large")
    return base ** int(exponent)


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > _MOST_BITS:
        raise ValueError("the result is too large")
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _shown(value: Fraction) -> str:
    """
    >>> [_shown(Fraction(each)) for each in ("368", "5/4", "-10/3")]
    ['368', '1.25', '-10/3 (about -3.33333333333)']
    """
    scaled = value * 10**_MOST_DECIMALS
    if scaled.denominator == 1:
        decimal = Decimal(scaled.numerator).scaleb(-_MOST_DECIMALS, _EXACT)
        return f"{decimal.normalize(_EXACT):f}"
    rounded = _ROUNDED.divide(Decimal(value.numerator), Decimal(value.denominator))
    about = f"about {rounded:f}" if -7 < rounded.adjusted() < 12 else f"about {rounded}"
    return f"{value} ({about})" if len(str(value)) <= _LONGEST_FRACTION else about
