r"""Whether an answer is worked out, or only a formula with the right value.

An equal value does not show that a policy has solved a problem: the formula of the question, put
into a box, is equal to the answer of many. Where that matters, `is_worked_out` asks for the form
of the reference as well.
"""

from __future__ import annotations

import re

from .exact import read_number
from .limits import refusal

_OPERATORS = re.compile(
    r"\\(sum|prod|i{0,3}nt|oint|lim|gcd|lcm|min|max|det|[dt]?binom|choose|[bp]?mod|lfloor|lceil)"
    r"(?![a-zA-Z])|(\\frac\s*\{\s*(?:d|\\partial)\s*\}|')|(!|\|)"
)
_STEPS = re.compile(r"=|\\approx(?![a-zA-Z])|≈")
_RATIO = re.compile(r"(?:/\s*|\}\s*\{\s*|\\[dtc]?frac\s*\d\s*\{?)(\d+)")
_NAMES = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{[^{}]*\}|[a-zA-Z]\s*=")
_SYMBOL = re.compile(r"\d+(?:[.,]\d+)*|\\[a-zA-Z]+|[a-zA-Z]|[-+/^*]")
_LAYOUT = frozenset({r"\left", r"\right", r"\cdot", r"\times", r"\{", r"\,", r"\quad", r"\cup"})
_CONSTANTS = frozenset("eiπ")


def is_worked_out(answer: str, reference: str) -> bool:
    r"""Whether an answer has a form that a reference of this form asks for.

    * A reference that is a numeral (`42`, `\frac{3}{4}`, `0.5`, `12 cm`) asks for a numeral: no
      operation but a fraction in lowest terms. After `x =` or a chain, its end counts.
    * A constant (`2\sqrt{3}`, `(1,\pi)`) asks for a closed form of at most one symbol more than
      its own: a numeral, a letter, a command or a sign is a symbol.
    * No answer may have an operation (a sum, an integral, a derivative, a binomial) that the
      reference does not have.

    >>> is_worked_out(r"\sum_{k=1}^{100} k", "5050"), is_worked_out("n=5050", "5050")
    (False, True)
    """
    if answer == reference:
        return True
    if refusal(answer):
        return False
    value = _STEPS.split(answer)[-1]
    if read_number(reference):
        number = read_number(value)
        ratio = _RATIO.search(value)
        return bool(number) and (
            not ratio or number is None or int(ratio[1]) == number.value.denominator
        )
    if _operations(answer) - _operations(reference):
        return False
    known = _symbols(_STEPS.split(reference)[-1])
    if any(len(s) == 1 and s.isalpha() and s not in _CONSTANTS for s in known):
        return True
    return len(_symbols(value)) <= len(known) + 1


def _operations(text: str) -> set[str]:
    return {"".join(found) for found in _OPERATORS.findall(text)}


def _symbols(text: str) -> list[str]:
    return [s for s in _SYMBOL.findall(_NAMES.sub("", text)) if s not in _LAYOUT]
