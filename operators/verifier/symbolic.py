r"""The symbolic tier: math-verify parses leaves, which are compared numerically at high precision.

It runs only inside pool workers: parsing and evaluation may hang or exhaust memory, and only the
parent can enforce a deadline. math-verify's own comparison is not used: it rounds to six places
(1/2^99 equals 1/2^98) and is not symmetric. Instead two expressions are equal if they agree to 60
digits at rational points (Schwartz-Zippel).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import mpmath
import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse

from .fractions_and_decimals import Number, read_plain, rounds_to, same_number
from .lists import (
    INFINITY,
    LETTER,
    MAX_ITEMS,
    OPERATION,
    TURNED,
    UNION,
    condition,
    read_collection,
    read_set,
)
from .notation import plain, rewritten, rewritten_inside_out, rules, split_top
from .structure import ENVIRONMENT, is_prose, parts, same
from .units import DEGREE, agree, split_unit
from .words import listed

# --- Plain algebra without math-verify's parser, which takes 20 ms for a formula ------
# What is written with numerals, letters, `+ - \cdot ^`, round brackets, `\frac`, `\sqrt` and `\pi`
# is rewritten as Python and carried out by Python itself, in a fraction of a millisecond. All else,
# and whatever might be read in two ways (`1/2x`, `f(x)`, `2\frac{1}{3}`), is left to the other.

# What letters are in a formula: environments, commands, differentials, words below, single letters.
_LETTER = re.compile(
    r"(?P<kept>\\(?:begin|end)\s*\{[a-zA-Z]+\}|\\[a-z][a-zA-Z]*|\\[^a-zA-Z])"
    r"|(?P<name>\\[A-Z][a-z]+|[a-zA-Z])"
    r"(?:_(?:\{\s*(?P<below>[0-9a-zA-Z]+)\s*\}|(?P<short>[0-9a-zA-Z])))?"
)
_INTEGRAL = re.compile(r"\\int(?![a-zA-Z])|\\frac\{d")
_ATOM = re.compile(
    r"(?<![\\a-z])(?:([a-z]|\\(?:pi|alpha|beta|gamma|delta|epsilon|theta|lambda|mu|nu|rho|sigma|tau"
    r"|phi|omega)(?![a-zA-Z]))(?:_\{(\w+)\})?|(\d+(?:\.\d+)?|\.\d+))"
)
# Differentials, words, names of functions, powers of powers, `^10`, `^-`, mixed numbers.
_UNCLEAR = re.compile(
    r"/|\\frac\s*\{\s*d|(?<![\\a-zA-Z])[a-z]{3}|\^\s*(?:\{[^{}]*\}|\w)\s*\^|\^\s*(?:\d\d|[^\s\w{])"
    r"|[\d.]\s+[\d.]|\.\d*\.|[)}]\s*[\d.]|[\d)}]\s*\\frac|(?<![\\a-zA-Z])(?:ln|lg|pi)"
)
_TIMES = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])")
_ARGUMENT = r"\s*\{([^{}]*)\}"
_AS_PYTHON = rules(
    (r"\\frac" + 2 * _ARGUMENT, r"((\1)/(\2))"),
    (r"\\sqrt" + _ARGUMENT, r"((\1)**n0)"),
    (r"\^" + _ARGUMENT, r"**(\1)"),
)
_FUNCTION = re.compile(r"v\d+\s*\(")
_PYTHON = re.compile(r"(?:[+*()^\s-]|[vn]\d+|/(?=\())+")
_SIDE_BY_SIDE = re.compile(r"(?:[vn]\d+|\))\s*(?=[vn(])")
_CONSTANTS = {"e": sympy.E, "i": sympy.I, "pi": sympy.pi}


def read_algebra(text: str) -> Any | None:
    """The sympy expression of plain algebra; None for anything else."""
    values = {"n0": sympy.Rational(1, 2)}

    def named(m: re.Match[str]) -> str:
        letter, below, numeral = m.groups()
        name = f"{'n' if numeral else 'v'}{len(values)}"
        values[name] = sympy.Rational(numeral) if numeral else _meaning(letter.lstrip("\\"), below)
        return f" {name} "

    if _UNCLEAR.search(text):
        return None
    written = _ATOM.sub(named, _TIMES.sub("*", distinct_letters(text)))
    if _FUNCTION.search(written):
        return None
    written = rewritten_inside_out(written, _AS_PYTHON)
    if not _PYTHON.fullmatch(written):
        return None
    written = _SIDE_BY_SIDE.sub(r"\g<0>*", written.replace("^", "**"))
    try:  # There is nothing in it but names of values and signs.
        value = eval(written.strip(), {"__builtins__": {}}, values)
    except (SyntaxError, TypeError, RecursionError):
        return None
    return value if isinstance(value, sympy.Expr) else None


def distinct_letters(text: str) -> str:
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


def _meaning(letter: str, below: str | None) -> Any:
    """The constant or symbol, by the name that math-verify's parser gives it."""
    if below is None:
        return _CONSTANTS.get(letter) or sympy.Symbol(letter, real=True)
    index = below if len(below) == 1 else f"{{{below}}}"
    return sympy.Symbol(f"{letter}_{index}", real=True)


# --- Formula --------------------------------------------------------------------------

# What the parser reads without loss: no degrees, no bare names, no floats.
_PARSABLE = rules(
    (r"(\d*)\.(\d*)\\(?:overline|dot|bar)\s*\{(\d+)\}", lambda m: _repeating(*m.groups())),
    # The parser adds adjacent numerals, as in mixed numbers: `2(3)` would be 5.
    (
        r"((?<![_\d.])\d+(?:\.\d+)?\s*(?=\(\s*\d)|\)\s*(?=\(?\s*\d|\\frac\{\d)"
        r"|\\frac\{[^{}]*\}\{[^{}]*\}\s*(?=\d))",
        r"\1\\cdot ",
    ),
    # Alone it reads the mixed number that it is, before a letter a product.
    (r"(?<![\d.^_}])(\d+)\s*(\\frac\{\d+\}\{\d+\})(?=\s*(?:[a-zA-Z]|\\[a-z]))", r"(\1+\2)"),
    (r"(\d+|\\frac\{\d+\}\{\d+\})\s*\^\\circ", r"(\\frac{\1\\pi}{180})"),
    (r"(?<![\d.])\d*\.\d+(?![\d.])", lambda m: f"{{({_as_latex(Fraction(m[0]))})}}"),
    (r"(?<![\\a-zA-Z])a(?:rc?)?(sinh|cosh|tanh|sin|cos|tan)(?![a-z])", r"\\\1^{-1} "),
    (
        r"(?<![\\a-zA-Z])(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc"
        r"|log|ln|exp|pi|infty)(?![a-z])",
        r"\\\1 ",
    ),
)
_MISREAD = re.compile(
    r"\d_|(?<![_^\d])\d+\s+\d+(?!\s*/|\d)|(?<![\w^}])\d+\{"
)  # `4_2` as 4, `2 3` as 5
_WORD = re.compile(r"(?<![\\a-zA-Z])(?:or|and)(?![a-zA-Z])")  # `P or Q`, four letters
# The stripper of units takes the last letter of `2\pi r h` for hours.
_AS_WRITTEN = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
    )
)
ARGUMENTS = re.compile(r"\\(?:gcd|lcm|min|max)\s*\([^()]*\)")  # they have commas

# The parser ignores what it does not know: `3 \approx 5` would be 3. So only this is allowed.
_FOREIGN = re.compile(r"[^0-9a-zA-Z+\-*/^_(){}|!.\\ '\[\]&=]")
_COMMAND = re.compile(r"\\([a-zA-Z]+|.)")
_COMMANDS = frozenset(
    listed(
        "\\ frac sqrt cdot times div pi sin cos tan cot sec csc arcsin arccos arctan sinh cosh "
        "tanh log ln lg exp binom sum prod int lim to infty lfloor rfloor lceil rceil circ "
        "overline dot bar begin end det gcd lcm max min mod d hbar ell alpha beta gamma delta "
        "epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
        "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega"
    )
)

MAX_POWER_WITH_LETTERS = 10  # of a matrix

Expression = Any  # sympy ships no types


@lru_cache(maxsize=4096)
def expression(text: str) -> Expression | None:
    """The sympy expression of a leaf, None if it is not one. Cached, because references recur."""
    number = read_plain(text)
    if number is not None:
        value = sympy.Rational(number.value.numerator, number.value.denominator)
        in_degrees = number.unit and number.unit.dimension == DEGREE
        return value * sympy.pi / 180 if in_degrees else value
    if _WORD.search(text):
        return None
    algebra = read_algebra(text)
    return parsed(text) if algebra is None else algebra


def parsed(text: str) -> Expression | None:
    bare = ARGUMENTS.sub(" ", text)
    if _FOREIGN.search(bare) or _MISREAD.search(text) or set(_COMMAND.findall(text)) - _COMMANDS:
        return None
    try:
        found = parse(
            f"${distinct_letters(rewritten(text, _PARSABLE))}$",
            extraction_config=[_AS_WRITTEN],
            fallback_mode="no_fallback",
            parsing_timeout=None,  # the parent enforces the deadline
            raise_on_error=True,
        )
    except MemoryError:
        raise  # our failure, which says nothing about the answer
    except Exception:  # the parser's many ways to reject what is not mathematics
        return None
    value = found[0] if found else None
    if ENVIRONMENT in text:
        value = _carried_out(value)
    return _with_constants(value) if isinstance(value, sympy.MatrixBase | sympy.Expr) else None


def _carried_out(value: Expression | None) -> Expression | None:
    """The matrix that sums, products and powers of matrices are; None for `A^T`."""
    if isinstance(value, sympy.Basic):
        if any(map(_is_endless, value.atoms(sympy.Pow))):
            return None
        value = value.doit()
    return sympy.ImmutableMatrix(value) if _is_matrix(value) else value


def _is_endless(power: Expression) -> bool:
    """Whether it is a matrix to a power whose entries, sums of products, grow beyond all memory."""
    letters = power.base.free_symbols
    is_small = power.exp.is_Integer and (not letters or -1 <= power.exp <= MAX_POWER_WITH_LETTERS)
    return _is_matrix(power.base) and not is_small


def _is_matrix(value: Any) -> bool:
    return isinstance(value, sympy.MatrixExpr | sympy.MatrixBase)


def _repeating(whole: str, once: str, again: str) -> str:
    value = int(whole + once + again) - int(f"0{whole}{once}")
    return _as_latex(Fraction(value, 10 ** len(once) * (10 ** len(again) - 1)))


def _as_latex(value: Fraction) -> str:
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _with_constants(value: Expression) -> Expression:
    # `\frac{dy}{dx}`, which sympy would take for 0: what `y` depends on is not known.
    unknown = [
        d for d in value.atoms(sympy.Derivative) if d.expr.is_Symbol and d.expr != d.variables[0]
    ]
    value = value.xreplace({d: sympy.Symbol(str(d), real=True) for d in unknown})
    constants = {"i": sympy.I, "e": sympy.E}
    # Beside matrices the parser's symbols are another kind of the same name.
    found = {s: constants.get(s.name, sympy.Symbol(s.name, real=True)) for s in value.free_symbols}
    return value.xreplace(found) if found else value


# --- Sets of real numbers, written with operations: `\cup`, `\setminus`, `x \ne 2`, `|x| < 1`

_MINUS = re.compile(r"\s*\\(?:setminus|backslash)(?![a-zA-Z])\s*|(?<=[})\]])\s*-\s*(?=\\?\{)")
_BOTH = re.compile(r"\s*\\cap(?![a-zA-Z])\s*|\s*,\s*")
_EXCEPT = re.compile(rf"({LETTER}\s*\\ne(?![a-zA-Z])\s*)([^,]+),\s*(?=[^,\\]+$)")
_UNEQUAL = re.compile(rf"{LETTER}\s*\\ne\s+(.+)$")
_ABSOLUTE = re.compile(rf"\|\s*({LETTER})\s*\|")


def _real_set(text: str) -> Any | None:
    text = re.sub(r"^[a-zA-Z]\s*(?:\\in(?![a-zA-Z])|=(?=\s*\\?\{))", "", text).strip()
    text = _EXCEPT.sub(r"\1\2, \1", condition(text))  # `x \ne 2, 3`
    for separator, combine in (
        (_MINUS, sympy.Complement),
        (UNION, sympy.Union),
        (_BOTH, sympy.Intersection),
    ):
        parts = split_top(text, separator)
        if 1 < len(parts) <= MAX_ITEMS:
            sets = [_real_set(part) for part in parts]
            return None if None in sets else reduce(combine, sets)
    if unequal := _UNEQUAL.match(text):
        point = _real_number(unequal[1])
        return None if point is None else sympy.Reals - sympy.FiniteSet(point)
    text = re.sub(r"^\{(.*)\}$", r"\\{\1\\}", text)
    bare = _ABSOLUTE.sub(r"\1", text)
    items = read_set(bare) or read_collection(bare)
    ends: list[Any] = [_real_number(item) for item in items.items] if items else []
    if items is None or None in ends:
        return None
    if items.kind == "set":
        return sympy.FiniteSet(*ends)
    if items.kind[0] not in "([" or len(ends) != 2 or ends[0] > ends[1]:
        return None  # `(2, 1)` is a mistake, not the empty set
    found = sympy.Interval(*ends, items.kind[0] == "(", items.kind[1] == ")")
    if _ABSOLUTE.search(text):
        found &= sympy.Interval(0, sympy.oo)
        found |= sympy.imageset(operator.neg, found)
    return found


# --- Values of expressions to many digits, at points where two of them are compared ---

mpmath.mp.dps = 550  # for this worker process: quotients keep enough digits
DIGITS = 80
_CONFIRMED_DIGITS = 500  # for two expressions that agree to DIGITS
_FLOOR = mpmath.mpf(10) ** -15
AGREEMENT = mpmath.mpf(10) ** -60
_CONFIRMED = mpmath.mpf(10) ** -450
# Real points, no two related by a simple identity; negative ones distinguish |x| from x.
_POINTS = [
    [sympy.Rational(part) for part in point.split()]
    for point in (
        "7/11 13/29 17/43 31/61", "19/7 37/13 41/17 23/19", "53/9 71/31 5/47 83/37",
        "-9/13 11/23 -29/17 3/41", "-31/8 -43/19 7/37 -61/23", "3/67 -2/71 -59/31 47/5",
    )
]  # fmt: skip
_CARRIED_OUT = (
    sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative, sympy.Mod,
    sympy.UnevaluatedExpr,
)  # fmt: skip


def fraction(value: Any) -> Fraction:
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


def evaluations(f: Expression, g: Expression, digits: int = DIGITS) -> Iterator[tuple[Any, Any]]:
    """Both values at each point where both exist and are both real or both complex.

    Where a root has letters, these are lengths or counts: only positive values of them count.
    """
    roots = [_roots(each) for each in (f, g)]
    is_root = all(roots) and any(has_letters for each in roots for has_letters in each)
    symbols = sorted(f.free_symbols | g.free_symbols, key=str)
    counted = _counts(f) | _counts(g)
    for place, point in enumerate(_POINTS if symbols else _POINTS[:1]):
        at = {
            s: sympy.Integer(place + 2 * k + 2) if s in counted else point[k % 4] + k // 4
            for k, s in enumerate(symbols)
        }
        negative = any(v < 0 for v in at.values())
        y = None if negative and is_root else evaluate(g, at, digits)
        x = None if y is None else evaluate(f, at, digits)
        if x is None:
            continue
        # log(x^2) and 2 log(x) differ only where one of them is not real.
        if not negative or (mpmath.im(x) == 0) == (mpmath.im(y) == 0):
            yield x, y


def _roots(value: Expression) -> list[bool]:
    """Whether each root, and each absolute value beside a power, has letters."""
    powers = value.atoms(sympy.Pow)
    roots = [p for p in powers if p.exp.is_Rational and not p.exp.is_Integer]
    absolute = value.atoms(sympy.Abs) if powers else ()
    return [bool(each.free_symbols) for each in (*roots, *absolute)]


def _counts(value: Expression) -> set[Any]:
    """The symbols that bound a sum or product, which have a value at whole numbers only."""
    bounds = [bound for each in value.atoms(sympy.Sum, sympy.Product) for bound in each.limits]
    return {s for _, *ends in bounds for end in ends for s in end.free_symbols}


def evaluate(value: Expression, at: dict[Any, Any], digits: int = DIGITS) -> Any | None:
    """None if it has no value there."""
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
_MODULUS = re.compile(r"\\p?mod(?![a-zA-Z])(.*)")
_COMPARISON = re.compile(r"\s*(=|<|>|\\(?:le|ge|ne)(?![a-zA-Z]))\s*")


def equivalent(answer: str, reference: str) -> bool:
    """Equal in structure, numbers and expressions. A ValueError: the reference cannot be parsed."""
    return same(plain(answer), plain(reference), _same_leaf)


def check(reference: str) -> None:
    """Read a reference as an answer would be compared with it, part by part; a ValueError: a part
    cannot be parsed, or has no value."""
    for part in parts(plain(reference)):
        same(_ANY_FORMULA, part, _same_leaf)


def _same_leaf(answer: str, reference: str) -> bool:
    a, b = read_plain(answer), read_plain(reference)
    if a and b:
        return same_number(a, b)
    if is_prose(answer) or is_prose(reference):
        return False
    if OPERATION.search(answer) or OPERATION.search(reference):
        found, wanted = (_real_set(text) for text in (answer, reference))
        if wanted is not None or not OPERATION.search(reference):
            return bool(found is not None and found == wanted)
    if "," in ARGUMENTS.sub("", answer + reference):  # an unknown structure: no guessing
        return False
    x, y = (split_top(side, _COMPARISON, keep=True) for side in (answer, reference))
    if len(x) == 3 and len(y) == 3:
        return _same_relation(x, y)
    if len(x) > 1 or len(y) > 1:
        return False
    # `1 \mod 5` and `1 \mod 7` have one value, and are two classes of numbers.
    modulus, other = _MODULUS.search(answer), _MODULUS.search(reference)
    if modulus and other and not _same_leaf(modulus[1], other[1]):
        return False
    (left, unit), (right, expected) = (
        (text, number.unit) if number else split_unit(text)
        for text, number in ((answer, a), (reference, b))
    )
    factor = agree(unit, expected)
    known = expression(right)
    if known is None:
        raise ValueError("the reference is not mathematics")
    answered = expression(left)
    if answered is None or factor is None:
        return False
    if factor != 1:
        known = sympy.Rational(factor.numerator, factor.denominator) * known
    return _same_expression(answered, known, a, b)


def _real_number(text: str) -> Any | None:
    """The value of an end of an interval, to so few digits that equal ones have one value."""
    if infinite := INFINITY.match(text):
        return -sympy.oo if infinite[1] == "-" else sympy.oo
    exact = expression(text)
    found = evaluate(exact, {}) if exact is not None and not exact.free_symbols else None
    if found is None or mpmath.im(found) != 0:
        return None
    return sympy.Rational(int(mpmath.nint(found * 10**40)), 10**40)


def _same_relation(a: list[str], b: list[str]) -> bool:
    left, right, known, value = (expression(t) for t in (a[0], a[2], b[0], b[2]))
    if value is None or (known is None and ":" not in b[0]):  # `A:B` is a name
        raise ValueError("the reference is not mathematics")
    if left is None or right is None or known is None:
        return False
    f, g = left - right, known - value
    ratios = [x / y for x, y in evaluations(f, g) if y]
    if len(ratios) < 4 or not all(close(ratio, ratios[0], AGREEMENT) for ratio in ratios):
        return False
    positive = mpmath.re(ratios[0]) > 0
    wanted = b[1] if positive else TURNED.get(b[1], b[1])
    return bool(abs(ratios[0]) > 0 and a[1] == wanted)


def _same_expression(
    f: Expression, g: Expression, a: Number | None = None, b: Number | None = None
) -> bool:
    if any(isinstance(each, sympy.MatrixBase) for each in (f, g)):
        is_like = _is_matrix(f) and _is_matrix(g) and f.shape == g.shape
        return is_like and all(map(_same_expression, f, g))
    if g.has(sympy.zoo, sympy.nan):
        raise ValueError("the reference has no value")
    if f == g:
        return True
    if not f.free_symbols | g.free_symbols:
        x, y = evaluate(f, {}), evaluate(g, {})
        if y is None:
            raise ValueError("the reference has no value")
        # A decimal equals an irrational number only if it is its rounding to enough digits.
        for decimal, exact in ((a, y), (b, x)):
            if decimal and decimal.ulp and exact is not None and mpmath.im(exact) == 0:
                return x is not None and _rounded(decimal, fraction(mpmath.re(exact)))
        if f.is_Rational and g.is_Rational:
            return False  # equal ones compare equal above
    if not _agree(f, g, DIGITS, AGREEMENT):
        return False
    # More digits would need a numerical integral or sum, which may not terminate.
    endless = any(e.has(sympy.Integral, sympy.Sum) for e in (f, g))
    return endless or _agree(f, g, _CONFIRMED_DIGITS, _CONFIRMED)  # 10^{100} and 10^{100}+1


def _agree(f: Expression, g: Expression, digits: int, within: Any) -> bool:
    """Whether they agree at all points, because where values are large, `+ 1` is far behind."""
    points = 0
    for x, y in evaluations(f, g, digits):
        if not close(x, y, within):
            return False
        points += 1
    return points >= (3 if f.free_symbols | g.free_symbols else 1)


def _rounded(decimal: Number, exact: Fraction) -> bool:
    """The decimal rule of the exact tier, for a value known to `DIGITS` digits."""
    short = Fraction(round(exact * 10**20), 10**20)
    if abs(short - exact) < abs(exact) / 10**60:  # such as 2^{64}, which has a finite decimal
        return same_number(decimal, Number(short))
    return rounds_to(decimal, exact)
