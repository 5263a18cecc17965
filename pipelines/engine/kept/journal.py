"""A journal of changes to single rows: each is in the file as soon as it is added.

A journal is a sequence of records, see `operators/records.py`, one for each row:

    header | bytes of the JSON | the change without its columns, JSON | its columns, Arrow

Each belongs to the chunk that it is a journal of. An entry takes one write. What the system has not
yet put on the disk is synced once a second, in case the power fails. A process that is killed may
leave half a record at the end, and a disk may damage one: that one counts as not written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ....operators import Change
from ....operators.disk import sync
from ....operators.logs import logger
from ....operators.records import Header, records_in
from ...dataset.checked import DamagedError, owner, read_content
from ...dataset.remote import AnyPath, RemotePath
from ..commit import pack, unpack
from . import earlier
from .syncer import Syncer

_log = logger(__name__)
_ROW = 4
"""The kind of the records."""
_META_BYTES = Struct("<I")
_OBJECT_BYTES = 8 << 20


class Entry(NamedTuple):
    """A row, what was done to it, and the seconds since the entry before."""

    row: int
    change: Change
    seconds: float


class Journal:
    """Appends entries to a new file of a folder or, in an object store, writes them as files.

    Args:
        path: journals are called after it: `<stem>-0.journal`, `<stem>-1.journal`.
        syncer: what puts on the disk, or sends, what was added. None: only `close` does.
    """

    def __init__(self, path: AnyPath, syncer: Syncer | None = None) -> None:
        self._syncer, self._owner = syncer, owner(path)
        self._sink = _Objects(path) if isinstance(path, RemotePath) else _File(path)
        self._schema: pa.Schema | None = None
        self._schema_bytes: Any = b""

    def add(self, entry: Entry) -> None:
        """Append an entry. It outlives the process when this returns, and a loss of power a second
        later; in an object store, it outlives both a second later.

        Raises:
            OSError: it could not be written, or what was added before it could not be synced.
            DataError: a store refused it.
        """
        self._sink.write(self._record(entry))
        if self._syncer is not None:
            self._syncer.written(self._sink)

    def close(self) -> None:
        """Sync what was added, and close the file.

        Raises:
            OSError: the disk refused some of it, now or before.
            DataError: a store did.
        """
        try:
            if self._syncer is not None:
                self._syncer.forget(self._sink)
        finally:
            self._sink.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _record(self, entry: Entry) -> list[Any]:
        """The parts of an entry's record, as buffers."""
        change = entry.change
        meta: dict[str, Any] = {
            "row": entry.row,
            "seconds": entry.seconds,
            "reason": None if change.reasons is None else change.reasons[0].as_py(),
            "without": change.without,
            "notes": {name: float(figure) for name, figure in change.notes.items()},
        }
        if change.logged:
            meta["logged"] = dict(change.logged)
        if change.failed is not None:
            meta["failed"] = change.failed.tolist()
        batch = pa.record_batch(pack(change))
        if batch.schema != self._schema:
            self._schema, self._schema_bytes = batch.schema, batch.schema.serialize()
        content = json.dumps(meta).encode()
        size = _META_BYTES.pack(len(content))
        parts = [size, content, self._schema_bytes, batch.serialize()]
        return [Header.of(self._owner, _ROW, parts).packed(), *parts]


class _File:
    """A journal on disk, which is there from the first entry on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None

    def write(self, parts: Sequence[Any]) -> None:
        """Append some buffers, in one write unless the disk takes less."""
        if self._file is None:
            number = max(map(_number, journals(self._path)), default=-1) + 1
            name = f"{self._path.stem}-{number}.journal"
            self._file = open(self._path.with_name(name), "xb", buffering=0)  # noqa: SIM115
            sync(self._path.parent)
        written = os.writev(self._file.fileno(), parts)
        left = memoryview(b"".join(parts))[written:] if written < sum(map(len, parts)) else b""
        while left:
            left = left[self._file.write(left) :]

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with file:
                os.fsync(file.fileno())


class _Objects:
    """A journal in a store, where nothing can be appended to: a file for what came in a second."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._waiting: list[Any] = []
        self._lock = Lock()  # It is synced in another thread.

    def write(self, parts: Sequence[Any]) -> None:
        """Keep some buffers until they are sent; many bytes are sent at once."""
        with self._lock:
            self._waiting += parts
            size = sum(map(len, self._waiting))
        if size >= _OBJECT_BYTES:
            self.sync()

    def sync(self) -> None:
        with self._lock:
            if self._waiting:
                # Another driver may write journals of the same chunk: there is no lock.
                name = f"{self._path.stem}-{time.time_ns()}.journal"
                self._path.with_name(name).write_bytes(b"".join(self._waiting))
                self._waiting = []

    def close(self) -> None:
        self.sync()


def journals(path: AnyPath) -> list[Any]:
    """The journals that are called after `path`, the oldest first."""
    found: Iterable[AnyPath] = path.parent.glob(f"{path.stem}-*.journal")
    return sorted((file for file in found if _digits(file).isdecimal()), key=_number)


def _number(journal: AnyPath) -> int:
    return int(_digits(journal))


def _digits(journal: AnyPath) -> str:
    return journal.stem.rpartition("-")[2]


def entries(path: AnyPath) -> Iterator[Entry]:
    """What was added to the journals that are called after `path`, and is not damaged."""
    for journal in journals(path):
        try:
            content = _content(journal)
        except DamagedError as error:
            _log.warning("%s: what was in it is computed again", error.found)
            continue
        if content is None:
            continue  # Another run has finished the chunk: these rows are in it.
        data = memoryview(content)
        if earlier.is_journal(data) or next(records_in(data), None) is None:
            yield from earlier.journal_entries(data, _entry)
        else:
            yield from _entries(data, journal, owner(path))


def _content(journal: AnyPath) -> Any:
    """What a journal holds; None: it was removed after it was listed."""
    if isinstance(journal, RemotePath):
        return journal.read_if_there()
    try:
        return read_content(journal)
    except FileNotFoundError:
        return None


def _entries(data: memoryview, journal: AnyPath, key: bytes) -> Iterator[Entry]:
    """The entries of a journal that are undamaged, and belong to this chunk."""
    lost = False
    for header, payload, after_damage in records_in(data):
        # Not at the end, where a process that was killed leaves half a record.
        lost |= after_damage or (header.key, header.kind) != (key, _ROW)
        if header.key == key and header.kind == _ROW:
            (size,) = _META_BYTES.unpack(payload[: _META_BYTES.size])
            # A copy: Arrow wants it aligned, and a row may be held for longer than the file.
            columns = bytes(payload[_META_BYTES.size + size :])
            meta = bytes(payload[_META_BYTES.size : _META_BYTES.size + size])
            yield _entry(pa.ipc.open_stream(columns).read_next_batch(), meta)
    if lost:
        _log.warning("%s is damaged: what is lost of it is computed again", journal)


def _entry(batch: pa.RecordBatch, metadata: bytes) -> Entry:
    meta = json.loads(metadata)
    columns, parents = unpack(batch)
    failed = meta.get("failed")
    change = Change(
        columns,
        pa.array([meta["reason"]], pa.string()),
        parents,
        tuple(meta["without"]),
        meta["notes"],
        meta.get("logged", {}),
        None if failed is None else np.array(failed, np.int64),
    )
    return Entry(meta["row"], change, meta["seconds"])
