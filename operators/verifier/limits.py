"""Limits checked before any arithmetic, because a policy can exceed them in ten tokens."""

from __future__ import annotations

import re

MAX_SPAN = 1_000  # characters of an answer that is read as mathematics
MAX_DIGITS = 400  # of one numeral, and the largest power of ten
MAX_NESTING = 12  # braces and brackets; the LaTeX parser recurses once per level
MAX_EXPONENT = 3_000
MAX_POWER_OF_POWERS = 10_000  # the product of its exponents
MAX_FACTORIAL = 200
MAX_RANGE = 1_000  # terms of a sum or product

MAX_BARS = 8  # of absolute values
MAX_SIGNS = 4  # plus-minus signs: each doubles the cases

_OPENING, _CLOSING = "([{", ")]}"
_NUMERAL = re.compile(r"[0-9]+")
_EXPONENT_NUMERAL = re.compile(r"\^\s*\{?\s*[+-]?\s*([0-9]{1,400})(?![0-9])")
_LARGE_IN_EXPONENT = re.compile(r"\^\s*[{(][^}]*?(?<![0-9.])[0-9]{5,}")  # `10^{(99999)}`
_EXPONENT_AFTER = re.compile(r"\s*" + _EXPONENT_NUMERAL.pattern)
_FACTORIAL_ARGUMENT = re.compile(r"([0-9]{1,400}|\([a-zA-Z0-9 +\\-]*\)|[)}\]])\s*!")
_BINOMIAL = re.compile(r"\\binom\s*(?:\{\s*([^{}]*)\})?")
_RANGE = re.compile(r"\\(?:sum|prod|int|iint|iiint|oint|lim|bigcup|bigcap)(?![a-zA-Z])")
_SCIENTIFIC = re.compile(r"[0-9.][eE][+-]?([0-9]+)")
_CARET_CHAIN = re.compile(r"\^(?:[0-9]+|[a-z]|\{[^{}]*\})\^")
_NUMERIC_POWER = re.compile(r"([0-9]{1,4})\^\{?([0-9]{1,4})")
_FUNCTION = re.compile(r"\\?(?:sin|cos|tan|cot|exp|log|ln|a?sinh|cosh|Gamma)(?![a-z])")
_BIG_NUMERAL = re.compile(r"[0-9]{4,}|\^")


def refusal(span: str) -> str | None:
    """Return why this span is not read as mathematics; None if it is.

    It inspects only the text, in linear time. It is a first check, not a proof: what passes is
    still subject to the deadline and the memory limit of a worker.
    """
    if not span.isascii():
        from .phrases import readable

        span = readable(span[: MAX_SPAN + 1])  # digits of any script
    if len(span) > MAX_SPAN:
        return f"longer than {MAX_SPAN} characters"
    if "\x00" in span or any("\ud800" <= c <= "\udfff" for c in span):
        return "not text"
    if any(len(n) > MAX_DIGITS for n in _NUMERAL.findall(span)):
        return f"a numeral of more than {MAX_DIGITS} digits"
    return _nesting(span) or _growth(span)


def _nesting(span: str) -> str | None:
    depth = 0
    for character in span:
        if character in _OPENING:
            depth += 1
            if depth > MAX_NESTING:
                return f"nested deeper than {MAX_NESTING}"
        elif character in _CLOSING:
            depth -= 1
    return None


def _growth(span: str) -> str | None:
    exponents = map(int, _EXPONENT_NUMERAL.findall(span))
    if any(n > MAX_EXPONENT for n in exponents) or _LARGE_IN_EXPONENT.search(span):
        return f"an exponent above {MAX_EXPONENT}"
    if any(len(n) > 3 for n in _SCIENTIFIC.findall(span)):
        return "a power of ten of more than three digits"
    if len(_FUNCTION.findall(span)) > 2 * MAX_BARS or span.count("exp") > 2:
        return "too many functions"
    if span.count("|") > MAX_BARS or span.count(r"\pm") + span.count("±") > MAX_SIGNS:
        return "too many bars or plus-minus signs"
    if re.search(r"[a-zA-Z0-9]_\{?[a-zA-Z0-9]+_", span):
        return "subscripts of subscripts"
    if _towers(span):
        return "a tower of exponents"
    if _power_of_powers(span) > MAX_POWER_OF_POWERS:
        return f"a power of powers above {MAX_POWER_OF_POWERS}"
    for argument in _FACTORIAL_ARGUMENT.findall(span):
        numerals = _NUMERAL.findall(argument)  # of `(n-1)!`
        if argument in _CLOSING or any(int(n) > MAX_FACTORIAL for n in numerals):
            return f"a factorial of more than {MAX_FACTORIAL}"
    if "!!" in span or span.count("!") > 6:  # 5!! would be read as (5!)!
        return "repeated factorials"
    if any(_BIG_NUMERAL.search(n) for n in _BINOMIAL.findall(span)):
        return "a binomial of a large number"
    ranges = len(_RANGE.findall(span))
    if ranges > 1 or (ranges and re.search(r"[0-9]{4,}", span)):
        return f"a sum or integral over more than {MAX_RANGE} terms, or nested"
    return None


def _towers(span: str) -> bool:
    """Return whether exponents are stacked: three deep, or two deep with a large number on top."""
    flat = span.replace(" ", "").replace("**", "^")
    depth, open_at = 0, list[int]()
    for i, character in enumerate(flat):
        if character == "^":
            stacked = len(open_at) + (bool(i) and bool(_CARET_CHAIN.match(flat, i)))
            if stacked >= 2 or (stacked and _large_power(flat, i)):
                return True
            if flat[i + 1 : i + 2] in {"{", "("}:
                open_at.append(depth + 1)
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            if open_at and open_at[-1] == depth:
                open_at.pop()
            depth -= 1
    return False


def _power_of_powers(span: str) -> int:
    """Return the largest product of exponents that apply to one another, as in `(x^{30})^{20}`."""
    largest = [1]  # inside each open bracket
    for i, character in enumerate(span):
        if character in _OPENING:
            largest.append(1)
        elif character == "^" or character in _CLOSING:
            inside = largest.pop() if character in _CLOSING and len(largest) > 1 else 1
            at = i + (character in _CLOSING)
            exponent = _EXPONENT_AFTER.match(span, at)
            largest[-1] = max(largest[-1], inside * int(exponent[1] if exponent else 1))
    return largest[0]


def _large_power(flat: str, caret: int) -> bool:
    """Return whether the power around this caret is a number too large for an exponent."""
    power = _NUMERIC_POWER.search(flat[max(0, caret - 4) : caret + 12])
    return bool(power) and power is not None and int(power[1]) ** int(power[2]) > MAX_EXPONENT
