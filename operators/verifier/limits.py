"""Limits checked before any arithmetic, because a policy can exceed them in ten tokens."""

from __future__ import annotations

import re

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
