"""A cache of answers that cost something: no request is sent twice.

It is one SQLite file, which several processes and threads may use at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from .errors import EngineError

_FORMAT = 1  # of the file
_LOCK_TIMEOUT_S = 60  # for another process that writes
_MAKE = "CREATE TABLE answers (key BLOB PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID"


class AnswerCache:
    """Stores texts in a file; thread-safe.

    Args:
        path: of the file; it and its folders are created if necessary.
        content: what is stored, for messages.
        right: what to do where the file cannot be used.

    Raises:
        EngineError: the file cannot be used; all methods may raise it.
    """

    def __init__(self, path: Path, content: str, right: str) -> None:
        self._path, self._content, self._right = path, content, right
        # One connection reads while another waits for a process that writes.
        self._reading, self._writing = threading.Lock(), threading.Lock()
        with self._engine_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):
                self._writer = self._connected()
                self._prepare()
            self._reader = self._connected()

    def get(self, key: bytes) -> str | None:
        """The text stored under `key`, None if there is none."""
        with self._engine_errors(), self._reading:
            found = self._reader.execute("SELECT answer FROM answers WHERE key = ?", (key,))
            row = found.fetchone()
        return None if row is None else str(row[0])

    def put(self, key: bytes, answer: str) -> None:
        """Store `answer` under `key`; it survives if the process is killed afterwards."""
        with self._engine_errors(), self._writing:
            self._writer.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer))

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._writer.close()

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, timeout=_LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )

    def _prepare(self) -> None:
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        # Readers and a writer do not wait for each other.
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute("PRAGMA synchronous = NORMAL")
        if version == 0 and not self._writer.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._writer.execute(_MAKE)
            self._writer.execute(f"PRAGMA user_version = {_FORMAT}")
        elif version != _FORMAT:
            raise EngineError(*self._unusable("it belongs to another program or version"))

    @contextmanager
    def _engine_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise EngineError(*self._unusable(str(error))) from None

    def _unusable(self, reason: str) -> tuple[str, str]:
        return f"the cache of {self._content} {self._path} cannot be used: {reason}", self._right
