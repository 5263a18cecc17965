"""Answers of scorers, kept by what was asked: no response is scored twice.

One SQLite file, which several processes and threads may use at a time. What is kept is the answer
as the server gave it, so that it can be read in another way without asking again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from ..errors import EngineError

CODE = 1
"""State of what is asked beside the fields of a request, and of what is kept: part of every key."""
_FORMAT = 1  # of the file
_PATIENCE_S = 60  # with another process that writes
_MAKE = "CREATE TABLE answers (key BLOB PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID"


def key_of(body: Mapping[str, Any], revision: str) -> bytes:
    """What an answer is kept by: SHA-256 of all that decides it.

    Args:
        body: of the request: the model, the whole chat, all parameters.
        revision: which weights the name of the model stands for.
    """
    asked = json.dumps([CODE, revision, body], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(asked.encode()).digest()


def user_cache() -> Path:
    """The file in the user's cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "rejuice" / "scores.sqlite"


class AnswerCache:
    """Keeps texts in a file; for many threads.

    Args:
        path: of the file; it and its folders are made where they are not there.

    Raises:
        EngineError: the file cannot be used, which any method may say.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # One connection reads while another waits for a process that writes.
        self._reading, self._writing = threading.Lock(), threading.Lock()
        with self._told():
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):
                self._writer = self._connected()
                self._prepare()
            self._reader = self._connected()

    def get(self, key: bytes) -> str | None:
        """What is kept by `key`."""
        with self._told(), self._reading:
            found = self._reader.execute("SELECT answer FROM answers WHERE key = ?", (key,))
            row = found.fetchone()
        return None if row is None else str(row[0])

    def put(self, key: bytes, answer: str) -> None:
        """Keep `answer` by `key`; it is there when this returns, even if the process is killed."""
        with self._told(), self._writing:
            self._writer.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer))

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._writer.close()

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
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
            raise EngineError(*self._unfit("it is of another program or version"))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise EngineError(*self._unfit(str(error))) from None

    def _unfit(self, why: str) -> tuple[str, str]:
        found = f"the cache of scores {self._path} cannot be used: {why}"
        return found, "set `cache` to another path, or to null to keep no scores"
