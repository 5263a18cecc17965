"""Whether an answer equals the reference, as far as this is decidable without computer algebra."""

from __future__ import annotations

import re

from .exact import read_both, read_simple, same_number
from .limits import refusal
from .notation import plain


class UndecidedError(Exception):
    """The exact tier cannot decide: a leaf is not a number."""


_PRIME = re.compile(r"'(?!\d)|\\prime(?![a-zA-Z])")
_MISSING = frozenset(
    {"nan", "inf", "none", "null", "n/a", "<na>", "proof", "notfound", "not found", "tbd"}
    | {"not provided", "no answer", "see solution", "see below", "omitted", "unknown"}
)
_TEXT = re.compile(r"\\text\{([^{}]*)\}")


def is_missing(reference: str) -> bool:
    """Whether a reference denotes a missing value, such as `nan` or `None`."""
    if len(reference) >= 20:
        return False
    text = _TEXT.fullmatch(reference.strip())
    return (text[1] if text else reference).strip(" .").lower().lstrip("+-") in _MISSING


def exactly(answer: str, reference: str) -> bool | None:
    """True or False if numbers and structure decide, None if the symbolic tier must.

    An answer over the limits is wrong if the reference is within them: the limits are part of the
    definition of an answer, so most pathological answers earn a 0 and not a missing reward. An
    answer within the limits whose evaluation never ends is still a timeout.
    """
    if answer == reference:
        return None if not answer.isdecimal() and is_missing(reference) else True
    if _integer(answer) and _integer(reference):
        return int(answer) == int(reference)
    if (a := read_simple(answer)) and (b := read_simple(reference)):
        return same_number(a, b)
    if is_missing(reference) or refusal(reference):
        return None
    if refusal(answer):
        return False
    # Compiling the patterns of this module is half the import time of the package, and data
    # such as GSM8K never needs them.
    from .structure import same

    try:
        return same(plain(answer), plain(reference), _exact_leaf)
    except UndecidedError:
        return None


def _integer(text: str) -> bool:
    return len(text) < 300 and text.isdecimal() and text.isascii()


def _exact_leaf(answer: str, reference: str) -> bool:
    a, b = read_both(answer, reference)
    if a and b:
        return same_number(a, b)
    from .structure import is_prose

    if is_prose(answer) or is_prose(reference):
        return False
    if len(_PRIME.findall(answer)) != len(_PRIME.findall(reference)):
        return False  # the parser ignores primes: `42'` would be 42
    raise UndecidedError
