r"""The symbolic tier: math-verify parses leaves, which are compared numerically at high precision.

It runs only inside pool workers: parsing and evaluation may hang or exhaust memory, and only the
parent can enforce a deadline. math-verify's own comparison is not used: it rounds to six places
(1/2^99 equals 1/2^98) and is not symmetric. Instead two expressions are equal if they agree to 60
digits at rational points (Schwartz-Zippel).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse
from sympy.functions.elementary.hyperbolic import HyperbolicFunction

from .fractions_and_decimals import Number, read_plain, rounds_to, same_number
from .intervals import LETTER, OPERATION, ORDER, REALS, Interval, bracketed, condition, ordered
from .lists import MAX_ITEMS, split_items
from .notation import plain, split_top
from .structure import ENVIRONMENT, is_prose, parts, same
from .units import DEGREE, agree, split_unit
from .words import listed

# --- Formula --------------------------------------------------------------------------
# Formulas: a leaf in LaTeX as an expression or matrix of sympy, parsed by math-verify.
#
# It runs only inside pool workers: parsing may hang or exhaust memory.

# --- Plain algebra without math-verify's parser, which takes 20 ms for a formula ------
# What is written with numerals, letters, `+ - \cdot ^`, round brackets, `\frac`, `\sqrt` and `\pi`
# is rewritten as Python and read by Python's own parser, in a fraction of a millisecond. All else,
# and whatever might be read in two ways (`1/2x`, `f(x)`, `2\frac{1}{3}`), is left to the other.

# What letters are in a formula: environments, commands, differentials, words below, single letters.
_LETTER = re.compile(
    r"(?P<kept>\\(?:begin|end)\s*\{[a-zA-Z]+\}|\\[a-z][a-zA-Z]*|\\[^a-zA-Z])"
    r"|(?P<name>\\[A-Z][a-z]+|[a-zA-Z])"
    r"(?:_(?:\{\s*(?P<below>[0-9a-zA-Z]+)\s*\}|(?P<short>[0-9a-zA-Z])))?"
)
_INTEGRAL = re.compile(r"\\int(?![a-zA-Z])|\\frac\{d")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<letter>[a-z]|\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda"
    r"|mu|nu|rho|sigma|tau|phi|omega)(?![a-zA-Z]))(?:_\{(?P<below>\w+)\})?(?![_'])"
    r"|(?P<pi>\\pi)(?![a-zA-Z])|(?P<frac>\\frac)\s*(?=\{)|(?P<sqrt>\\sqrt)\s*(?=\{)"
    r"|(?P<times>\\(?:cdot|times)(?![a-zA-Z])|\*)|(?P<power>\^)\s*(?=\{|\d(?!\d)|[a-z])"
    r"|(?P<sign>[+-])|(?P<open>[({])|(?P<close>[)}]))"
)
# Differentials, words, names of functions, powers of powers.
_UNCLEAR = re.compile(
    r"\\frac\s*\{\s*d|(?<![\\a-zA-Z])[a-z]{3}|(?<![\\a-zA-Z])(?:ln|lg|pi)|\^\s*(?:\{[^{}]*\}|\w)\s*\^"
)
_KINDS = tuple(name for name in _TOKEN.groupindex if name != "below")
_CONSTANTS = {"e": sympy.E, "i": sympy.I, "PI": sympy.pi, "HALF": sympy.Rational(1, 2)}
_VALUE = frozenset({"number", "letter", "pi", "close"})  # after these a factor may follow
_FACTOR = frozenset({"number", "letter", "pi", "frac", "sqrt", "open"})
_ADJACENT = {("number", "number"), ("number", "frac"), ("close", "number"), ("close", "frac")}
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def read_algebra(text: str) -> Any | None:
    """Return the sympy expression of plain algebra; None for anything else."""
    symbols = list[Any]()
    written = None if _UNCLEAR.search(text) else _as_python(distinct_letters(text), symbols)
    if written is None:
        return None
    try:
        tree = ast.parse(written, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _value(tree.body, symbols)


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


def _as_python(text: str, symbols: list[Any]) -> str | None:
    """Return the formula in Python's notation, with a star where factors stand side by side.

    A letter is `v0`, `v1`, ... and its meaning the next of `symbols`.
    """
    at, before, pieces = 0, "", list[str]()
    closings = list[str]()  # what each open bracket is closed by
    pending = ""  # what the next bracket opens: `frac`, `under` (its second) or `sqrt`
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        kind = next(name for name in _KINDS if found[name])
        token, at = found[kind], found.end()
        if before in _VALUE and kind in _FACTOR and pending != "under":
            if (before, kind) in _ADJACENT or (before == "letter" and token == "("):
                return None
            pieces.append("*")
        if pending and token != "{":
            return None
        if kind == "open":
            closings.append(pending or token)
            pending = ""
            pieces.append("(")
        elif kind == "close":
            opened = closings.pop() if closings else ""
            if token != (")" if opened == "(" else "}"):
                return None
            pieces.append({"frac": ")/", "under": "))", "sqrt": ")**HALF)"}.get(opened, ")"))
            if opened == "frac":
                pending, kind = "under", "frac"
        elif kind in ("frac", "sqrt"):
            pending = kind
            pieces.append("(")
        elif kind == "letter":
            pieces.append(f"v{len(symbols)}")
            symbols.append(_meaning(token.lstrip("\\"), found["below"]))
        else:
            pieces.append({"times": "*", "power": "**", "pi": "PI"}.get(kind, token))
        before = kind
    return None if closings or pending else "".join(pieces)


def _meaning(letter: str, below: str | None) -> Any:
    """Return the constant or symbol, by the name that math-verify's parser gives it."""
    if below is None:
        return _CONSTANTS.get(letter) or sympy.Symbol(letter, real=True)
    index = below if len(below) == 1 else f"{{{below}}}"
    return sympy.Symbol(f"{letter}_{index}", real=True)


def _value(node: ast.expr, symbols: list[Any]) -> Any | None:
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, symbols), _value(node.right, symbols)
        if left is None or right is None:
            return None
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, symbols)
        return value if value is None or isinstance(node.op, ast.UAdd) else -value
    if isinstance(node, ast.Name):
        return _CONSTANTS[node.id] if node.id in _CONSTANTS else symbols[int(node.id[1:])]
    if isinstance(node, ast.Constant):
        return sympy.Rational(str(node.value))
    return None


# --- Formula --------------------------------------------------------------------------

_ARRAY = re.compile(r"\\(begin|end)\{array\}(?:\{[lcr|]*\})?")
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
_WORD = re.compile(r"(?<![\\a-zA-Z])(?:or|and)(?![a-zA-Z])")  # `P or Q`, four letters
# Alone the parser reads it as the mixed number that it is, before a letter as a product.
_MIXED = re.compile(r"(?<![\d.^_}])(\d+)\s*(\\frac\{\d+\}\{\d+\})(?=\s*(?:[a-zA-Z]|\\[a-z]))")
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
        "overline dot bar begin end det gcd lcm max min bmod mod d hbar ell alpha beta gamma delta "
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
        return sympy.Rational(number.value.numerator, number.value.denominator)
    if _WORD.search(text):
        return None
    algebra = read_algebra(text)
    return parsed(text) if algebra is None else algebra


def parsed(text: str) -> Expression | None:
    """Return the expression by math-verify's parser."""
    bare = ARGUMENTS.sub(" ", text)
    if _FOREIGN.search(bare) or _MISREAD.search(text) or set(_COMMAND.findall(text)) - _COMMANDS:
        return None
    try:
        found = parse(
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
    value = found[0] if found else None
    if ENVIRONMENT in text:
        value = _carried_out(value)
    if isinstance(value, sympy.MatrixBase):
        return _with_constants(value)
    return _with_constants(value) if isinstance(value, sympy.Expr) else None


def _carried_out(value: Expression | None) -> Expression | None:
    """Return the matrix that sums, products and powers of matrices are; None for `A^T`."""
    if isinstance(value, sympy.Basic):
        powers = [p for p in value.atoms(sympy.Pow) if _is_matrix(p.base)]
        if any(not p.exp.is_Integer or _is_endless(p) for p in powers):
            return None
        value = value.doit()
    return sympy.ImmutableMatrix(value) if _is_matrix(value) else value


def _is_endless(power: Expression) -> bool:
    """Return whether the entries, which are sums of products of letters, grow beyond all memory."""
    return bool(power.base.free_symbols) and not -1 <= power.exp <= MAX_POWER_WITH_LETTERS


def _is_matrix(value: Any) -> bool:
    return isinstance(value, sympy.MatrixExpr | sympy.MatrixBase)


def _parsable(text: str) -> str:
    """Return the form that the parser reads without loss: no floats, no degrees, no bare names."""
    text = _ARRAY.sub(r"\\\1{matrix}", text).replace("\\bmod", "\\mod")
    if "\\begin" not in text:  # no rows: a command escaped twice
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    text = _PRODUCT.sub(r"\1\\cdot ", _REPEATING.sub(_repeating, text))
    text = _MIXED.sub(r"(\1+\2)", text)
    text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    text = _DECIMAL.sub(lambda m: rf"{{(\frac{{{int(m[1] + m[2])}}}{{{10 ** len(m[2])}}})}}", text)
    text = _NAMED_FUNCTION.sub(r"\\\1 ", _INVERSE.sub(r"\\\1^{-1} ", text))
    return distinct_letters(text)


def _repeating(m: re.Match[str]) -> str:
    once, again = m[2], m[3]
    nines = 10 ** len(once) * (10 ** len(again) - 1)
    value = int(m[1] + once + again) - int((m[1] + once) or "0")
    return rf"\frac{{{value}}}{{{nines}}}"


def _with_constants(value: Expression) -> Expression:
    # `\frac{dy}{dx}`, which sympy would take for 0: what `y` depends on is not known.
    value = value.replace(_is_unknown_derivative, lambda d: sympy.Symbol(str(d), real=True))
    constants = {"i": sympy.I, "e": sympy.E}
    # Beside matrices the parser's symbols are another kind of the same name.
    found = {s: constants.get(s.name, sympy.Symbol(s.name, real=True)) for s in value.free_symbols}
    return value.xreplace(found) if found else value


def _is_unknown_derivative(value: Any) -> bool:
    return (
        isinstance(value, sympy.Derivative)
        and value.expr.is_Symbol
        and value.expr != value.args[1][0]
    )


# --- Symbolic -------------------------------------------------------------------------

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
    """Return a real number of mpmath, exactly."""
    # private: mpmath==1.3.0, tests/operators/verifier/test_forms.py::test_form
    numerator, denominator = mpmath.libmp.to_rational(value._mpf_)
    return Fraction(int(numerator), int(denominator))


def _mpf(value: Expression, digits: int) -> Any:
    # private: sympy==1.14.0, tests/operators/verifier/test_forms.py::test_form
    return mpmath.mpf(value._to_mpmath(digits * 4))


def close(x: Any, y: Any, within: Any) -> bool:
    """Return whether two values agree to a relative error."""
    # An exact 0 may be computed as a rounding error of what cancelled: hence the floor.
    return bool(abs(x - y) <= within * max(abs(x), abs(y), _FLOOR))


def confirmed(f: Expression, g: Expression) -> bool:
    """Return whether two values that agree to `DIGITS` agree at all points to many more digits.

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
    """Return the digits, before or after the point, of the largest number or power in it."""
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
    """Yield both values at each point where both exist and are both real or both complex.

    Where a root has letters, these are lengths or counts: only positive values of them count.
    """
    roots = [_roots(each) for each in (f, g)]
    is_root = all(roots) and any(has_letters for each in roots for has_letters in each)
    symbols = sorted(f.free_symbols | g.free_symbols, key=str)
    counted = _counts(f) | _counts(g)
    for place, point in enumerate(_POINTS):
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
    """Return the symbols that bound a sum or product, which have a value at whole numbers only."""
    bounds = [bound for each in value.atoms(sympy.Sum, sympy.Product) for bound in each.limits]
    return {s for _, *ends in bounds for end in ends for s in end.free_symbols}


def evaluate(value: Expression, at: dict[Any, Any], digits: int = DIGITS) -> Any | None:
    """Return the value at a point, None if it has none."""
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
    """Return whether two bare answers are equal in structure, numbers and expressions.

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
    a, b = read_plain(answer), read_plain(reference)
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
    """Return a function from ends of intervals to their values: equal ones have one value."""
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
    if number and other is None and known and known.dimension == DEGREE:
        return value * sympy.pi / 180
    return value


# --- comparing ------------------------------------------------------------------------


def _same_relation(a: list[str], b: list[str]) -> bool:
    """Return two equations or inequalities: one is the other times a constant."""
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
    """Return whether they agree at all points, to some digits and then to many more."""
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
    """Return the decimal rule of the exact tier, for a value known to `DIGITS` digits."""
    short = Fraction(round(exact * 10**20), 10**20)
    if abs(short - exact) < abs(exact) / 10**60:  # such as 2^{64}, which has a finite decimal
        return same_number(decimal, Number(short))
    return rounds_to(decimal, exact)
