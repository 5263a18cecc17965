r"""The symbolic tier: math-verify parses leaves, which are compared numerically at high precision.

It runs only inside pool workers: parsing and evaluation may hang or exhaust memory, and only the
parent can enforce a deadline. math-verify's own comparison is not used: it rounds to six places
(1/2^99 equals 1/2^98) and is not symmetric. Instead two expressions are equal if they agree to 60
digits at rational points (Schwartz-Zippel).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath
import sympy
from sympy.functions.elementary.hyperbolic import HyperbolicFunction

from .counters import split_unit
from .exact import Number, read_both, rounds_to, same_number
from .formula import ARGUMENTS, Expression, expression
from .intervals import LETTER, OPERATION, ORDER, REALS, Interval, bracketed, condition, ordered
from .lists import MAX_ITEMS, split_items
from .measures import agree
from .notation import plain, split_top
from .structure import is_prose, parts, same

# --- Real sets ------------------------------------------------------------------------
# Sets of real numbers: unions, complements and conditions that one interval cannot express.
#
# `structure` compares single intervals itself; what is written with operations (`\cup`, `\cap`,
# `\setminus`, `x \ne 2`, `|x| < 1`) is compared here, as sets of sympy.

RealSet = Any  # sympy ships no types
# The value of an end of an interval, equal values for equal ends; None if it has none.
ValueOf = Callable[[str], Any]

_MEMBER = re.compile(r"([a-zA-Z])\s*\\in(?![a-zA-Z])\s*")
_MINUS = re.compile(r"\s*\\(?:setminus|backslash)(?![a-zA-Z])\s*|(?<=[})\]])\s*-\s*(?=\\?\{)")
_UNION = re.compile(r"\s*(?:\\cup(?![a-zA-Z])|(?<=[\])}])\s*\bU\b)\s*")
_BOTH = re.compile(r"\s*\\cap(?![a-zA-Z])\s*")
_COMMA = re.compile(r"\s*,\s*")
_EXCEPT = re.compile(rf"({LETTER})\s*\\ne(?![a-zA-Z])\s*")
_IS = re.compile(rf"({LETTER})\s*=\s*")
_ABSOLUTE = re.compile(rf"\|\s*({LETTER})\s*\|")


def same_set(answer: str, reference: str, value_of: ValueOf) -> bool | None:
    """Whether two sets of real numbers are equal, None if the reference is not read as one."""
    readers = [_SetReader(value_of), _SetReader(value_of)]
    x, y = (reader.read(text) for reader, text in zip(readers, (answer, reference), strict=True))
    if y is None:
        return None
    if x is None:
        return False
    names = [reader.variables for reader in readers]
    if any(len(n) > 1 for n in names) or (names[0] and names[1] and names[0] != names[1]):
        return False
    return bool(x == y)


class _SetReader:
    """Reads a set and remembers the variables that its conditions are about."""

    def __init__(self, value_of: ValueOf) -> None:
        self.variables = set[str]()
        self._value_of = value_of

    def read(self, text: str) -> RealSet | None:
        text = text.strip()
        if member := _MEMBER.match(text):
            self.variables.add(member[1])
            text = text[member.end() :]
        whole, text = text, condition(text)
        removed = split_top(text, _MINUS)[1:]
        if any(_UNION.search(part) for part in removed):
            return None  # `A \setminus B \cup C` has two readings
        for separator, combine in (
            (_MINUS, _difference),
            (_UNION, sympy.Union),
            (_BOTH, sympy.Intersection),
        ):
            parts = split_top(text, separator)
            if 1 < len(parts) <= MAX_ITEMS:
                sets = [self.read(part) for part in parts]
                return combine(*sets) if all(s is not None for s in sets) else None
        if text != whole or "\\ne" in text:
            return self._conditions(text)
        return self._single(text)

    def _conditions(self, text: str) -> RealSet | None:
        r"""`x > 0, x \ne 1` and `x \ne 1, 2`: all conditions hold."""
        found, excluding = sympy.S.Reals, False
        for part in split_top(text, _COMMA):
            excepted = _EXCEPT.match(part)
            excluding = bool(excepted) or (excluding and not ORDER.search(part))
            if excepted:
                self.variables.add(excepted[1])
                part = part[excepted.end() :]
            operand = self._points([part]) if excluding else self._single(part)
            if operand is None:
                return None
            found = found - operand if excluding else found & operand
        return found

    def _single(self, text: str) -> RealSet | None:
        if text in REALS:
            return sympy.S.Reals
        braces = re.match(r"\\?\{(.*?)\\?\}$", text)
        if braces and "{" not in re.sub(r"\{[^{}]*\}", "", braces[1]):
            return self._points(split_items(braces[1].strip(), bracketed=True))
        if point := _IS.match(text):
            self.variables.add(point[1])
            return self._points([text[point.end() :]])
        interval = bracketed(text) or ordered(_ABSOLUTE.sub(r"\1", text))
        found = self._interval(interval) if interval else None
        if found is None or not _ABSOLUTE.search(text):
            return found
        found &= sympy.Interval(0, sympy.oo)
        return found | _mirrored(found)

    def _points(self, items: list[str]) -> RealSet | None:
        values = [self._value_of(item) for item in items]
        return sympy.FiniteSet(*values) if all(v is not None for v in values) else None

    def _interval(self, interval: Interval) -> RealSet | None:
        low = -sympy.oo if interval.low is None else self._value_of(interval.low)
        high = sympy.oo if interval.high is None else self._value_of(interval.high)
        if interval.variable:
            self.variables.add(interval.variable)
        if low is None or high is None or low > high:
            return None  # `(2, 1)` is a mistake, not the empty set
        return sympy.Interval(low, high, not interval.low_closed, not interval.high_closed)


def _difference(first: RealSet, *others: RealSet) -> RealSet:
    for other in others:
        first = first - other
    return first


def _mirrored(found: RealSet) -> RealSet:
    if isinstance(found, sympy.Interval):
        return sympy.Interval(-found.end, -found.start, found.right_open, found.left_open)
    return sympy.FiniteSet(*(-value for value in found))


# --- Values of expressions to many digits, at points where two of them are compared ---
# It runs only inside pool workers: evaluation may hang or exhaust memory.

mpmath.mp.dps = 550  # for this worker process: quotients keep enough digits
DIGITS = 80
_CONFIRMED_DIGITS = 500  # for two expressions that agree to DIGITS
_GUARD_DIGITS = 50
_MOST_DIGITS = 20_000
LARGEST = mpmath.mpf(10) ** 430  # above it, neighbouring integers agree to that many digits
_FLOOR = mpmath.mpf(10) ** -15
AGREEMENT = mpmath.mpf(10) ** -60
# Real points, no two related by a simple identity; negative ones distinguish |x| from x.
_POINTS = (
    (sympy.Rational(7, 11), sympy.Rational(13, 29), sympy.Rational(17, 43), sympy.Rational(31, 61)),
    (sympy.Rational(19, 7), sympy.Rational(37, 13), sympy.Rational(41, 17), sympy.Rational(23, 19)),
    (sympy.Rational(53, 9), sympy.Rational(71, 31), sympy.Rational(5, 47), sympy.Rational(83, 37)),
    (
        sympy.Rational(-9, 13),
        sympy.Rational(11, 23),
        sympy.Rational(-29, 17),
        sympy.Rational(3, 41),
    ),
    (
        sympy.Rational(-31, 8),
        sympy.Rational(-43, 19),
        sympy.Rational(7, 37),
        sympy.Rational(-61, 23),
    ),
    (sympy.Rational(3, 67), sympy.Rational(-2, 71), sympy.Rational(-59, 31), sympy.Rational(47, 5)),
)
_CARRIED_OUT = (
    sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative, sympy.Mod,
    sympy.UnevaluatedExpr,
)  # fmt: skip


def fraction(value: Any) -> Fraction:
    """A real number of mpmath, exactly."""
    # private: mpmath==1.3.0, tests/operators/verifier/test_forms.py::test_form
    numerator, denominator = mpmath.libmp.to_rational(value._mpf_)
    return Fraction(int(numerator), int(denominator))


def _mpf(value: Expression, digits: int) -> Any:
    # private: sympy==1.14.0, tests/operators/verifier/test_forms.py::test_form
    return mpmath.mpf(value._to_mpmath(digits * 4))


def close(x: Any, y: Any, within: Any) -> bool:
    """Whether two values agree to a relative error."""
    # An exact 0 may be computed as a rounding error of what cancelled: hence the floor.
    return bool(abs(x - y) <= within * max(abs(x), abs(y), _FLOOR))


def confirmed(f: Expression, g: Expression) -> bool:
    """Whether two values that agree to `DIGITS` agree at all points to many more digits.

    `1+2^{-2000}` differs from 1 in the 603rd digit, so the powers in them say how many. At all
    points, because where values are large `+ 1` is far behind the last digit.
    """
    digits = _CONFIRMED_DIGITS + 2 * max(_magnitude(f), _magnitude(g))
    if digits > _MOST_DIGITS:
        return False
    with mpmath.workdps(digits + _GUARD_DIGITS):
        within = mpmath.mpf(10) ** (_GUARD_DIGITS - digits)
        found = [close(x, y, within) for x, y in evaluations(f, g, digits)]
        return bool(found) and all(found)


def _magnitude(value: Expression) -> int:
    """The digits, before or after the point, of the largest number or power in it."""
    sizes = [max(abs(n.p), n.q).bit_length() for n in value.atoms(sympy.Rational)]
    for hyperbolic in value.atoms(HyperbolicFunction):  # tanh(1000) is close to 1
        if hyperbolic.args[0].is_number:
            sizes.append(int(3 * abs(sympy.N(hyperbolic.args[0], 15))))
    for power in value.atoms(sympy.Pow, sympy.exp):
        base, exponent = power.as_base_exp()
        if base.is_number and exponent.is_Rational and base.is_nonzero:
            bits = abs(mpmath.log(abs(sympy.N(base, 15)), 2))
            sizes.append(int(abs(exponent) * max(bits, 1)))
    return int(max(sizes, default=0) * 0.302)


def evaluations(f: Expression, g: Expression, digits: int = DIGITS) -> Iterator[tuple[Any, Any]]:
    """Both values at each point where both exist and are both real or both complex."""
    symbols = sorted(f.free_symbols | g.free_symbols, key=str)
    counted = _counts(f) | _counts(g)
    for place, point in enumerate(_POINTS):
        at = {
            s: sympy.Integer(place + 2 * k + 2) if s in counted else point[k % 4] + k // 4
            for k, s in enumerate(symbols)
        }
        y = evaluate(g, at, digits)
        x = None if y is None else evaluate(f, at, digits)
        if x is None:
            continue
        # log(x^2) and 2 log(x) differ only where one of them is not real.
        negative = any(v < 0 for v in at.values())
        if not negative or (mpmath.im(x) == 0) == (mpmath.im(y) == 0):
            yield x, y


def _counts(value: Expression) -> set[Any]:
    """The symbols that bound a sum or product, which have a value at whole numbers only."""
    bounds = [bound for each in value.atoms(sympy.Sum, sympy.Product) for bound in each.limits]
    return {s for _, *ends in bounds for end in ends for s in end.free_symbols}


def evaluate(value: Expression, at: dict[Any, Any], digits: int = DIGITS) -> Any | None:
    """The value at a point, None if it has none."""
    # Not the `x` of a limit or sum, which is bound there and may be free in the other expression.
    free = {s: at[s] for s in value.free_symbols if s in at}
    floats = {s: v if v.is_Integer else sympy.Float(v, digits) for s, v in free.items()}
    try:
        evaluated = value.subs(floats) if floats else value
        if evaluated.has(*_CARRIED_OUT):
            evaluated = evaluated.doit()
        number = sympy.N(evaluated, digits)
        if not number.is_number or not number.is_finite:
            return None
        real, imaginary = (_mpf(part, digits) for part in number.as_real_imag())
    except MemoryError:
        raise
    except Exception:  # sympy's many ways to report that there is no value here
        return None
    if abs(imaginary) <= AGREEMENT * abs(real):
        imaginary = mpmath.mpf(0)
    return mpmath.mpc(real, imaginary) if imaginary else real


# --- Symbolic -------------------------------------------------------------------------

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
