r"""Whether an answer is worked out, or only a formula with the right value.

An equal value does not show that a policy has solved a problem: the formula of the question, put
into a box, is equal to the answer of many. So `is_worked_out` asks for the form of the reference.
"""

from __future__ import annotations

import re

from .fractions_and_decimals import read_number, refusal
from .notation import plain
from .structure import is_name
from .units import split_unit

_OPERATIONS = re.compile(
    r"\\(?:[dt](?=binom))?(sum|prod|i{0,3}nt|oint|lim|gcd|lcm|min|max|det|binom|choose|[bp]?mod"
    r"|lfloor|lceil)(?![a-zA-Z])|(\\frac\s*\{\s*(?:d|\\partial)\s*\}|')|((?<![a-zA-Z]{2})!|\|)"
)
_NUMERAL = re.compile(r"-?[\d,]*\d(?:\.\d+)?")
_STEPS = re.compile(r"(?<![<>!])=|\\approx(?![a-zA-Z])|≈")
_THOUSANDS = re.compile(r"(?<=\d),\s*\\!\s*(?=\d)")
_DELIMITERS = re.compile(r"\$|\\[()\[\]]|(?<!\\)\\[,;:! ]|\\(?:left|right)(?![a-zA-Z])")
_RATIO = re.compile(r"(?:/\s*|\}\s*\{\s*|\\[dtc]?frac\s*\d\s*\{?)(\d+)")
_CONSTANT = re.compile(
    r"(?:[\d.\s(){}\[\]^_/*+eiπ!-]|\\(?:[dtc]?frac|sqrt|pi|cdot|times|ln|lg|log|sin|cos|tan)(?![a-zA-Z]))+"
)
_ROOT_AS_POWER = re.compile(r"\^\s*\{\s*(\d+)\s*/\s*(\d+)\s*\}")
_PRODUCT = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])")
_SCIENTIFIC = re.compile(
    r"(?:\\times|\\cdot|[×·*x])\s*10\s*(?:\^|\*\*)|(?<=\A)\s*10\s*\^\s*\{?-?\d\d"
)
_UNDONE = re.compile(r"\^|\*\*|[-−+]\s*[-−+]")
_ORDINAL_OR_UNIT = re.compile(
    r"\^\s*(?:\{\s*)?(?:\\(?:text|mathrm)\s*\{\s*)?(?:st|nd|rd|th|\\circ)\b[\s}]*"
    r"|\\(?:text|mathrm)\s*\{(?:[^{}]|\{[^{}]*\})*\}(?:\s*\^\s*(?:\{[^{}]*\}|\d))?"
)
_BINOMIALS = {(name, "", "") for name in ("binom", "choose")}
_UNDONE_PRODUCT = re.compile(r"\d\s*(?:\\cdot|\\times|[×·*])\s*\d+(?!\d*\s*\^)")
_SYMBOL = re.compile(r"\d+(?:\.\d+)?|\\[a-zA-Z]+|[a-zA-Z]|[-+/^*]")


def is_worked_out(answer: str, reference: str) -> bool:
    r"""Return whether an answer has a form that a reference of this form asks for.

    * A reference that is a numeral (`42`, `\frac{3}{4}`, `0.5`, `12 cm`) asks for a numeral: no
      operation but a fraction in lowest terms. Of `x = 1 + 2 = 3` the end counts.
    * A constant (`2\sqrt{3}`, `\frac{\pi}{4}`) asks for a closed form of at most one symbol more
      than its own: a numeral, a letter, a command or a sign is a symbol.
    * No answer may have an operation (a sum, an integral, a derivative, a binomial) that the
      reference does not have.

    >>> is_worked_out(r"\sum_{k=1}^{100} k", "5050"), is_worked_out("n=5050", "5050")
    (False, True)
    """
    if answer == reference or _NUMERAL.fullmatch(answer):
        return True
    if refusal(answer):
        return False
    value = last_value(answer)
    name, _, named = reference.rpartition("=")  # `x = 3` asks for a numeral as 3 does.
    if read_number(reference) or (is_name(name.strip()) and read_number(named)):
        number, ratio = read_number(value), _RATIO.search(value)
        if number is None or _UNDONE.search(_ORDINAL_OR_UNIT.sub("", _SCIENTIFIC.sub("", value))):
            return False
        if number.percent and "%" not in reference and abs(number.value) > 100:
            return False  # 9400% for 94; 50% may be 0.5.
        return ratio is None or int(ratio[1]) == number.value.denominator > 1
    operations = set(_OPERATIONS.findall(value)) - set(_OPERATIONS.findall(reference))
    if operations - (_BINOMIALS if "!" in reference else set()):
        return False
    known = _DELIMITERS.sub(" ", reference)
    if _UNDONE_PRODUCT.search(_SCIENTIFIC.sub("", value)) and not _UNDONE_PRODUCT.search(known):
        return False
    if not _CONSTANT.fullmatch(known):
        return True
    own, theirs = (_symbols(split_unit(plain(each))[0]) for each in (value, known))
    return len(own) <= len(theirs) + 1


def last_value(answer: str) -> str:
    """The end of `x = 1 + 2 = 3`."""
    value = _STEPS.split(_DELIMITERS.sub(" ", _THOUSANDS.sub(",", answer)))[-1]
    return value.replace("\\%", "%").strip(" *")


def _symbols(text: str) -> list[str]:
    return _SYMBOL.findall(_PRODUCT.sub(" ", _ROOT_AS_POWER.sub(r" \1 \2 ", text)))
