r"""Plain algebra without math-verify's parser, which takes 20 ms for a formula.

What is written with numerals, letters, `+ - \cdot ^`, round brackets, `\frac`, `\sqrt` and
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
