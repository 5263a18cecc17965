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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import EngineError
from .answer_index import AnswerIndex
from .answer_log import LogReader, LogWriter, Record, read_record
from .open_files import OpenFiles
from .sqlite import SqliteAnswers, UnknownFileError

_ANSWER, _FAILURE = 0, 1
_FOLDER, _LOG, _SQLITE = ".answers", ".log", ".sqlite"
_OFFSET_BITS = 40  # of a place; the bits before them number the log
_LOOK_SHARE = 20
"""Looking for answers of others takes a twentieth of the time at most, however slow it is."""
_GONE = (errno.ENOENT, errno.ESTALE)


def folder_of(path: Path) -> Path:
    """The folder of a cache: its name ends in `.answers`, in place of `.sqlite`."""
    return path.with_name(path.name.removesuffix(_FOLDER).removesuffix(_SQLITE) + _FOLDER)


def has_answers(path: Path) -> bool:
    """Whether there is a cache at this path, of this version or of an earlier one."""
    return folder_of(path).is_dir() or _earlier(path).is_file()


def _earlier(path: Path) -> Path:
    """The file of an earlier version."""
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
        """The text stored under `key`, None if there is none."""
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
    """The logs in a folder, in order of their names; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name.endswith(_LOG)]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda entry: entry.name)
