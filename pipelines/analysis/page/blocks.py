"""Data as text inside a script element: base64 of gzip, which a browser inflates by itself."""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from ....operators.cores import usable_cores
from ....operators.errors import DataError
from ....operators.groups import Array, hash_each, mix, uniform_of
from ....operators.redaction import redact_bytes
from .joined import last_text

GROUPS_PER_BLOCK = 128
"""A block of texts is inflated as a whole when one of its groups is opened."""
_EXCERPT = 90
"""Characters of a prompt in the list of groups."""
_SAMPLED = 24
"""Groups in a sample of a set, and samples, by which its size is estimated."""
_LEVEL = 5
_GZIP = 31  # zlib's window bits for a gzip header.


def packed(data: bytes, level: int = _LEVEL) -> bytes:
    """Base64 of gzip; equal data gives equal bytes."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return b64encode(packer.compress(data) + packer.flush())


def packed_numbers(values: Array) -> bytes:
    """Numbers as little-endian bytes, packed."""
    return packed(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes())


def packed_json(value: Any) -> bytes:
    """Texts as JSON, packed, without the secrets that are known: old runs may have stored some."""
    return packed(redact_bytes(orjson.dumps(value, default=str)))


def embedded_json(value: Any) -> bytes:
    """JSON that no HTML parser can leave: without `<`, `>` and `&`, and without U+2028 and 2029.

    Raises:
        DataError: a whole number has more than 64 bits.
    """
    try:
        text = redact_bytes(orjson.dumps(value, default=_default))
    except TypeError as error:  # Nobody's report has such a number, unless it was written by hand.
        raise DataError(
            f"the page cannot hold what the report says: {error}", "run it again"
        ) from None
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character.encode(), f"\\u{ord(character):04x}".encode())
    return text


def _default(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return str(value)


def text_blocks(
    group_texts: pa.Table, row_texts: pa.Table, starts_G: Array, included_G: Array
) -> Iterator[tuple[int, int, bytes]]:
    """Texts of blocks of whole groups: the first group, how many groups, and the packed JSON.

    The JSON is a list of groups, each `{prompt_id, prompt, reference, rows: [{...}]}`; a group that
    is not included is null.

    Args:
        group_texts: one row per group.
        row_texts: one row per row.
        starts_G: the first row of each group.
        included_G: bool[G].
    """
    groups = len(starts_G)
    ends_G = np.append(starts_G[1:], row_texts.num_rows)
    firsts = range(0, groups, GROUPS_PER_BLOCK)

    def block(first: int) -> tuple[int, int, bytes]:
        last = min(first + GROUPS_PER_BLOCK, groups)
        of_groups = group_texts.slice(first, last - first).to_pylist()
        at, end = int(starts_G[first]), int(ends_G[last - 1])
        of_rows = row_texts.slice(at, end - at).to_pylist()
        found: list[Any] = []
        for group, texts in zip(range(first, last), of_groups, strict=True):
            own = of_rows[int(starts_G[group]) - at : int(ends_G[group]) - at]
            rows = [{k: v for k, v in row.items() if v is not None} for row in own]
            found.append({**texts, "rows": rows} if included_G[group] else None)
        return first, last - first, packed_json(found)

    yield from in_threads([partial(block, first) for first in firsts])


def packed_size(group_texts: pa.Table, row_texts: pa.Table, starts_G: Array) -> float:
    """About how many bytes the text blocks of all groups take: from some of them, evenly chosen."""
    groups, rows = len(starts_G), row_texts.num_rows
    chosen = np.unique(np.linspace(0, groups - 1, _SAMPLED).astype(int)) if groups else ()
    packed_bytes, raw = 0, 0
    for first in chosen:
        last = min(int(first) + _SAMPLED, groups)
        at, end = int(starts_G[first]), int(starts_G[last]) if last < groups else rows
        own = group_texts.slice(first, last - first), row_texts.slice(at, end - at)
        included_G = np.ones(last - first, bool)
        blocks = text_blocks(*own, starts_G[first:last] - at, included_G)
        packed_bytes += sum(len(block) for _, _, block in blocks)
        raw += sum(table.nbytes for table in own)
    return packed_bytes / raw * (group_texts.nbytes + row_texts.nbytes) if raw else 0.0


def drawn(prompt_ids: pa.ChunkedArray) -> Array:
    """A number in [0, 1) for each group, float64[G]: those with the least come first."""
    order = np.arange(len(prompt_ids), dtype=np.uint64)
    return np.asarray(uniform_of(mix(hash_each(prompt_ids) + order)))


def excerpts(prompts: pa.ChunkedArray) -> list[str]:
    """The beginning of each prompt on one line: of its last message, where it has messages."""
    found = []
    for prompt in prompts.to_pylist():
        # Cut before it is split: a prompt may be long.
        line = " ".join(last_text(prompt)[: 4 * _EXCERPT].split())
        found.append(line if len(line) <= _EXCERPT else f"{line[:_EXCERPT]}…")
    return found


def in_threads(jobs: Sequence[Callable[[], Any]]) -> Iterable[Any]:
    """The results of some jobs, in order; zlib lets other threads run."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        yield from pool.map(lambda job: job(), jobs)
