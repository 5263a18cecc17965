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
from functools import lru_cache
from typing import Any

import mpmath
import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse

from .exact import Number, read_both, read_plain, rounds_to, same_number
from .intervals import OPERATION
from .measures import Measure, agree, read_unit
from .notation import plain, split_top
from .real_sets import same_set
from .structure import is_prose, same
from .words import listed

mpmath.mp.dps = 550  # for this worker process: quotients keep enough digits
DIGITS = 80
CONFIRMED_DIGITS = 500  # for two expressions that agree to DIGITS
CONFIRMED = mpmath.mpf(10) ** -450
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
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
_DEGREES = re.compile(r"(\d+|\\frac\{\d+\}\{\d+\})\s*\^\\circ")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|dot|bar)\s*\{(\d+)\}")
_NAMED_FUNCTION = re.compile(
    r"(?<![\\a-zA-Z])(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc"
    r"|log|ln|exp|pi|infty)(?![a-z])"
)
_INVERSE = re.compile(r"(?<![\\a-zA-Z])a(?:rc?)?(sinh|cosh|tanh|sin|cos|tan)(?![a-z])")
# The parser adds adjacent numerals, as in mixed numbers: `2(3)` would be 5.
_PRODUCT = re.compile(
    r"((?<![_\d.])\d+(?:\.\d+)?\s*(?=\(\s*\d)|\)\s*(?=\(?\s*\d|\\frac\{\d)"
    r"|\\frac\{[^{}]*\}\{[^{}]*\}\s*(?=\d))"
)
_MISREAD = re.compile(
    r"\d_|(?<![_^\d])\d+\s+\d+(?!\s*/|\d)|(?<![\w^}])\d+\{"
)  # `4_2` as 4, `2 3` as 5
# What letters are in a formula: environments, commands, differentials, words below, single letters.
_LETTER = re.compile(
    r"(?P<kept>\\(?:begin|end)\s*\{[a-zA-Z]+\}|\\[a-z][a-zA-Z]*|\\[^a-zA-Z])"
    r"|(?P<name>\\[A-Z][a-z]+|[a-zA-Z])"
    r"(?:_(?:\{\s*(?P<below>[0-9a-zA-Z]+)\s*\}|(?P<short>[0-9a-zA-Z])))?"
)
_INTEGRAL = re.compile(r"\\int(?![a-zA-Z])|\\frac\{d")
# The stripper of units takes the last letter of `2\pi r h` for hours.
_AS_WRITTEN = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
    )
)
_UNIT = re.compile(r"(?<=[\w})])\s+([A-Za-z]{2,}[A-Za-z. ]*(?:\^\s*\{?\s*[0-9]\s*\}?)?)$")
_COMPARISON = re.compile(r"\s*(=|<|>|\\(?:le|ge|ne)(?![a-zA-Z]))\s*")
_FUNCTION_OF = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]'*\s*\(\s*[a-zA-Z]\s*\)\s*$")

# The parser ignores what it does not know: `3 \approx 5` would be 3. So only this is allowed.
_FOREIGN = re.compile(r"[^0-9a-zA-Z+\-*/^_(){}|!.\\ '\[\]&=]")
_COMMAND = re.compile(r"\\([a-zA-Z]+|.)")
_COMMANDS = frozenset(
    listed(
        "\\ frac sqrt cdot times div pi sin cos tan cot sec csc arcsin arccos arctan sinh cosh "
        "tanh log ln lg exp binom sum prod int lim to infty lfloor rfloor lceil rceil circ "
        "overline dot bar begin end det gcd lcm max min d alpha beta gamma delta epsilon "
        "varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi "
        "varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega"
    )
)

Expression = Any  # sympy ships no types


def equivalent(answer: str, reference: str) -> bool:
    """Whether two bare answers are equal in structure, numbers and expressions.

    Raises:
        ValueError: the reference itself cannot be parsed.
    """
    return same(plain(answer), plain(reference), _same_leaf)


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
    if "," in answer + reference:  # a structure that `structure` did not recognise: no guessing
        return False
    x, y = _COMPARISON.split(answer), _COMPARISON.split(reference)
    if len(x) == 3 and len(y) == 3:
        return _same_relation(x, y)
    if any(sign in side for side in (x, y) for sign in ("<", ">", r"\le", r"\ge")):
        return False
    # `f(x) = 2x` and `2x`: the name is not part of the answer.
    left, right = _unnamed(answer), _unnamed(reference)
    if left is None or right is None:
        return False
    (left, unit), (right, expected) = _without_unit(left), _without_unit(right)
    factor = agree(unit, expected)
    known = expression(right)
    if known is None:
        raise ValueError("the reference is not mathematics")
    answered = expression(left)
    if answered is None or factor is None:
        return False
    if factor != 1:
        known = sympy.Rational(factor.numerator, factor.denominator) * known
    return _same_expression(_scaled(answered, a, b), _scaled(known, b, a), a, b)


def _value_of_ends() -> Callable[[str], Any]:
    """A function from ends of intervals to their values: equal ones have one value."""
    known: list[tuple[str, Any]] = []

    def value_of(text: str) -> Any:
        for written, value in known:
            if _same_leaf(text, written):
                return value
        exact = expression(text)
        found = _evaluate(exact, {}) if exact is not None and not exact.free_symbols else None
        if found is None or mpmath.im(found) != 0:
            return None
        fraction = _fraction(mpmath.re(found))
        known.append((text, sympy.Rational(fraction.numerator, fraction.denominator)))
        return known[-1][1]

    return value_of


def _without_unit(text: str) -> tuple[str, Measure | None]:
    """A value without the unit after it, and the unit. One letter is a name, as in `2\\pi r h`."""
    found = _UNIT.search(text)
    measure = read_unit(found[1].replace(" ^", "^"), attached=False) if found else None
    if found is None or measure is None:
        return text, None
    if measure.known:
        return text[: found.start()], measure
    return (text[: found.start()] if measure.stems <= {"unit"} else text), None


def _unnamed(text: str) -> str | None:
    sides = split_top(text, re.compile(r"\s*=\s*"))
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


# --- parsing --------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def expression(text: str) -> Expression | None:
    """The sympy expression of a leaf, None if it is not one. Cached, because references recur."""
    number = read_plain(text)
    if number is not None:
        return sympy.Rational(number.value.numerator, number.value.denominator)
    if _FOREIGN.search(text) or _MISREAD.search(text) or set(_COMMAND.findall(text)) - _COMMANDS:
        return None
    try:
        parsed = parse(
            f"${_parsable(text)}$",
            extraction_config=[_AS_WRITTEN],
            fallback_mode="no_fallback",
            parsing_timeout=None,  # the parent enforces the deadline
            raise_on_error=True,
        )
    except MemoryError:
        raise  # our failure, which says nothing about the answer
    except Exception:  # the parser's many ways to reject what is not mathematics
        return None
    if not parsed or not isinstance(parsed[0], sympy.Expr):
        return None
    return _with_constants(parsed[0])


def _parsable(text: str) -> str:
    """The form that the parser reads without loss: no floats, no degrees, no bare names."""
    if "\\begin" not in text:  # no rows: a command escaped twice
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    text = _PRODUCT.sub(r"\1\\cdot ", _REPEATING.sub(_repeating, text))
    text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    text = _DECIMAL.sub(lambda m: rf"{{(\frac{{{int(m[1] + m[2])}}}{{{10 ** len(m[2])}}})}}", text)
    text = _NAMED_FUNCTION.sub(r"\\\1 ", _INVERSE.sub(r"\\\1^{-1} ", text))
    return _distinct_letters(text)


def _repeating(m: re.Match[str]) -> str:
    once, again = m[2], m[3]
    nines = 10 ** len(once) * (10 ** len(again) - 1)
    value = int(m[1] + once + again) - int((m[1] + once) or "0")
    return rf"\frac{{{value}}}{{{nines}}}"


def _distinct_letters(text: str) -> str:
    """Letters apart, capitals as indexed letters: the parser folds case and reads `E_1` as e."""
    differentials = bool(_INTEGRAL.search(text))

    def rewritten(m: re.Match[str]) -> str:
        if m["kept"]:
            return m[0]
        name, below = m["name"], m["below"] or m["short"] or ""
        before = text[m.start() - 1 : m.start()]
        if differentials and (name == "d" or (before == "d" and not below)):
            return name
        if name[0] == "\\":
            return f"{name.lower()}_{{99{below}}}"
        if name.isupper():
            return f" q_{{99{name.lower()}{below}}} "
        if below and name in "ei":
            return f" q_{{98{name}{below}}} "
        return f" {name}_{{{below}}} " if below else f" {name} "

    return _LETTER.sub(rewritten, text)


def _with_constants(value: Expression) -> Expression:
    constants = {"i": sympy.I, "e": sympy.E}
    found = {s: constants[s.name] for s in value.free_symbols if s.name in constants}
    return value.xreplace(found) if found else value


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
    ratios = _evaluate_all(f, g, lambda x, y: x / y if y else None)
    if len(ratios) < 4 or not _constant(ratios):
        return False
    positive = mpmath.re(ratios[0]) > 0
    wanted = b[1] if positive else flip.get(b[1], b[1])
    return bool(abs(ratios[0]) > 0 and a[1] == wanted)


def _constant(values: list[Any]) -> bool:
    return all(abs(v - values[0]) <= AGREEMENT * abs(values[0]) for v in values)


def _same_expression(f: Expression, g: Expression, a: Number | None, b: Number | None) -> bool:
    if f == g:
        return True
    if f.free_symbols | g.free_symbols:
        return _everywhere(f, g, DIGITS, AGREEMENT) and (
            _quadrature(f, g) or _everywhere(f, g, CONFIRMED_DIGITS, CONFIRMED)
        )
    x, y = _evaluate(f, {}), _evaluate(g, {})
    if y is None:
        raise ValueError("the reference has no value")
    if x is None:
        return False
    # A decimal equals an irrational number only if it is its rounding to enough digits.
    for decimal, exact in ((a, y), (b, x)):
        if decimal and decimal.ulp and mpmath.im(exact) == 0:
            return _rounded(decimal, _fraction(mpmath.re(exact)))
    if not _agree(x, y, AGREEMENT):
        return False
    if _quadrature(f, g):
        return True
    if abs(y) > LARGEST:
        raise ValueError("the reference is too large to be distinguished from its neighbours")
    # 10^{100} and 10^{100}+1 agree to 80 digits.
    x, y = _evaluate(f, {}, CONFIRMED_DIGITS), _evaluate(g, {}, CONFIRMED_DIGITS)
    return x is not None and y is not None and _agree(x, y, CONFIRMED)


def _everywhere(f: Expression, g: Expression, digits: int, within: Any) -> bool:
    agreements = _evaluate_all(f, g, lambda x, y: _agree(x, y, within), digits)
    return len(agreements) >= 3 and all(agreements)


def _quadrature(f: Expression, g: Expression) -> bool:
    """Whether more digits would need a numerical integral or sum, which may not terminate."""
    return any(e.has(sympy.Integral, sympy.Sum) for e in (f, g))


def _rounded(decimal: Number, exact: Fraction) -> bool:
    """The decimal rule of the exact tier, for a value known to `DIGITS` digits."""
    short = Fraction(round(exact * 10**20), 10**20)
    if abs(short - exact) < abs(exact) / 10**60:  # such as 2^{64}, which has a finite decimal
        return same_number(decimal, Number(short))
    return rounds_to(decimal, exact)


def _fraction(value: Any) -> Fraction:
    # private: mpmath==1.3.0, tests/operators/verifier/test_forms.py::test_form
    numerator, denominator = mpmath.libmp.to_rational(value._mpf_)
    return Fraction(int(numerator), int(denominator))


def _mpf(value: Expression, digits: int) -> Any:
    # private: sympy==1.14.0, tests/operators/verifier/test_forms.py::test_form
    return mpmath.mpf(value._to_mpmath(digits * 4))


def _agree(x: Any, y: Any, within: Any) -> bool:
    # An exact 0 may be computed as a rounding error of what cancelled: hence the floor.
    return bool(abs(x - y) <= within * max(abs(x), abs(y), _FLOOR))


def _evaluate_all(
    f: Expression, g: Expression, combine: Callable[[Any, Any], Any], digits: int = DIGITS
) -> list[Any]:
    """`combine` both values at every point where both exist and are both real or both complex."""
    symbols = sorted(f.free_symbols | g.free_symbols, key=str)
    results = []
    for point in _POINTS:
        at = {s: point[k % 4] + k // 4 for k, s in enumerate(symbols)}
        x, y = _evaluate(f, at, digits), _evaluate(g, at, digits)
        if x is None or y is None:
            continue
        # log(x^2) and 2 log(x) differ only where one of them is not real.
        negative = any(v < 0 for v in at.values())
        if negative and (mpmath.im(x) == 0) != (mpmath.im(y) == 0):
            continue
        combined = combine(x, y)
        if combined is not None:
            results.append(combined)
    return results


def _evaluate(value: Expression, at: dict[Any, Any], digits: int = DIGITS) -> Any | None:
    """The value at a point, None if it has none."""
    floats = {s: sympy.Float(v, digits) for s, v in at.items()}
    try:
        evaluated = value.subs(floats) if floats else value
        if evaluated.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative):
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
