"""JSON that anybody may have written: whatever is wrong with it is found before it does harm."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

_MOST_DIGITS = 308
"""Digits of a whole number that a float can be near: `float` refuses those of more."""


_DEEP = 2048
"""Lists and objects within each other that are too many for the stack of Arrow's parser, about."""


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds, as `json.loads`.

    Raises:
        ValueError: it is not JSON, its values are nested too deeply, or a whole number has too many
            digits.
    """
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:  # It is no ValueError.
        raise ValueError("its values are nested too deeply") from None


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def is_very_deep(text: bytes) -> bool:
    """Whether values are nested so deeply that Arrow's parser would overflow its stack.

    Args:
        text: lines with an object each. Arrow's parser also takes objects of several lines.
    """
    start, length = 0, 2 * _DEEP  # Only in a line that is so long.
    while len(text) - start >= length:
        newline = text.rfind(b"\n", start, start + length)
        if newline < 0 or not _is_between(text, newline):
            newline = _end_of_object(text, start + length)
            if _is_deep(np.frombuffer(text, np.uint8, newline - start, start)):
                return True
        start = newline + 1
    return False


def _end_of_object(text: bytes, start: int) -> int:
    """The first end of a line from `start` on that is between two objects; else, of the text."""
    newline = text.find(b"\n", start)
    while newline >= 0 and not _is_between(text, newline):
        newline = text.find(b"\n", newline + 1)
    return len(text) if newline < 0 else newline


def _is_between(text: bytes, newline: int) -> bool:
    """Whether the end of a line is between two objects, and not within one."""
    before, after = text[max(0, newline - 8) : newline], text[newline + 1 : newline + 9]
    ends, begins = before.rstrip(b" \t\r"), after.lstrip(b" \t\r\n")
    return ends.endswith(b"}") and (begins.startswith(b"{") or newline + 1 == len(text))


def _is_deep(text: np.ndarray[Any, np.dtype[np.uint8]]) -> bool:
    opens = (text == ord("[")) | (text == ord("{"))
    if np.count_nonzero(opens) < _DEEP:
        return False
    closes = (text == ord("]")) | (text == ord("}"))
    depths = np.cumsum(opens.view(np.int8) - closes.view(np.int8), dtype=np.int64)
    # Above the lowest before it: texts may hold brackets, too.
    return bool((depths - np.minimum.accumulate(depths)).max() >= _DEEP - 1)
