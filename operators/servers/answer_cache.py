"""A cache of answers that cost something: no request is sent twice.

    scores.answers/NODE-PID-RANDOM.log    one for each process that has stored something
    scores.sqlite                         of an earlier version, read where it is there

Several processes, threads and nodes may use the folder at a time, also on a network file system:
each process appends to a log of its own, so nothing is locked. What another one has stored is found
when a key is looked up that is not known yet.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import socket
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..disk import HEADER_BYTES, MAGIC, Header, open_file, read_header, sync
from ..errors import EngineError

# --- Index: 16 bytes of memory for each answer ----------------------------------------

_FEWEST_MERGED = 1 << 16


class AnswerIndex:
    """Finds places by the first 8 bytes of a key; places are integers below 2**63.

    Two keys with the same first bytes share their places: the caller reads which is which.
    """

    def __init__(self) -> None:
        self._prefixes_N = np.empty(0, np.uint64)  # in order
        self._places_N = np.empty(0, np.int64)
        self._recent: dict[int, list[int]] = {}
        self._recent_places = 0

    def __len__(self) -> int:
        return len(self._places_N) + self._recent_places

    def add(self, key: bytes, place: int) -> None:
        """Add a place of a key, which may have others."""
        self._recent.setdefault(_prefix(key), []).append(place)
        self._recent_places += 1
        # In proportion, so that all merges of N places take a time proportional to N.
        if self._recent_places > max(_FEWEST_MERGED, len(self._places_N) // 4):
            self._merge()

    def find(self, key: bytes) -> list[int]:
        """Return all places of a key, the latest last."""
        prefix = _prefix(key)
        recent = self._recent.get(prefix, [])
        wanted = np.uint64(prefix)
        first = int(np.searchsorted(self._prefixes_N, wanted))
        if first == len(self._prefixes_N) or self._prefixes_N[first] != wanted:
            return list(recent)
        last = int(np.searchsorted(self._prefixes_N, wanted, side="right"))
        return [*self._places_N[first:last].tolist(), *recent]

    def _merge(self) -> None:
        prefixes = [prefix for prefix, places in self._recent.items() for _ in places]
        places = [place for places in self._recent.values() for place in places]
        prefixes_N = np.concatenate([self._prefixes_N, np.array(prefixes, np.uint64)])
        order_N = np.argsort(prefixes_N, kind="stable")
        self._prefixes_N = prefixes_N[order_N]
        self._places_N = np.concatenate([self._places_N, np.array(places, np.int64)])[order_N]
        self._recent, self._recent_places = {}, 0


def _prefix(key: bytes) -> int:
    return int.from_bytes(key[:8], "little")


# --- Log of one process ---------------------------------------------------------------

_BLOCK = 1 << 20  # bytes that are read at a time
_MOST_RECORDS = 1 << 14  # bytes that most records have at most
_SYNC_S = 1.0


class Record(NamedTuple):
    """A record of a log."""

    key: bytes  # 32 bytes
    time_ns: int  # when it was written, in nanoseconds since 1970
    kind: int  # 0 to 255; what the payload means
    payload: bytes  # the bytes that are kept


def encoded(record: Record) -> bytes:
    """Return the bytes of a record."""
    header = Header.of(record.key, record.kind, [record.payload], record.time_ns)
    return header.packed() + record.payload


def read_record(file: int, offset: int) -> Record | None:
    """Return the record at an offset of an open file; None if it is damaged, or not all there."""
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
        """Yield the keys and offsets of records that were not there before; payloads are not read.

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
    """Return the offset of the first magic from `start` on."""
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


# --- Open files, of which a process may have only so many -----------------------------

_MOST_OPEN = 64


class OpenFiles:
    """Files by number, opened for reading where they are needed; not thread-safe."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._open: OrderedDict[int, int] = OrderedDict()  # the one used last at the end

    def add(self, path: Path) -> int:
        """Return the number of another file."""
        self._paths.append(path)
        return len(self._paths) - 1

    def open(self, number: int) -> int:
        """Return the descriptor of a file, until another one is opened.

        Raises:
            OSError: it cannot be opened.
        """
        if number not in self._open:
            self._open[number] = open_file(self._paths[number])
        self._open.move_to_end(number)
        if len(self._open) > _MOST_OPEN:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return self._open[number]

    def close(self) -> None:
        """Close all; they are opened again where they are needed."""
        while self._open:
            os.close(self._open.popitem()[1])


# --- The answers that earlier versions kept in a SQLite file, which is only read ------
# answers(key, answer)             what could be read
# failures(key, reason, answer)    what could not; files of version 0.4.0 have no such table

_FORMAT = 1
_LOCK_TIMEOUT_S = 60  # for a process of an earlier version that writes


class UnknownFileError(Exception):
    """The file belongs to another program or version."""


class SqliteAnswers:
    """The answers of a file; thread-safe.

    Args:
        path: of the file.

    Raises:
        UnknownFileError: it has another form.
        sqlite3.Error: it cannot be read; all methods may raise it.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = _opened(path)
        (version,) = self._file.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in self._file.execute("SELECT name FROM sqlite_master")}
        # A process that was killed as it made the file may have left an empty one.
        self._has_answers, self._has_failures = "answers" in tables, "failures" in tables
        if version != _FORMAT and (tables or version):
            self._file.close()
            raise UnknownFileError("it belongs to another program or version")

    def answer(self, key: bytes) -> str | None:
        """Return the answer under a key."""
        if not self._has_answers:
            return None
        row = self._row("SELECT answer FROM answers WHERE key = ?", key)
        return None if row is None else str(row[0])

    def failure(self, key: bytes) -> tuple[str, str] | None:
        """Return why there is no answer under a key, and what came instead."""
        if not self._has_failures:
            return None
        row = self._row("SELECT reason, answer FROM failures WHERE key = ?", key)
        return None if row is None else (str(row[0]), str(row[1]))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _row(self, query: str, key: bytes) -> tuple[object, ...] | None:
        with self._lock:
            row: tuple[object, ...] | None = self._file.execute(query, (key,)).fetchone()
            return row


def _opened(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        return _readable(uri)
    except sqlite3.OperationalError:
        # SQLite cannot share memory on a network file system, or make a file beside this one.
        return _readable(f"{uri}&immutable=1")


def _readable(uri: str) -> sqlite3.Connection:
    file = sqlite3.connect(uri, uri=True, timeout=_LOCK_TIMEOUT_S, check_same_thread=False)
    try:
        file.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        file.close()
        raise
    return file


# --- The cache ------------------------------------------------------------------------

_ANSWER, _FAILURE = 0, 1
_FOLDER, _LOG, _SQLITE = ".answers", ".log", ".sqlite"
_OFFSET_BITS = 40  # of a place; the bits before them number the log
_LOOK_SHARE = 20
"""Looking for answers of others takes a twentieth of the time at most, however slow it is."""
_GONE = (errno.ENOENT, errno.ESTALE)


def folder_of(path: Path) -> Path:
    """Return the folder of a cache: its name ends in `.answers`, in place of `.sqlite`."""
    return path.with_name(path.name.removesuffix(_FOLDER).removesuffix(_SQLITE) + _FOLDER)


def has_answers(path: Path) -> bool:
    """Return whether there is a cache at this path, of this version or of an earlier one."""
    return folder_of(path).is_dir() or _earlier(path).is_file()


def _earlier(path: Path) -> Path:
    """Return the file of an earlier version."""
    return path.with_suffix(_SQLITE) if path.suffix == _FOLDER else path


class AnswerCache:
    """Stores texts in a folder; thread-safe. Keys have 32 bytes, such as those of SHA-256.

    It keeps 16 bytes of memory for each text, and reads the text itself when it is asked for. A
    damaged one counts as absent.

    Args:
        path: the folder, which is created if necessary; `.answers` is added if it is missing. If
            the path is a file of an earlier version, its answers are found as well.
        content: what is stored, for messages.
        right: what to do where the cache cannot be used.
        writes: whether anything will be stored.
        clock: seconds.

    Raises:
        EngineError: the cache cannot be used; all methods may raise it.
    """

    def __init__(
        self,
        path: Path,
        content: str,
        right: str,
        *,
        writes: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._content, self._right, self._clock = path, content, right, clock
        self._folder = folder_of(path)
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._index, self._files = AnswerIndex(), OpenFiles()
        self._numbers = dict[str, int]()  # of logs, by name
        self._readers = dict[str, LogReader]()  # of logs of others
        self._writer: LogWriter | None = None
        self._looked_at, self._look_s = 0.0, 0.0
        with self._engine_errors():
            earlier = _earlier(path)
            self._sqlite = SqliteAnswers(earlier) if earlier.is_file() else None
            if writes:
                _make_folder(self._folder)
            with self._reading:
                self._look()

    def count(self) -> int:
        """How many texts and failures were found so far, without those of an earlier version."""
        return len(self._index)

    def get(self, key: bytes) -> str | None:
        """Return the text stored under `key`, None if there is none."""
        with self._engine_errors():
            record = self._found(key, _ANSWER)
            if record is not None:
                return record.payload.decode()
            return self._sqlite.answer(key) if self._sqlite else None

    def failure(self, key: bytes) -> tuple[str, str] | None:
        """Why there is no text under `key`, and what came instead; None if nothing is known."""
        with self._engine_errors():
            record = self._found(key, _FAILURE)
            if record is not None:
                reason, text = json.loads(record.payload)
                return reason, text
            return self._sqlite.failure(key) if self._sqlite else None

    def put(self, key: bytes, answer: str) -> None:
        """Store `answer` under `key`; it survives if the process is killed afterwards."""
        self._append(key, _ANSWER, answer.encode())

    def put_failure(self, key: bytes, reason: str, text: str) -> None:
        """Store why there is no answer, and what came instead, in place of an earlier one."""
        self._append(key, _FAILURE, json.dumps([reason, text]).encode())

    def close(self) -> None:
        """Close all files; what was stored is on the disk then. Nothing is looked up afterwards."""
        with self._engine_errors(), self._writing, self._reading:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._files.close()
            if self._sqlite is not None:
                self._sqlite.close()

    def _found(self, key: bytes, kind: int) -> Record | None:
        with self._reading:
            record = self._newest(key, kind)
            if record is None and self._clock() >= self._looked_at + _LOOK_SHARE * self._look_s:
                self._look()
                record = self._newest(key, kind)
            return record

    def _newest(self, key: bytes, kind: int) -> Record | None:
        records = [self._record(place) for place in self._index.find(key)]
        fitting = [each for each in records if each and (each.key, each.kind) == (key, kind)]
        return max(fitting, key=lambda each: each.time_ns, default=None)

    def _record(self, place: int) -> Record | None:
        number, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
        try:
            return read_record(self._files.open(number), offset)
        except OSError as error:
            if error.errno in _GONE:
                return None  # Somebody has removed the log.
            raise

    def _look(self) -> None:
        """Find what others have stored since the last time."""
        start = self._clock()
        for entry in _logs(self._folder):
            if entry.name not in self._numbers:
                path = self._folder / entry.name
                self._numbers[entry.name] = self._files.add(path)
                self._readers[entry.name] = LogReader(path)
            if entry.name in self._readers:
                self._add(entry)
        self._looked_at = self._clock()
        self._look_s = self._looked_at - start

    def _add(self, entry: os.DirEntry[str]) -> None:
        number = self._numbers[entry.name]
        try:
            for key, offset in self._readers[entry.name].new(entry.stat().st_size):
                self._index.add(key, number << _OFFSET_BITS | offset)
        except OSError as error:
            if error.errno not in _GONE:
                raise

    def _append(self, key: bytes, kind: int, payload: bytes) -> None:
        with self._engine_errors(), self._writing:
            with self._reading:
                before = self._newest(key, kind)
            # Later than the one that it replaces, whatever the clock shows.
            time_ns = max(time.time_ns(), before.time_ns + 1 if before else 0)
            writer = self._open_writer()
            offset = writer.append(Record(key, time_ns, kind, payload))
            with self._reading:
                self._index.add(key, self._numbers[writer.path.name] << _OFFSET_BITS | offset)

    def _open_writer(self) -> LogWriter:
        if self._writer is not None and not self._writer.is_usable():
            self._writer.close()
            self._writer = None
        if self._writer is None:
            _make_folder(self._folder)
            node = re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())[:64]
            path = self._folder / f"{node}-{os.getpid()}-{secrets.token_hex(4)}{_LOG}"
            with self._reading:
                self._numbers[path.name] = self._files.add(path)
            self._writer = LogWriter(path, self._clock)
        return self._writer

    @contextmanager
    def _engine_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnknownFileError, OSError) as error:
            found = f"the cache of {self._content} {self._path} cannot be used: {error}"
            raise EngineError(found, self._right) from None


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def _logs(folder: Path) -> list[os.DirEntry[str]]:
    """Return the logs in a folder, in order of their names; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name.endswith(_LOG)]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda entry: entry.name)
