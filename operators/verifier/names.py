r"""Names of answers: `x`, `f(2)`, `Area`, `\frac{AB}{CD}`."""

from __future__ import annotations

import re

from .intervals import LETTER, NOT_NAMES

_FUNCTION = (
    r"(?!(?:sin|cos|tan|cot|sec|csc|log|ln|exp)(?![a-z]))(?:[A-Za-z]{1,3}"
    r"|(?:[A-Za-z]|\\(?:[Pp]hi|varphi|[Pp]si|[Gg]amma|[Ss]igma|[Tt]heta))"
    r"(?:_(?:\{[^{}]*\}|\w))?)'*(?:\s*\^\s*\{\s*-1\s*\})?(?:\s*\([^()=]*\))"
)
_NAME = re.compile(
    rf"(?:{_FUNCTION}|{LETTER}|[A-Za-z][A-Za-z ]{{1,40}}|m?\\angle\s?[A-Z]+|[A-Z]{{2,3}}"
    rf"|\\(?:overline|vec|hat|bar)\s*\{{\s*[A-Za-z]+\s*\}}"
    rf"|\([a-zA-Z](?:\s*,\s*[a-zA-Z])+\)|{LETTER}(?:\s*[+-]\s*{LETTER}){{1,4}})$"
)
# A ratio, a length, an inverse or a derivative of names: in two unknowns an equation has no
# other reading.
_TERM = rf"(?:[A-Z]{{2,3}}|{LETTER})"
_QUANTITY = re.compile(
    rf"(?:{_TERM}(?:\s*[:/]\s*{_TERM})+|\\frac\{{{_TERM}\}}\{{{_TERM}\}}|\|\s*[A-Z]{{2,3}}\s*\|"
    r"|[A-Z]\^\{-1\}|\\frac\{d[a-zA-Z]\}\{d[a-z]\})$"
)
_OF_X = re.compile(r"[a-zA-Z]\(x\)$")


def is_name(text: str) -> bool:
    """Whether this is a name of an answer (`x`, `f(2)`, `Area`), not mathematics."""
    return bool(_NAME.match(text)) and text not in NOT_NAMES


def is_quantity(text: str) -> bool:
    """Whether this names an answer, as a ratio or length may."""
    # Names of coordinates have an order, which `_POINT_NAME` reads.
    return (is_name(text) and text[0] != "(") or bool(_QUANTITY.match(text))


def same_function(a: str, b: str) -> bool:
    """Whether one name is `y` and the other `f(x)`, two names of the same function."""
    return "y" in (a, b) and any(_OF_X.match(name) for name in (a, b))


def other_variable(a: str, b: str) -> bool:
    """Whether two symbols differ; `x = 3` does not answer `y = 3`, `Area = 3` may."""
    return (
        a != b
        and is_name(a)
        and is_name(b)
        and not any(re.match(r"[A-Za-z]{3}", name) for name in (a, b))
    )
