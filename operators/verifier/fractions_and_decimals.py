r"""The exact tier: numbers, parsed and compared as fractions.

A decimal is also taken as equal to another number in two cases:

* it agrees with a number that has no finite decimal (1/3, `\sqrt{2}`) in at least seven
  significant digits, which is what single precision prints;
* it is the other number in double precision: sixteen digits or more, with a relative error
  below 1e-15 (`0.30000000000000004` for 0.3).
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from .notation import plain
from .units import Unit, agree, numeral, read_tail
from .words import ASCII_MAGNITUDES, MAGNITUDES, SMALL, STARTS, leading_words

# --- Limits ---------------------------------------------------------------------------
# Checked before any arithmetic, because a policy can exceed them in ten tokens.

MAX_SPAN = 1_000  # characters of an answer that is read as mathematics
MAX_DIGITS = 400  # of one numeral, and the largest power of ten
_MAX_NESTING = 12  # braces and brackets; the LaTeX parser recurses once per level
_MAX_EXPONENT = 3_000
_MAX_POWER_OF_POWERS = 10_000  # the product of its exponents
_MAX_FACTORIAL = 200

_OPENING, _CLOSING = "([{", ")]}"
_NUMERAL = re.compile(r"[0-9]+")
_EXPONENT = re.compile(r"\^\s*\{?\s*[+-]?\s*([0-9]{1,400})(?![0-9])")
_CARET_CHAIN = re.compile(r"\^(?:[0-9]+|[a-z]|\{[^{}]*\})\^")
_NUMERIC_POWER = re.compile(r"([0-9]{1,4})\^\{?([0-9]{1,4})")
_FACTORIAL_ARGUMENT = re.compile(r"([0-9]{1,400}|\([a-zA-Z0-9 +\\-]*\)|[)}\]])\s*!")
_RANGE = r"\\(?:sum|prod|int|iint|iiint|oint|lim|bigcup|bigcap)(?![a-zA-Z])"
_FUNCTION = r"\\?(?:sin|cos|tan|cot|exp|log|ln|a?sinh|cosh|Gamma)(?![a-z])"
_LIMITS = [
    (re.compile(pattern, re.DOTALL), most, reason)
    for pattern, most, reason in (
        ("[\x00\ud800-\udfff]", 0, "not text"),
        (rf"[0-9]{{{MAX_DIGITS + 1}}}", 0, f"a numeral of more than {MAX_DIGITS} digits"),
        # `10^{(99999)}`
        (r"\^\s*[{(][^}]*?(?<![0-9.])[0-9]{5}", 0, f"an exponent above {_MAX_EXPONENT}"),
        (r"[0-9.][eE][+-]?[0-9]{4}", 0, "a power of ten of more than three digits"),
        (_FUNCTION, 16, "too many functions"),
        ("exp", 2, "too many exponential functions"),
        (r"\|", 8, "too many bars"),
        (r"\\pm|±", 4, "too many plus-minus signs, each of which doubles the cases"),
        (r"[a-zA-Z0-9]_\{?[a-zA-Z0-9]+_", 0, "subscripts of subscripts"),
        ("!!", 0, "repeated factorials"),  # 5!! would be read as (5!)!
        ("!", 6, "too many factorials"),
        (r"\\binom\s*\{[^{}]*(?:[0-9]{4}|\^)", 0, "a binomial of a large number"),
        (_RANGE, 1, "several sums or integrals"),
        (rf"\A(?=.*[0-9]{{4}}).*?{_RANGE}", 0, "a sum or integral with a large number"),
    )
]


def refusal(span: str) -> str | None:
    """Why this span is not read as mathematics; None if it is.

    It inspects only the text, in linear time. It is a first check, not a proof: what passes is
    still subject to the deadline and the memory limit of a worker.
    """
    if not span.isascii():
        from .phrases import readable

        span = readable(span[: MAX_SPAN + 1])  # digits of any script
    if len(span) > MAX_SPAN:
        return f"longer than {MAX_SPAN} characters"
    for pattern, most, reason in _LIMITS:
        if len(pattern.findall(span)) > most:
            return reason
    if any(int(each) > _MAX_EXPONENT for each in _EXPONENT.findall(span)):
        return f"an exponent above {_MAX_EXPONENT}"
    for argument in _FACTORIAL_ARGUMENT.findall(span):
        numerals = _NUMERAL.findall(argument)  # of `(n-1)!`
        if argument in _CLOSING or any(int(n) > _MAX_FACTORIAL for n in numerals):
            return f"a factorial of more than {_MAX_FACTORIAL}"
    return _nesting(span.replace(" ", "").replace("**", "^"))


def _nesting(flat: str) -> str | None:
    """Why its brackets are not read, or exponents that apply to one another; None if they are."""
    exponents, powers = [False], [1]  # of each open bracket: whether it is one, the largest inside
    for i, mark in enumerate(flat):
        if mark in _OPENING:
            exponents.append(flat[i - 1 : i] == "^")
            powers.append(1)
            if len(powers) > _MAX_NESTING + 1:
                return f"nested deeper than {_MAX_NESTING}"
        elif mark == "^" and _is_tower(flat, i, sum(exponents)):
            return "a tower of exponents"
        elif mark == "^" or mark in _CLOSING:
            inside = 1
            if mark != "^" and len(powers) > 1:
                exponents.pop()
                inside = powers.pop()
            power = _EXPONENT.match(flat, i + (mark != "^"))
            exponent = int(power[1]) if power else 1
            # `(x^{30})^{20}` is 600; one exponent alone may be bold type: `**12345**`.
            if min(inside, exponent) > 1 and inside * exponent > _MAX_POWER_OF_POWERS:
                return f"a power of powers above {_MAX_POWER_OF_POWERS}"
            powers[-1] = max(powers[-1], inside * exponent)
    return None


def _is_tower(flat: str, caret: int, depth: int) -> bool:
    """Whether exponents are stacked: three deep, or two deep with a large number on top."""
    depth += bool(_CARET_CHAIN.match(flat, caret))
    power = _NUMERIC_POWER.search(flat[max(0, caret - 4) : caret + 12])
    if depth != 1 or power is None:
        return depth > 1
    return bool(int(power[1]) ** int(power[2]) > _MAX_EXPONENT)


# --- Numbers --------------------------------------------------------------------------

ROUNDED_DIGITS = 7
FLOAT_DIGITS = 16
FLOAT_ERROR = Fraction(1, 10**15)


class Number(NamedTuple):
    """An exact number and how it was written.

    `digits` counts the significant digits of a decimal (0 for a fraction), `ulp` is the
    value of its last place (0 for a fraction or an integer). `base` is that of its numeral.
    """

    value: Fraction
    digits: int = 0
    ulp: Fraction = Fraction(0)
    percent: bool = False
    unit: Unit | None = None
    base: int = 10

    def times(self, factor: Fraction | int) -> Number:
        return self._replace(value=self.value * factor, ulp=self.ulp * factor)


_DECIMAL = (
    r"(?:(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,2}(?:[ '_]\d{3})+|\d+)(?:\.\d+|\.(?![\d.]))?|\.\d+)"
    r"(?![\d]|[,.']\d)"
)
_SIMPLE = re.compile(r"-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")
_HEAD = re.compile(
    rf"""(?P<whole>\d+)?\s*\\frac\{{(?P<fn>[+-]?\s*{_DECIMAL})\}}\{{(?P<fd>-?{_DECIMAL})\}}
    | (?:(?P<mixed>\d+)\s+)?(?P<sn>{_DECIMAL})\s*/\s*(?P<sd>{_DECIMAL})
    | (?P<dots>[1-9]\d{{0,2}}(?:\.\d{{3}}){{2,}})(?![.\d])
    | (?P<digits>(?=[A-Za-z]*\d)[0-9A-Za-z]+)_
      (?P<base>\{{\s*(?:[1-9]\d?|[a-z]{{3,8}})\s*\}}|[1-9]\d?(?!\d))
    | (?:(?P<mant>{_DECIMAL})\s*(?:\\times|\\cdot|\*|x)\s*)?
      10\s*\^\s*(?P<power>\{{\s*[+-]?\d+\s*\}}|\(?[+-]?\d+\)?)
    | (?P<dec>{_DECIMAL})(?:[eE](?P<exponent>[+-]?\d+)(?![\w^]))?
    """,
    re.VERBOSE | re.ASCII,
)
_UNGROUPED = str.maketrans("", "", ", '_")
_CURRENCY = re.compile(r"(?:US|USD|AU|CA)?\s*\\?\$|[€£¥₹]|(?:USD|EUR|GBP)\s")
_SYMBOLS = {"€": "EUR", "£": "GBP", "₹": "INR", "D": "USD", "R": "EUR", "P": "GBP"}
_SIZES = MAGNITUDES | ASCII_MAGNITUDES
_OF = re.compile(r"^(?:d'|(?:de|di|von|van|av) )(?=[a-zA-Z]{2})")  # "2 millions d'euros"
_AND_A_HALF = re.compile(r"and (?:a|one)[ -]half\b", re.IGNORECASE)
_TWICE = re.compile(r"([^()]+) \(([^()]+)\)$")
_PERCENT = re.compile(
    r"\\?%|(?:per ?cento?|pour ?cent|por ?cien?to|prozent|procent|persen)\b", re.IGNORECASE
)


def read_number(span: str) -> Number | None:
    """None if it is not one number, or over the limits."""
    return read_simple(span) or (None if refusal(span) else read_plain(plain(span)))


@lru_cache(maxsize=4096)
def read_simple(span: str) -> Number | None:
    """The fast path of `read_number`: a plain decimal with grouped thousands, nothing else."""
    if len(span) > 40 or not _SIMPLE.fullmatch(span):
        return None
    number = _decimal(span.lstrip("-"), 0)
    return number._replace(value=-number.value) if number and span[0] == "-" else number


@lru_cache(maxsize=8192)
def read_plain(text: str) -> Number | None:
    """`read_number` of a span that is already in plain notation."""
    if twice := _TWICE.match(text):  # "five (5)" is one number, written twice
        first, second = read_plain(twice[1]), read_plain(twice[2])
        if first and second:
            return first if first.value == second.value else None
    sign, text, currency = _signs(text)
    if not text:
        return None
    head = _HEAD.match(text)
    number: Number | None
    if not text.isascii() and (foreign := numeral(text)):
        number, tail, attached = Number(Fraction(foreign[0])), foreign[1], False
    elif head:
        number = _head_value(head)
        tail, attached = text[head.end() :], not text[head.end() : head.end() + 1].isspace()
    else:
        is_word = re.split(r"[ -]", text, maxsplit=1)[0].lower() in STARTS
        spelt = leading_words(text) if is_word else None
        number = None if spelt is None else Number(spelt[0])
        tail, attached = ("" if spelt is None else spelt[1]), False
    if number is None:
        return None
    number = number._replace(value=sign * number.value, unit=currency)
    return _with_tail(number, tail, attached)


def _signs(text: str) -> tuple[int, str, Unit | None]:
    sign, currency = 1, None
    for _ in range(8):
        text = text.strip()
        if text[:1] in {"+", "-"}:
            sign, text = (-sign if text[0] == "-" else sign), text[1:]
        elif (m := _CURRENCY.match(text)) and currency is None:
            symbol = _SYMBOLS.get(m[0].strip()[-1], m[0].strip()[-1])
            currency, text = Unit(dimension=((symbol, 1),)), text[m.end() :]
        elif text[:1] == "(" and text.find(")") == len(text) - 1 and "," not in text:
            text = text[1:-1]  # `(1,100)` is a point
        else:
            break
    return sign, text, currency


def _head_value(head: re.Match[str]) -> Number | None:
    g = head.groupdict()
    if sum(c.isdigit() for c in head[0]) > MAX_DIGITS:
        return None
    if g["fn"] is not None:
        return _ratio(g["whole"], g["fn"], g["fd"])
    if g["sn"] is not None:
        return _ratio(g["mixed"], g["sn"], g["sd"])
    if g["digits"] is not None:
        base = g["base"].strip("{ }")
        return _based(g["digits"], int(base) if base.isdecimal() else SMALL.get(base, 0))
    if g["dots"] is not None:
        return _decimal(g["dots"].replace(".", ""), 0)
    if g["dec"] is not None:
        return _decimal(g["dec"], int(g["exponent"] or 0))
    return _decimal(g["mant"] or "1", int(g["power"].strip("{( )}")))


def _decimal(text: str, exponent: int) -> Number | None:
    if abs(exponent) > MAX_DIGITS:
        return None
    whole, _, places = text.translate(_UNGROUPED).partition(".")
    digits = len((whole + places).lstrip("0"))
    if not places and not exponent:
        return Number(Fraction(int(whole or 0)), digits)
    scale = Fraction(10) ** (exponent - len(places))
    # An integer has no decimal place to round to: 100 is never 99.9999999.
    return Number(int(whole + places or "0") * scale, digits, scale if places else Fraction(0))


def _ratio(whole: str | None, above: str, below: str) -> Number | None:
    n, d = (Fraction(each.translate(_UNGROUPED)) for each in (above, below))
    if not d:
        return None
    if whole is None:
        return Number(n / d)
    # 2\frac{3}{2} might be a product, a typo or a mixed number: it is refused.
    return Number(int(whole) + n / d) if 0 <= n / d < 1 else None


def _based(digits: str, base: int) -> Number | None:
    if not 2 <= base <= 36:
        return None
    try:
        return Number(Fraction(int(digits, base)), base=base)
    except ValueError:  # not a numeral in that base
        return None


def _with_tail(number: Number, tail: str, attached: bool) -> Number | None:
    tail = tail.strip()
    while tail:
        word = tail.split(" ", 1)[0].lower()
        if factor := _SIZES.get(word.rstrip(".")):
            number, attached = number.times(factor), False
            tail = _OF.sub("", tail[len(word) :].strip())
        elif (m := _AND_A_HALF.match(tail)) and number.value.denominator == 1:
            number, tail = Number(number.value + Fraction(1, 2)), tail[m.end() :].strip()
        elif m := _PERCENT.match(tail):
            number, tail, attached = number._replace(percent=True), tail[m.end() :].strip(), False
        elif attached and re.match(r"(?:st|nd|rd|th)(?![a-zA-Z])", tail):
            tail, attached = tail[2:].strip(), False
        else:
            break
    if not tail:
        return number
    if number.unit and tail.startswith("per "):
        tail, number = f"{number.unit.dimension[0][0]} {tail}", number._replace(unit=None)
    found = read_tail(tail, attached=attached and tail.isascii())
    if found is None or agree(number.unit, found.unit) is None:
        return None
    unit, is_percent = number.unit or found.unit or Unit(), number.percent or found.percent
    return number.times(found.factor)._replace(percent=is_percent, unit=unit)


def same_number(a: Number, b: Number) -> bool:
    """Whether two numbers are the same answer. Symmetric.

    Units count only if both sides have one. A percentage equals its value (50% is 0.5) and,
    compared with a bare number of at least 1, its figure (50% is 50, 0.5% is not 0.5). A numeral in
    another base has its value in that base only: to convert it is the whole question.
    """
    if a.base != b.base:
        return False
    factor = agree(a.unit, b.unit)
    if factor is None:
        return False
    b = b.times(factor)
    if a.percent == b.percent:
        return _close(a, b)
    share, bare = (a, b) if a.percent else (b, a)
    if bare.unit and bare.unit.dimension:
        return False  # `$6` is no percentage.
    is_share = _close(share.times(Fraction(1, 100)), bare)
    return is_share or (abs(bare.value) >= 1 and _close(share, bare))


def _close(a: Number, b: Number) -> bool:
    return a.value == b.value or any(
        rounds_to(decimal, other.value, is_finite=_is_finite(other.value), digits=other.digits)
        for decimal, other in ((a, b), (b, a))
    )


def rounds_to(
    decimal: Number, exact: Fraction, *, is_finite: bool = False, digits: int = 0
) -> bool:
    """Whether a decimal is the rounding of a number, which has `digits` if it is a decimal, too."""
    if not decimal.ulp:
        return False
    error = abs(decimal.value - exact)
    if decimal.digits >= ROUNDED_DIGITS and not is_finite and error < decimal.ulp:
        return True
    is_artefact = decimal.digits >= FLOAT_DIGITS > digits
    return is_artefact and error < FLOAT_ERROR * abs(exact)


def _is_finite(value: Fraction) -> bool:
    return pow(10, value.denominator.bit_length(), value.denominator) == 0
