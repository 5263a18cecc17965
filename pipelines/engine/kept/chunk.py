"""A finished chunk of a resumable operator: a commit of which damage costs a part, not the whole.

Its rows are in several record batches. Its metadata has a checksum of each batch, and one of the
schema. Where the file is damaged, the rows of the batches whose checksums hold are still good.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ....operators import Change
from ....operators.change import split
from ...apply.steps import StepResult
from ...filesystem.checked import unchecked_content, write_checked
from ...filesystem.remote import AnyPath
from ..commit import as_table, of_table
from .journal import DAMAGES

_BATCH_BYTES = 16 << 20
_BATCHES, _CHECKSUM, _KEYS = b"batches", b"schema_xxh3", b"row_keys"


class _SavedRows(NamedTuple):
    """A record batch: the rows of the input that led to it, and its checksum."""

    start: int
    stop: int
    xxh3: str


def save(path: AnyPath, result: StepResult, keys: Sequence[str]) -> None:
    """Write a finished chunk; it is there whole or not at all.

    Args:
        path: of the file.
        result: what was computed.
        keys: of the rows of the input, see `row_keys`.
    """
    table = as_table(result)
    bounds = list(_bounds(result, table))
    batches = [_one_batch(table.slice(begin, end - begin)) for *_, begin, end in bounds]
    parts = [
        _SavedRows(start, stop, _xxh3(batch.serialize()))
        for (start, stop, *_), batch in zip(bounds, batches, strict=True)
    ]
    metadata = {
        **table.schema.metadata,
        _BATCHES: json.dumps(parts).encode(),
        _KEYS: bytes.fromhex("".join(keys)),
    }
    metadata[_CHECKSUM] = _schema_checksum(table.schema.with_metadata(metadata))
    schema = table.schema.with_metadata(metadata)
    write_checked(path, pa.Table.from_batches(batches, schema))


def keys_of(path: AnyPath) -> list[str] | None:
    """The keys of the rows of a finished chunk; None: the file does not have them."""
    try:
        schema = pa.ipc.open_file(unchecked_content(path)).schema
        packed = schema.metadata[_KEYS].hex()
        if schema.metadata[_CHECKSUM] != _schema_checksum(schema):
            return None
    except DAMAGES:
        return None  # Versions before 0.5 did not write them.
    return [packed[at : at + 32] for at in range(0, len(packed), 32)]


def undamaged_rows(path: AnyPath) -> Iterator[tuple[int, Change]]:
    """What is still good of a damaged file: rows of the input, and the changes to them."""
    try:
        reader = pa.ipc.open_file(unchecked_content(path))
        metadata = reader.schema.metadata
        if metadata[_CHECKSUM] != _schema_checksum(reader.schema):
            return
        parts = [_SavedRows(*part) for part in json.loads(metadata[_BATCHES])]
    except DAMAGES:
        return
    for number, part in enumerate(parts):
        try:
            batch = reader.get_batch(number)
            # Before anything is done with it: offsets that are damaged abort the process.
            batch.validate(full=True)
            if _xxh3(batch.serialize()) != part.xxh3:
                continue
        except DAMAGES:
            continue
        table = pa.Table.from_batches([batch], reader.schema)
        yield from _rows(of_table(table), part)


def _rows(result: StepResult, part: _SavedRows) -> Iterator[tuple[int, Change]]:
    """The rows of a batch, from a commit that has only the columns of that batch."""
    change = result.change
    reasons = (
        None if change.reasons is None else change.reasons.slice(part.start, part.stop - part.start)
    )
    parents = change.parents
    if parents is not None:
        parents = np.where(parents < 0, -1, parents - part.start)
    failed = change.failed
    if failed is not None:
        failed = failed[(failed >= part.start) & (failed < part.stop)] - part.start
    own = change._replace(reasons=reasons, parents=parents, failed=failed, notes={}, logged={})
    yield from enumerate(split(own, range(part.stop - part.start + 1)), part.start)


def _bounds(result: StepResult, table: pa.Table) -> Iterator[tuple[int, int, int, int]]:
    """Where batches begin and end: rows of the input, and rows of the table."""
    rows, parents = result.rows_in, result.change.parents
    ends_N = np.arange(rows + 1)
    if parents is not None:  # A row without a parent goes with the row before it.
        nearest = np.maximum.accumulate(np.append(0, parents))[1:]
        ends_N = np.searchsorted(nearest, ends_N)
        ends_N[-1] = table.num_rows
    step = max(1, rows * _BATCH_BYTES // max(1, table.nbytes))
    for start, stop in pairwise([*range(0, rows, step), rows]):
        yield start, stop, int(ends_N[start]), int(ends_N[stop])


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    table = table.combine_chunks()
    (batch,) = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    return batch


def _xxh3(content: bytes | pa.Buffer) -> str:
    return xxhash.xxh3_128_hexdigest(content)


def _schema_checksum(schema: pa.Schema) -> bytes:
    """The checksum of the metadata, but for the checksum in it, and of columns' names and types.

    The checksum of a batch is of its values: they stay right under a name that is damaged.
    """
    fields = [(field.name, str(field.type)) for field in schema]
    state = xxhash.xxh3_128(json.dumps(fields).encode())
    for name, content in sorted(schema.metadata.items()):
        if name != _CHECKSUM:
            state.update(b"%d:%s%d:" % (len(name), name, len(content)))
            state.update(content)
    return state.hexdigest().encode()
