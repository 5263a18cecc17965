"""A finished chunk of a resumable operator: a commit of which damage costs a part, not the whole.

    record: all but the columns | record: some rows' columns | record: the next rows' columns | ...

Each record belongs to its place in this file of this folder, see `operators/disk.py`. Where the
file is damaged, cut off, or has more at its end, the rows of the records that are left are good.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash

from ...operators import Change
from ...operators.disk import Header, records_in
from ...operators.operator import split
from ..dataset.files import (
    DamagedError,
    damaged,
    is_verified,
    owner,
    read_content,
    verified,
    written,
)
from ..dataset.remote import AnyPath
from .commit import arrow_stream, as_table, check_retries, of_table
from .steps import StepResult

_HEAD, _ROWS = 2, 3
"""Kinds of records: a table without rows, whose metadata is that of the commit; a table."""
_BATCH_BYTES = 16 << 20
_BATCHES, _KEYS = b"batches", b"row_keys"
_ALIGNED = 64


def save(path: AnyPath, result: StepResult, keys: Sequence[str], retries: int = 0) -> None:
    """Write a finished chunk; it is there whole or not at all."""
    table = as_table(result, retries)
    bounds = list(_bounds(result, table))
    metadata = {
        **table.schema.metadata,
        _BATCHES: json.dumps([(start, stop) for start, stop, *_ in bounds]).encode(),
        _KEYS: bytes.fromhex("".join(keys)),
    }
    head = table.schema.with_metadata(metadata).empty_table()
    rows = (
        table.slice(begin, end - begin).replace_schema_metadata().combine_chunks()
        for *_, begin, end in bounds
    )
    with written(path) as temporary, temporary.open("wb") as file:
        for number, part in enumerate((head, *rows)):
            payload = arrow_stream(part).to_pybytes()
            payload += bytes(-len(payload) % _ALIGNED)
            header = Header.of(owner(path), _ROWS if number else _HEAD, [payload], number)
            file.write(header.packed() + payload)


def load(path: AnyPath, *, mapped: bool = True) -> StepResult:
    """Read a finished chunk; mapped, its columns stay on disk until they are used.

    Raises:
        DamagedError: it is not as it was saved; see `commit.load`.
        FileNotFoundError: there is none.
    """
    content = read_content(path, mapped=mapped)
    parts = dict[int, pa.Table]()
    for number, table in _parts(path, content, trusted=is_verified(path)):
        parts.setdefault(number, table)  # What comes after them does not count.
    batches = len(json.loads(parts[0].schema.metadata[_BATCHES])) if 0 in parts else 0
    if not parts.keys() >= set(range(batches + 1)):
        raise damaged(path)
    verified(path)
    check_retries(path, parts[0].schema)
    rows = [parts[number] for number in range(1, batches + 1)]
    return of_table(_with_head(parts[0], rows))


def hash_of(keys: Sequence[str]) -> str:
    """What the file of a chunk is called, without its suffix: a hash of the keys of its rows."""
    return xxhash.xxh3_128_hexdigest(" ".join(keys).encode())


def keys_of(path: AnyPath) -> list[str] | None:
    """Return the keys of the rows of a finished chunk; None: it has none that are undamaged."""
    try:
        parts = _parts(path, read_content(path))
        head = next(table for number, table in parts if number == 0)
    except (FileNotFoundError, DamagedError, StopIteration):
        return None
    return unpacked(head.schema.metadata[_KEYS])


def unpacked(packed: bytes) -> list[str]:
    """Return the keys of rows that are in the metadata of a chunk."""
    return [packed[at : at + 16].hex() for at in range(0, len(packed), 16)]


def undamaged_rows(path: AnyPath) -> Iterator[tuple[int, Change]]:
    """Yield what is still good of a damaged file: rows of the input, and the changes to them."""
    try:
        parts = dict(reversed([*_parts(path, read_content(path))]))
    except (FileNotFoundError, DamagedError):
        return
    head = parts.pop(0, None)
    if head is None:
        return
    bounds = json.loads(head.schema.metadata[_BATCHES])
    for number, (start, stop) in enumerate(bounds, 1):
        if number not in parts:
            continue
        table = parts[number]
        yield from rows_of(of_table(_with_head(head, [table])), start, stop)


def rows_of(result: StepResult, start: int, stop: int) -> Iterator[tuple[int, Change]]:
    """Yield some rows of the input, and the changes to them."""
    change = result.change
    reasons = None if change.reasons is None else change.reasons.slice(start, stop - start)
    parents = change.parents
    if parents is not None:
        parents = np.where(parents < 0, -1, parents - start)
    failed = change.failed
    if failed is not None:
        failed = failed[(failed >= start) & (failed < stop)] - start
    own = change._replace(reasons=reasons, parents=parents, failed=failed, notes={}, logged={})
    yield from enumerate(split(own, range(stop - start + 1)), start)


def _parts(
    path: AnyPath, content: pa.Buffer, *, trusted: bool = False
) -> Iterator[tuple[int, pa.Table]]:
    """The undamaged records of the file by their numbers, in the order in which they are in it."""
    key = owner(path)
    for header, payload, _ in records_in(memoryview(content), trusted=trusted):
        if (header.key, header.kind) == (key, _ROWS if header.number else _HEAD):
            yield header.number, pa.ipc.open_stream(payload).read_all()


def _with_head(head: pa.Table, rows: Sequence[pa.Table]) -> pa.Table:
    """Return the table of a commit: the rows, with the metadata of the head."""
    return pa.concat_tables(rows or [head]).replace_schema_metadata(head.schema.metadata)


def _bounds(result: StepResult, table: pa.Table) -> Iterator[tuple[int, int, int, int]]:
    """Yield where batches begin and end: rows of the input, and rows of the table."""
    rows, parents = result.rows_in, result.change.parents
    ends_N = np.arange(rows + 1)
    if parents is not None:  # A row without a parent goes with the row before it.
        nearest = np.maximum.accumulate(np.append(0, parents))[1:]
        ends_N = np.searchsorted(nearest, ends_N)
        ends_N[-1] = table.num_rows
    step = max(1, rows * _BATCH_BYTES // max(1, table.nbytes))
    for start, stop in pairwise([*range(0, rows, step), rows]):
        yield start, stop, int(ends_N[start]), int(ends_N[stop])
