"""Columns of several parts as one, whatever types they were written with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from ....operators.columns import common_type, is_text


def joined(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Columns one after the other, in a type that holds all of them.

    Texts are `large_string`, since those of a whole run may have more than 2 GiB. Where no type
    holds all, as for numbers and texts, each value is a text, as JSON.

    Args:
        columns: at least one.

    Example:
        >>> joined([pa.chunked_array([[1]]), pa.chunked_array([[2.5]])]).to_pylist()
        [1.0, 2.5]
    """
    try:
        kind = common_type(column.type for column in columns)
        kind = pa.large_string() if is_text(kind) else kind
        cast = [column.cast(kind) for column in columns]
    except pa.ArrowException:
        return joined([texts(column) for column in columns])
    return pa.chunked_array([chunk for column in cast for chunk in column.chunks], kind)


def texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each value as a text: as JSON, unless it is one; null stays null."""
    if is_text(column.type):
        return column.cast(pa.large_string())
    return pa.chunked_array([pa.array(map(text_of, column.to_pylist()), pa.large_string())])


def text_of(value: Any) -> str | None:
    """A value as a text: as JSON, unless it is one.

    Example:
        >>> text_of({"a": 1})
        '{"a":1}'
    """
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def last_text(prompt: Any) -> str:
    """A prompt's text; that of its last message, where it is a list of messages.

    Messages without a text under `content`, as of other formats, are shown as JSON.
    """
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    if isinstance(last, Mapping) and isinstance(last.get("content"), str):
        return str(last["content"])
    return text_of(last if last != [] else None) or ""
