"""Values as JSON, as they cross between the process of a test and that of a program.

It runs in both, so it imports the standard library only. Whatever comes out of `decode` is made of
built-in types: an instance of a program's own subclass of `int` arrives as an `int`.

    None, bool, str, float, small int   themselves
    list                                a list
    anything else                       {"t": type, "v": content}
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

MOST_ITEMS = 100_000
"""Items that are taken from an iterator, which may be endless."""
_SMALL = 2**53
_SEQUENCES: tuple[type, ...] = (tuple, set, frozenset, deque)
_DICT_VIEWS: tuple[type, ...] = (KeysView, ValuesView, ItemsView)


def encode(value: Any, other: Callable[[Any], Any]) -> Any:
    """A value as JSON; a RecursionError if it is nested too deeply, or contains itself."""
    kind = type(value)
    if kind is float and value != value:
        return {"t": "float", "v": "nan"}  # Which is equal to itself, as a call of a test must be.
    if value is None or kind in (bool, str, float):
        return value
    if kind is int and -_SMALL < value < _SMALL:
        return value
    if kind in _CONTENT:
        return {"t": kind.__name__, "v": _CONTENT[kind][0](value)}
    if kind is list:
        return [encode(item, other) for item in value]
    if kind is dict:
        return {"t": "dict", "v": [[encode(k, other), encode(v, other)] for k, v in value.items()]}
    if kind in _SEQUENCES:
        items = [encode(item, other) for item in value]
        if kind in (set, frozenset):  # Their order differs between processes.
            items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        return {"t": kind.__name__, "v": items}
    if issubclass(kind, _DICT_VIEWS):
        return [encode(item, other) for item in value]
    for base in (int, float, str, bytes, list, dict, complex, *_SEQUENCES):
        if issubclass(kind, base):
            return encode(_as_base(value, base), other)
    if hasattr(kind, "__next__"):
        items = [encode(item, other) for item in islice(value, MOST_ITEMS)]
        return {"t": "iterator", "v": items}
    return other(value)


def _as_base(value: Any, base: type) -> Any:
    """An instance of a subclass, as what it is without it."""
    if base is dict:
        return dict(dict.items(value))
    if base in (list, tuple, set, frozenset, deque):
        return base(base.__iter__(value))
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    return base.__getitem__(value, slice(None)) if base is bytes else base.__complex__(value)  # type: ignore[attr-defined]


def decode(item: Any, other: Callable[[str, Any], Any]) -> Any:
    """What `encode` was given; a ValueError, TypeError or LookupError for anything else."""
    if isinstance(item, list):
        return [decode(inner, other) for inner in item]
    if not isinstance(item, dict):
        return item
    kind, content = item["t"], item["v"]
    if kind == "dict":
        return {decode(key, other): decode(value, other) for key, value in content}
    if kind == "iterator":
        return iter([decode(inner, other) for inner in content])
    for sequence in _SEQUENCES:
        if kind == sequence.__name__:
            return sequence(decode(inner, other) for inner in content)
    made = _FROM_CONTENT.get(kind)
    return made(content) if made else other(kind, content)


_CONTENT: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: (hex, lambda text: int(text, 16)),  # Without a limit of digits, which decimals have.
    float: (str, float),
    bytes: (bytes.hex, bytes.fromhex),
    bytearray: (bytearray.hex, bytearray.fromhex),
    complex: (lambda z: [z.real, z.imag], lambda parts: complex(*parts)),
    range: (lambda r: [r.start, r.stop, r.step], lambda parts: range(*parts)),
    date: (date.isoformat, date.fromisoformat),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda d: [d.days, d.seconds, d.microseconds], lambda parts: timedelta(*parts)),
    Fraction: (str, Fraction),
    Decimal: (str, Decimal),
}
"""To what is in JSON, and from it."""
_FROM_CONTENT = {kind.__name__: made for kind, (_, made) in _CONTENT.items()}
