r"""Formulas: a leaf in LaTeX as an expression or matrix of sympy, parsed by math-verify.

It runs only inside pool workers: parsing may hang or exhaust memory.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse

from .algebra import distinct_letters, read_algebra
from .exact import read_plain
from .matrices import ENVIRONMENT
from .words import listed

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
