"""A journal of changes to single rows: each is in the file as soon as it is added.

A journal is a sequence of frames, one for each row:

    mark | lengths | xxh3 | the change without its columns, JSON | its columns, Arrow

An entry takes one write. What the system has not yet put on the disk is synced once a second, in
case the power fails. A process that is killed may leave half a frame at the end, and a disk may
damage one: that one counts as not written, and the others are found by their marks.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ....operators import Change
from ....operators.disk import sync
from ...filesystem.remote import AnyPath, RemotePath
from ..commit import pack, unpack
from .syncer import Syncer

_log = logging.getLogger(__name__)
_META = b"rejuice"
_MARK = b"\xa7\xff row\x00\n"
"""No text contains it: it is not UTF-8."""
_HEADER = Struct("<8sIQQ")
"""The mark, the bytes of the JSON and of the columns, and the checksum of both."""
_BLOCK = 1 << 20
_STREAM = b"\xff\xff\xff\xff"
"""How a journal of version 0.4 begins: one Arrow stream of all entries."""
DAMAGES = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError)
"""What reading damaged Arrow raises."""
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
        self._syncer = syncer
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
        self._sink.write(self._frame(entry))
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

    def _frame(self, entry: Entry) -> list[Any]:
        """The parts of an entry's frame, as buffers."""
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
        parts = [json.dumps(meta).encode(), self._schema_bytes, batch.serialize()]
        sizes = len(parts[0]), len(parts[1]) + len(parts[2])
        return [_HEADER.pack(_MARK, *sizes, _checksum(*parts)), *parts]


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
    return sorted(path.parent.glob(f"{path.stem}-*.journal"), key=_number)


def _number(journal: AnyPath) -> int:
    return int(journal.stem.rpartition("-")[2])


def entries(path: AnyPath) -> Iterator[Entry]:
    """What was added to the journals that are called after `path`, and is not damaged."""
    for journal in journals(path):
        file = _opened(journal)
        if file is None:
            continue  # Another run has finished the chunk: these rows are in it.
        with file:
            old = file.read(len(_STREAM)) == _STREAM
            yield from _entries_of_stream(file) if old else _entries_of_frames(file, journal)


def _opened(journal: AnyPath) -> BinaryIO | None:
    """A journal, to be read; None: it was removed after it was listed."""
    if isinstance(journal, RemotePath):
        content = journal.read_if_there()
        return None if content is None else BytesIO(content)
    with suppress(FileNotFoundError):
        return journal.open("rb")
    return None


def _entries_of_frames(file: BinaryIO, journal: AnyPath) -> Iterator[Entry]:
    """The entries of a journal, as far as their checksums hold."""
    end, at, torn = file.seek(0, os.SEEK_END), 0, False
    while at + _HEADER.size < end:
        found = _frame(file, at, end)
        if found is None:
            torn, at = True, _next_mark(file, at + 1, end)
            continue
        if torn:  # Not at the end, where a process that was killed leaves half a frame.
            _log.warning("%s is damaged: what is lost of it is computed again", journal)
            torn = False
        meta, columns = found
        at += _HEADER.size + len(meta) + len(columns)
        yield _entry(pa.ipc.open_stream(columns).read_next_batch(), meta)


def _frame(file: BinaryIO, at: int, end: int) -> tuple[bytes, bytes] | None:
    """Metadata and columns of the frame that begins here; None: none does, or it is damaged."""
    file.seek(at)
    mark, meta_bytes, columns_bytes, checksum = _HEADER.unpack(file.read(_HEADER.size))
    if mark != _MARK or meta_bytes + columns_bytes > end - at - _HEADER.size:
        return None
    found = file.read(meta_bytes), file.read(columns_bytes)
    return found if _checksum(*found) == checksum else None


def _checksum(*parts: Any) -> int:
    state = xxhash.xxh3_64(seed=len(parts[0]))  # Else it would not tell where they meet.
    for part in parts:
        state.update(part)
    return state.intdigest()


def _next_mark(file: BinaryIO, at: int, end: int) -> int:
    """Where the next mark is, from here on; `end` if there is none."""
    while at < end:
        file.seek(at)
        block = file.read(_BLOCK)
        found = block.find(_MARK)
        if found >= 0:
            return at + found
        at += max(1, len(block) - len(_MARK) + 1)
    return end


def _entries_of_stream(file: BinaryIO) -> Iterator[Entry]:
    """The entries of a journal of version 0.4, up to the first that cannot be read."""
    file.seek(0)
    try:
        reader = pa.ipc.open_stream(file)
        while True:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            batch.validate(full=True)
            yield _entry(batch, metadata[_META])
    except StopIteration:
        return
    except DAMAGES as error:
        _log.debug("a journal ends with %s", error)  # As a rule half a batch.


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
