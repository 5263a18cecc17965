r"""Values of expressions to many digits, at points where two of them are compared.

It runs only inside pool workers: evaluation may hang or exhaust memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import sympy
from sympy.functions.elementary.hyperbolic import HyperbolicFunction

from .formula import Expression

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
