"""The answers that earlier versions kept in a SQLite file, which is only read.

answers(key, answer)             what could be read
failures(key, reason, answer)    what could not; files of version 0.4.0 have no such table
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

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
        """The answer under a key."""
        if not self._has_answers:
            return None
        row = self._row("SELECT answer FROM answers WHERE key = ?", key)
        return None if row is None else str(row[0])

    def failure(self, key: bytes) -> tuple[str, str] | None:
        """Why there is no answer under a key, and what came instead."""
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
