"""What earlier versions kept of resumable operators: it was paid for, so it is taken.

Versions before 0.5 wrote a chunk as an Arrow file, with a checksum after it or, up to 0.4, without
one, and a journal as frames or, up to 0.4, as one Arrow stream. None of them says whose it is. A
chunk is taken where its keys are those of its name, and is written again in the present format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import xxhash

from ...operators import Change
from ...operators.logs import logger
from ..dataset.files import DamagedError, read_content
from ..dataset.remote import AnyPath
from .commit import of_table
from .paid_rows_format import hash_of, rows_of, unpacked
from .steps import StepResult

DAMAGES = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError)
"""What reading damaged Arrow raises."""
_log = logger(__name__)
_TRAILER = b"rejuice\x01"
_ARROW = b"ARROW1"
"""How an Arrow file begins and ends."""
_BATCHES, _CHECKSUM, _KEYS = b"batches", b"schema_xxh3", b"row_keys"

_MARK = b"\xa7\xff row\x00\n"
_HEADER = Struct("<8sIQQ")
"""How a frame begins: the mark, the sizes of the JSON and of the columns, the checksum of both."""
_STREAM = b"\xff\xff\xff\xff"
"""How a journal of version 0.4 begins."""
_META = b"rejuice"

T = TypeVar("T")


class _SavedRows(NamedTuple):
    """A record batch: the rows of the input that led to it, and its checksum."""

    start: int
    stop: int
    xxh3: str


def whole_chunk(path: AnyPath) -> tuple[StepResult, list[str] | None] | None:
    """A chunk, and its keys where they are in it; None: it is damaged, or not of these versions."""
    try:
        content = read_content(path)
        end = bytes(content[max(0, content.size - 24) :])
        if end.endswith(_TRAILER):
            content = content[: content.size - 24]
            if end != xxhash.xxh3_128_digest(content) + _TRAILER:
                return None
        elif not end.endswith(_ARROW):
            return None
        table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
        metadata = table.schema.metadata
        if _BATCHES in metadata and not end.endswith(_TRAILER):
            return None  # Cut off where the checksum was.
        table.validate(full=True)
        return of_table(table), unpacked(metadata[_KEYS]) if _KEYS in metadata else None
    except (DamagedError, *DAMAGES):
        return None


def keys_of(path: AnyPath) -> list[str] | None:
    """Return the keys of the rows of an undamaged chunk; None: it has none."""
    found = whole_chunk(path)
    return None if found is None else found[1]


def undamaged_rows(path: AnyPath) -> Iterator[tuple[int, Change]]:
    """Yield what is still good of a damaged chunk: rows of the input, and the changes to them."""
    try:
        content = read_content(path)
        ends = bytes(content).rfind(_ARROW) + len(_ARROW)
        reader = pa.ipc.open_file(pa.BufferReader(content[:ends]))
        metadata = reader.schema.metadata
        if metadata[_CHECKSUM] != _schema_checksum(reader.schema):
            return
        if hash_of(unpacked(metadata[_KEYS])) != path.stem:
            return  # Of another chunk.
        parts = [_SavedRows(*part) for part in json.loads(metadata[_BATCHES])]
    except (DamagedError, *DAMAGES):
        return
    for number, part in enumerate(parts):
        try:
            batch = reader.get_batch(number)
            # Before anything is done with it: offsets that are damaged abort the process.
            batch.validate(full=True)
            if xxhash.xxh3_128_hexdigest(batch.serialize()) != part.xxh3:
                continue
        except DAMAGES:
            continue
        table = pa.Table.from_batches([batch], reader.schema)
        yield from rows_of(of_table(table), part.start, part.stop)


def _schema_checksum(schema: pa.Schema) -> bytes:
    """The checksum of the metadata, but for the checksum in it, and of columns' names and types."""
    fields = [(field.name, str(field.type)) for field in schema]
    state = xxhash.xxh3_128(json.dumps(fields).encode())
    for name, content in sorted(schema.metadata.items()):
        if name != _CHECKSUM:
            state.update(b"%d:%s%d:" % (len(name), name, len(content)))
            state.update(content)
    return state.hexdigest().encode()


def is_journal(data: memoryview) -> bool:
    """Return whether a journal is of an earlier version."""
    return bytes(data[:4]) == _STREAM or bytes(data[: len(_MARK)]) == _MARK


def journal_entries(data: memoryview, make: Callable[[pa.RecordBatch, bytes], T]) -> Iterator[T]:
    """Yield the undamaged entries of a journal of an earlier version."""
    if bytes(data[:4]) == _STREAM:
        yield from _of_stream(data, make)
        return
    at, end = 0, len(data)
    while at + _HEADER.size < end:
        found = _frame(data, at)
        if found is None:
            next_mark = bytes(data[at + 1 :]).find(_MARK)
            at = end if next_mark < 0 else at + 1 + next_mark
            continue
        meta, columns = found
        at += _HEADER.size + len(meta) + len(columns)
        yield make(pa.ipc.open_stream(columns).read_next_batch(), meta)


def _frame(data: memoryview, at: int) -> tuple[bytes, bytes] | None:
    """Metadata and columns of the frame that begins here; None: none does, or it is damaged."""
    mark, meta_bytes, columns_bytes, checksum = _HEADER.unpack(data[at : at + _HEADER.size])
    start = at + _HEADER.size
    if mark != _MARK or meta_bytes + columns_bytes > len(data) - start:
        return None
    meta = bytes(data[start : start + meta_bytes])
    columns = bytes(data[start + meta_bytes : start + meta_bytes + columns_bytes])
    state = xxhash.xxh3_64(meta, seed=meta_bytes)
    state.update(columns)
    return (meta, columns) if state.intdigest() == checksum else None


def _of_stream(data: memoryview, make: Callable[[pa.RecordBatch, bytes], T]) -> Iterator[T]:
    """Yield the entries of a journal of version 0.4, up to the first that cannot be read."""
    try:
        reader: Any = pa.ipc.open_stream(data)
        while True:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            batch.validate(full=True)
            yield make(batch, metadata[_META])
    except StopIteration:
        return
    except DAMAGES as error:
        _log.debug("a journal ends with %s", error)  # As a rule half a batch.
