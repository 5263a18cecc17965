r"""The symbolic tier: math-verify parses leaves, which are compared numerically at high precision.

It runs only inside pool workers: parsing and evaluation may hang or exhaust memory, and only the
parent can enforce a deadline. math-verify's own comparison is not used: it rounds to six places
(1/2^99 equals 1/2^98) and is not symmetric. Instead two expressions are equal if they agree to 60
digits at rational points (Schwartz-Zippel).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import sympy

from .exact import Number, read_both, rounds_to, same_number
from .formula import ARGUMENTS, Expression, expression
from .intervals import OPERATION
from .measures import agree
from .notation import plain, split_top
from .real_sets import same_set
from .structure import is_prose, parts, same
from .units import split_unit
from .values import AGREEMENT, LARGEST, close, confirmed, evaluate, evaluations, fraction

_ANY_FORMULA = r"\sqrt{5}+\frac{1}{7}"
_EQUALS = re.compile(r"\s*=\s*")
_MODULUS = re.compile(r"\\[bp]?mod(?![a-zA-Z])(.*)")
_COMPARISON = re.compile(r"\s*(=|<|>|\\(?:le|ge|ne)(?![a-zA-Z]))\s*")
_FUNCTION_OF = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]'*\s*\(\s*[a-zA-Z]\s*\)\s*$")


def equivalent(answer: str, reference: str) -> bool:
    """Whether two bare answers are equal in structure, numbers and expressions.

    Raises:
        ValueError: the reference itself cannot be parsed.
    """
    return same(plain(answer), plain(reference), _same_leaf)


def check(reference: str) -> None:
    """Read a reference as an answer would be compared with it, part by part.

    Raises:
        ValueError: a part cannot be parsed, or has no value.
    """
    for part in parts(plain(reference)):
        same(_ANY_FORMULA, part, _same_leaf)


def _same_leaf(answer: str, reference: str) -> bool:
    a, b = read_both(answer, reference)
    if a and b:
        return same_number(a, b)
    if is_prose(answer) or is_prose(reference):
        return False
    if OPERATION.search(answer) or OPERATION.search(reference):
        verdict = same_set(answer, reference, _value_of_ends())
        if verdict is not None or not OPERATION.search(reference):
            return bool(verdict)
    if "," in ARGUMENTS.sub("", answer + reference):  # an unknown structure: no guessing
        return False
    x, y = (split_top(side, _COMPARISON, keep=True) for side in (answer, reference))
    if len(x) == 3 and len(y) == 3:
        return _same_relation(x, y)
    if any(sign in side for side in (x, y) for sign in ("<", ">", r"\le", r"\ge")):
        return False
    # `1 \mod 5` and `1 \mod 7` have one value, and are two classes of numbers.
    modulus, other = _MODULUS.search(answer), _MODULUS.search(reference)
    if modulus and other and not _same_leaf(modulus[1], other[1]):
        return False
    # `f(x) = 2x` and `2x`: the name is not part of the answer.
    left, right = _unnamed(answer), _unnamed(reference)
    if left is None or right is None:
        return False
    (left, unit), (right, expected) = split_unit(left), split_unit(right)
    factor = agree(unit, expected)
    known = expression(right)
    if known is None:
        raise ValueError("the reference is not mathematics")
    answered = expression(left)
    if answered is None or factor is None:
        return False
    if factor != 1:
        known = sympy.Rational(factor.numerator, factor.denominator) * known
    if isinstance(answered, sympy.MatrixBase) or isinstance(known, sympy.MatrixBase):
        return _same_matrix(answered, known)
    return _same_expression(_scaled(answered, a, b), _scaled(known, b, a), a, b)


def _value_of_ends() -> Callable[[str], Any]:
    """A function from ends of intervals to their values: equal ones have one value."""
    known: list[tuple[str, Any]] = []

    def value_of(text: str) -> Any:
        for written, same_value in known:
            if _same_leaf(text, written):
                return same_value
        exact = expression(text)
        found = evaluate(exact, {}) if exact is not None and not exact.free_symbols else None
        if found is None or mpmath.im(found) != 0:
            return None
        value = fraction(mpmath.re(found))
        known.append((text, sympy.Rational(value.numerator, value.denominator)))
        return known[-1][1]

    return value_of


def _unnamed(text: str) -> str | None:
    sides = split_top(text, _EQUALS)
    if len(sides) == 1:
        return text
    named = re.match(r"[a-zA-Z]$", sides[0]) or _FUNCTION_OF.match(sides[0])
    return sides[1] if len(sides) == 2 and named else None


def _scaled(value: Expression, number: Number | None, other: Number | None) -> Expression:
    """Convert degrees to radians if the other side is an expression without degrees."""
    known = number.measure.known if number and number.measure else None
    if number and other is None and known and known.dimension == "angle":
        return value * sympy.pi / 180
    return value


# --- comparing ------------------------------------------------------------------------


def _same_relation(a: list[str], b: list[str]) -> bool:
    """Two equations or inequalities: one is the other times a constant."""
    flip = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
    left, right, known, value = (expression(t) for t in (a[0], a[2], b[0], b[2]))
    if value is None or (known is None and ":" not in b[0]):  # `A:B` is a name
        raise ValueError("the reference is not mathematics")
    if left is None or right is None or known is None:
        return False
    f, g = left - right, known - value
    ratios = [x / y for x, y in evaluations(f, g) if y]
    if len(ratios) < 4 or not _constant(ratios):
        return False
    positive = mpmath.re(ratios[0]) > 0
    wanted = b[1] if positive else flip.get(b[1], b[1])
    return bool(abs(ratios[0]) > 0 and a[1] == wanted)


def _constant(values: list[Any]) -> bool:
    return all(abs(v - values[0]) <= AGREEMENT * abs(values[0]) for v in values)


def _same_expression(f: Expression, g: Expression, a: Number | None, b: Number | None) -> bool:
    if g.has(sympy.zoo, sympy.nan):
        raise ValueError("the reference has no value")
    if f == g:
        return True
    if f.free_symbols | g.free_symbols:
        return _everywhere(f, g)
    x, y = evaluate(f, {}), evaluate(g, {})
    if y is None:
        raise ValueError("the reference has no value")
    if x is None:
        return False
    # A decimal equals an irrational number only if it is its rounding to enough digits.
    for decimal, exact in ((a, y), (b, x)):
        if decimal and decimal.ulp and mpmath.im(exact) == 0:
            return _rounded(decimal, fraction(mpmath.re(exact)))
    if not close(x, y, AGREEMENT):
        return False
    if _quadrature(f, g):
        return True
    if abs(y) > LARGEST:
        left, right = f.doit(), g.doit()
        if not right.is_Rational:
            raise ValueError("the reference is too large to be distinguished from its neighbours")
        return bool(left == right)
    if f.is_Rational and g.is_Rational:
        return False  # equal ones compare equal above
    return confirmed(f, g)  # 10^{100} and 10^{100}+1 agree to 80 digits


def _same_matrix(f: Expression, g: Expression) -> bool:
    return (
        isinstance(f, sympy.MatrixBase)
        and isinstance(g, sympy.MatrixBase)
        and f.shape == g.shape
        and all(_same_expression(p, q, None, None) for p, q in zip(f, g, strict=True))
    )


def _everywhere(f: Expression, g: Expression) -> bool:
    """Whether they agree at all points, to some digits and then to many more."""
    points = 0
    for x, y in evaluations(f, g):
        if not close(x, y, AGREEMENT):
            return False
        points += 1
    if points < 3:
        return False
    if _quadrature(f, g):
        return True
    return confirmed(f, g)


def _quadrature(f: Expression, g: Expression) -> bool:
    """Whether more digits would need a numerical integral or sum, which may not terminate."""
    return any(e.has(sympy.Integral, sympy.Sum) for e in (f, g))


def _rounded(decimal: Number, exact: Fraction) -> bool:
    """The decimal rule of the exact tier, for a value known to `DIGITS` digits."""
    short = Fraction(round(exact * 10**20), 10**20)
    if abs(short - exact) < abs(exact) / 10**60:  # such as 2^{64}, which has a finite decimal
        return same_number(decimal, Number(short))
    return rounds_to(decimal, exact)
