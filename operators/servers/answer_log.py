"""A log of answers: one process appends to it, all may read it, and nobody locks anything.

It is a sequence of records, see `operators/records.py`: the key is that of the request. What a
process was writing when it was killed stands at the end, and is no record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..disk import open_file, sync
from ..records import HEADER_BYTES, MAGIC, Header, read_header

_BLOCK = 1 << 20  # bytes that are read at a time
_MOST_RECORDS = 1 << 14  # bytes that most records have at most
_SYNC_S = 1.0


class Record(NamedTuple):
    """A record of a log.

    Attributes:
        key: 32 bytes.
        time_ns: when it was written, in nanoseconds since 1970.
        kind: 0 to 255; what the payload means.
        payload: the bytes that are kept.
    """

    key: bytes
    time_ns: int
    kind: int
    payload: bytes


def encoded(record: Record) -> bytes:
    """The bytes of a record."""
    header = Header.of(record.key, record.kind, [record.payload], record.time_ns)
    return header.packed() + record.payload


def read_record(file: int, offset: int) -> Record | None:
    """The record at an offset of an open file; None if it is damaged, or not all there."""
    data = os.pread(file, _MOST_RECORDS, offset)
    header = read_header(data)
    if header is None:
        return None
    payload = data[HEADER_BYTES : HEADER_BYTES + header.size]
    while len(payload) < header.size:
        more = os.pread(file, header.size - len(payload), offset + HEADER_BYTES + len(payload))
        if not more:
            return None
        payload += more
    if not header.fits(payload):
        return None
    return Record(header.key, header.number, header.kind, payload)


class LogReader:
    """Finds the records of a log, also those that are appended later.

    Args:
        path: of the log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0  # of what is to be read next
        self._search = 0  # from where to look for a record if there is none
        self._size = 0  # when it was read last

    def new(self, size: int) -> Iterator[tuple[bytes, int]]:
        """The keys and offsets of records that were not there before; payloads are not read.

        Args:
            size: of the file now.

        Raises:
            OSError: it cannot be read.
        """
        if size == self._size:
            return
        self._size = size
        file = open_file(self.path)
        try:
            yield from self._records(file, size)
        finally:
            os.close(file)

    def _records(self, file: int, size: int) -> Iterator[tuple[bytes, int]]:
        start, block = self._offset, b""  # of the block, and what it has
        while self._offset != size:
            at = self._offset - start
            if at < 0 or len(block) - at < HEADER_BYTES:
                start, at = self._offset, 0
                block = os.pread(file, _BLOCK, start)
            header = read_header(block, at)
            if header is not None:
                payload = at + HEADER_BYTES
                # If bytes of the payload are missing, another record begins before its end.
                self._search = self._offset + HEADER_BYTES
                whole = block.find(MAGIC, payload, payload + header.size) < 0
                if whole and self._search + header.size <= size:
                    yield header.key, self._offset
                    self._offset = self._search + header.size
                    continue
            found = _next_magic(file, self._search, size)
            if found == self._offset:
                found = _next_magic(file, self._offset + 1, size)
            if found is None:
                # It is being written, its writer was killed, or, on a network file system, it is a
                # hole that is filled later.
                return
            self._offset, self._search = found, found + 1


def _next_magic(file: int, start: int, size: int) -> int | None:
    """The offset of the first magic from `start` on."""
    while start < size:
        block = os.pread(file, _BLOCK, start)
        found = block.find(MAGIC)
        if found >= 0:
            return start + found
        if len(block) <= len(MAGIC):
            return None
        start += len(block) - len(MAGIC) + 1  # It may stand across the end of the block.
    return None


class LogWriter:
    """Appends to a log of its own.

    A record survives when the process is killed, and a power failure once it is a second old and
    another was written, or the log was closed.

    Args:
        path: of a log that does not exist.
        clock: seconds.

    Raises:
        OSError: it cannot be created; `append` raises it if it cannot be written, and leaves
            nothing of the record.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock, self._process = path, clock, os.getpid()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self.end = 0
        self._synced_at = clock()
        sync(path.parent)

    def append(self, record: Record) -> int:
        """Write a record; its offset."""
        data, start = encoded(record), self.end
        try:
            written = os.write(self._file, data)
            while written < len(data):  # The disk may be full: the next write tells.
                written += os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, start)
            raise
        self.end += len(data)
        if self._clock() - self._synced_at >= _SYNC_S:
            os.fsync(self._file)
            self._synced_at = self._clock()
        return start

    def is_usable(self) -> bool:
        """Whether it is this process's own, not that of one that forked, and nobody removed it."""
        try:
            return self._process == os.getpid() and os.fstat(self._file).st_nlink > 0
        except OSError:
            return False  # On a network file system: removed by another node.

    def close(self) -> None:
        """Close the file, once it is on the disk."""
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)
