r"""Formulas: a leaf in LaTeX as an expression or matrix of sympy, parsed by math-verify.

It runs only inside pool workers: parsing may hang or exhaust memory.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse

from .exact import read_plain
from .structure import ENVIRONMENT
from .words import listed

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
    """The sympy expression of plain algebra; None for anything else."""
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
    """The formula in Python's notation, with a star where factors stand side by side.

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
    """The constant or symbol, by the name that math-verify's parser gives it."""
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
    """The expression by math-verify's parser."""
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
    """The matrix that sums, products and powers of matrices are; None for `A^T`."""
    if isinstance(value, sympy.Basic):
        powers = [p for p in value.atoms(sympy.Pow) if _is_matrix(p.base)]
        if any(not p.exp.is_Integer or _is_endless(p) for p in powers):
            return None
        value = value.doit()
    return sympy.ImmutableMatrix(value) if _is_matrix(value) else value


def _is_endless(power: Expression) -> bool:
    """Whether the entries, which are sums of products of letters, grow beyond all memory."""
    return bool(power.base.free_symbols) and not -1 <= power.exp <= MAX_POWER_WITH_LETTERS


def _is_matrix(value: Any) -> bool:
    return isinstance(value, sympy.MatrixExpr | sympy.MatrixBase)


def _parsable(text: str) -> str:
    """The form that the parser reads without loss: no floats, no degrees, no bare names."""
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
