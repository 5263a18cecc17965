r"""Plain algebra without math-verify's parser, which takes 20 ms for a formula.

What is written with numerals, single letters, `+ - \cdot ^`, round brackets, `\frac`, `\sqrt` and
`\pi` is rewritten as Python and read by Python's own parser, in a fraction of a millisecond. All
else, and whatever might be read in two ways (`1/2x`, `f(x)`, `2\frac{1}{3}`), is left to the other.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

import sympy

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<letter>[a-z])(?![_'])|(?P<pi>\\pi)(?![a-zA-Z])"
    r"|(?P<frac>\\frac)\s*(?=\{)|(?P<sqrt>\\sqrt)\s*(?=\{)|(?P<times>\\(?:cdot|times)(?![a-zA-Z])|\*)"
    r"|(?P<power>\^)\s*(?=\{|\d(?!\d)|[a-z])|(?P<sign>[+-])|(?P<open>[({])|(?P<close>[)}]))"
)
# Differentials, words, names of functions, powers of powers.
_UNCLEAR = re.compile(
    r"\\frac\s*\{\s*d|(?<![\\a-zA-Z])[a-z]{3}|(?<![\\a-zA-Z])(?:ln|lg|pi)|\^\s*(?:\{[^{}]*\}|\w)\s*\^"
)
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
    written = None if _UNCLEAR.search(text) else _as_python(text)
    if written is None:
        return None
    try:
        tree = ast.parse(written, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _value(tree.body)


def _as_python(text: str) -> str | None:
    """The formula in Python's notation, with a star where factors stand side by side."""
    at, before, pieces = 0, "", list[str]()
    closings = list[str]()  # what each open bracket is closed by
    pending = ""  # what the next bracket opens: `frac`, `under` (its second) or `sqrt`
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        kind = found.lastgroup if found else None
        if found is None or kind is None:
            return None
        token, at = found[kind], found.end()
        if before in _VALUE and kind in _FACTOR and pending != "under":
            if (before, kind) in _ADJACENT or (before == "letter" and token == "("):
                return None
            pieces.append("*")
        if kind == "open":
            if pending and token != "{":
                return None
            closings.append(pending or token)
            pending = ""
            pieces.append("(")
        elif kind == "close":
            opened = closings.pop() if closings else ""
            if token != (")" if opened == "(" else "}"):
                return None
            pieces.append({"frac": ")/", "under": "))", "sqrt": ")**H)"}.get(opened, ")"))
            if opened == "frac":
                pending, kind = "under", "frac"
        elif kind in ("frac", "sqrt"):
            pending = kind
            pieces.append("(")
        else:
            pieces.append({"times": "*", "power": "**", "pi": "P"}.get(kind, token))
        before = kind
    return None if closings or pending else "".join(pieces)


def _value(node: ast.expr) -> Any | None:
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if left is None or right is None:
            return None
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand)
        return value if value is None or isinstance(node.op, ast.UAdd) else -value
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id) or sympy.Symbol(node.id, real=True)
    if isinstance(node, ast.Constant):
        return sympy.Rational(str(node.value))
    return None


_NAMES = {"e": sympy.E, "i": sympy.I, "P": sympy.pi, "H": sympy.Rational(1, 2)}
