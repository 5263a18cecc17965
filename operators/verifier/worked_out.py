r"""Whether an answer is worked out, or only a formula with the right value.

An equal value does not show that a policy has solved a problem: the formula of the question, put
into a box, is equal to the answer of many. Where that matters, `is_worked_out` asks for the form
of the reference as well.
"""

from __future__ import annotations

import re

from .exact import read_number
from .limits import refusal

_OPERATIONS = re.compile(
    r"\\(sum|prod|i{0,3}nt|oint|lim|gcd|lcm|min|max|det|[dt]?binom|choose|[bp]?mod|lfloor|lceil)"
    r"(?![a-zA-Z])|(\\frac\s*\{\s*(?:d|\\partial)\s*\}|')|(!|\|)"
)
_STEPS = re.compile(r"(?<![<>!])=|\\approx(?![a-zA-Z])|≈")
_DELIMITERS = re.compile(r"\$|\\[()\[\]]|(?<!\\)\\[,;:! ]|\\(?:left|right)(?![a-zA-Z])")
_RATIO = re.compile(r"(?:/\s*|\}\s*\{\s*|\\[dtc]?frac\s*\d\s*\{?)(\d+)")
_CONSTANT = re.compile(
    r"(?:[\d.\s(){}\[\]^_/*+eiπ!-]|\\(?:[dtc]?frac|sqrt|pi|cdot|times|ln|lg|log|sin|cos|tan)(?![a-zA-Z]))+"
)
_ROOT_AS_POWER = re.compile(r"\^\s*\{\s*(\d+)\s*/\s*(\d+)\s*\}")
_PRODUCT = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])")
_SYMBOL = re.compile(r"\d+(?:\.\d+)?|\\[a-zA-Z]+|[a-zA-Z]|[-+/^*]")


def is_worked_out(answer: str, reference: str) -> bool:
    r"""Whether an answer has a form that a reference of this form asks for.

    * A reference that is a numeral (`42`, `\frac{3}{4}`, `0.5`, `12 cm`) asks for a numeral: no
      operation but a fraction in lowest terms. Of `x = 1 + 2 = 3` the end counts.
    * A constant (`2\sqrt{3}`, `\frac{\pi}{4}`) asks for a closed form of at most one symbol more
      than its own: a numeral, a letter, a command or a sign is a symbol.
    * No answer may have an operation (a sum, an integral, a derivative, a binomial) that the
      reference does not have.

    >>> is_worked_out(r"\sum_{k=1}^{100} k", "5050"), is_worked_out("n=5050", "5050")
    (False, True)
    """
    if answer == reference:
        return True
    if refusal(answer):
        return False
    value = _STEPS.split(_DELIMITERS.sub(" ", answer))[-1]
    if read_number(reference):
        number, ratio = read_number(value), _RATIO.search(value)
        return number is not None and (ratio is None or int(ratio[1]) == number.value.denominator)
    if set(_OPERATIONS.findall(value)) - set(_OPERATIONS.findall(reference)):
        return False
    known = _DELIMITERS.sub(" ", reference)
    return not _CONSTANT.fullmatch(known) or len(_symbols(value)) <= len(_symbols(known)) + 1


def _symbols(text: str) -> list[str]:
    return _SYMBOL.findall(_PRODUCT.sub(" ", _ROOT_AS_POWER.sub(r" \1 \2 ", text)))
