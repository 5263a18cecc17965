"""What a page is made of: one plain structure, whatever it came from.

PageData ── sets ──> PageSet ── columns ──> PageColumn       one value per row
                        ├────── groups_at                    the first row of each group
                        ├────── group_texts, row_texts       Arrow tables of texts
                        └────── figures                      `SetFigures.as_json()`
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from ....operators import DataError
from ....operators.columns import common_type, is_text
from ....operators.groups import Array, hash_each, mix, uniform_of
from ....operators.logs import redact_bytes
from ....operators.workers import usable_cores

# --- Columns of several parts as one, whatever types they were written with -----------


def joined(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Columns one after the other, in a type that holds all of them.

    Texts are `large_string`, since those of a whole run may have more than 2 GiB. Where no type
    holds all, as for numbers and texts, each value is a text, as JSON.

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


# --- Blocks ---------------------------------------------------------------------------
# Data as text inside a script element: base64 of gzip, which a browser inflates by itself.

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


# --- What a page is made of: one plain structure, whatever it came from ---------------


class PageColumn(NamedTuple):
    """One value per row, or per group."""

    name: str  # of the column
    values: Array  # float64, int32, or uint8 and int32 places in `slugs`. NaN is an unknown number.
    # what the places stand for; the first is "", for null. Empty: the values are numbers.
    slugs: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """How the bytes are read: f64, i32 or u8, all little-endian."""
        return {"float64": "f64", "int32": "i32", "uint8": "u8"}[str(self.values.dtype)]


class PageStep(NamedTuple):
    """A step, for the path of a row: its number, its columns, and what its reasons mean."""

    number: int
    name: str
    writes: tuple[str, ...]
    reasons: Mapping[str, str]


class PageSet(NamedTuple):
    """Rows that were processed together: an export, or the rows of a training step."""

    name: str  # shown in the list of sets
    kind: str  # `answers` or `judgements`
    step: int | None  # the training step, None for an export
    steps: tuple[PageStep, ...]  # the steps after sampling, in order
    # `SetFigures.as_json()`, and `length_unit`, `tokens` or `characters`
    figures: Mapping[str, Any]
    # at least `fate` (int32), `reason`, `verdict`, `length`, `reward`, `advantage`; for each
    # component c also `reward_c`, `reward_c_missing` and `contribution_c`
    columns: tuple[PageColumn, ...]
    components: tuple[str, ...]  # names
    groups_at: Array  # int32[G], the first row of each group
    # one row per group: `prompt_id`, `prompt` (messages or text), `reference`
    group_texts: pa.Table
    # one row per row: `response_id`, `response`, `extracted_answer`, and any other texts that steps
    # wrote, by the names of their columns
    row_texts: pa.Table
    banner: str = ""  # what of the set is not in the page; empty if nothing
    run: str = ""  # of training; empty where the page has only one

    @property
    def rows(self) -> int:
        """Rows of the set."""
        return len(self.row_texts)


class PageCurves(NamedTuple):
    """What was logged of a training run."""

    run: str  # empty where there is only one
    # per training step, verl's metrics by name, each with `step`
    points: tuple[Mapping[str, float], ...]


class PageData(NamedTuple):
    """A page."""

    title: str  # shown at its top, and in the browser's tab
    sets: tuple[PageSet, ...]  # at least one, unless there are curves
    curves: tuple[PageCurves, ...] = ()  # of training runs
    signs: tuple[Mapping[str, Any], ...] = ()  # of reward hacking, as `audit` finds them
    recipe: str = ""  # as YAML


class PageSummary(NamedTuple):
    """What was written: bytes of the file, and how many of its responses have their texts in it."""

    bytes: int
    sets: int
    rows: int
    groups: int
    with_texts: int
