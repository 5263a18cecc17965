"""A cache of answers that cost something: no request is sent twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import EngineError
from ..kept_rows import has_kept_rows, open_kept_rows

_FOLDER = ".answers"


def folder_of(path: Path) -> Path:
    """The folder of a cache: its name ends in `.answers`."""
    return path.with_name(path.name.removesuffix(_FOLDER) + _FOLDER)


def has_answers(path: Path) -> bool:
    """Whether there is a cache at this path."""
    return has_kept_rows(folder_of(path))


class AnswerCache:
    """Texts in a folder, see `kept_rows`; thread-safe. Several processes and nodes may use it.

    Args:
        path: the folder; `.answers` is added if it is missing.
        content: what is stored, for messages.
        right: what to do where the cache cannot be used.
        writes: whether anything will be stored.

    Raises:
        EngineError: the cache cannot be used; all methods may raise it.
    """

    def __init__(self, path: Path, content: str, right: str, *, writes: bool = True) -> None:
        self._path, self._content, self._right = path, content, right
        with self._engine_errors():
            self._rows = open_kept_rows(folder_of(path), writes=writes)
            len(self._rows)

    def get(self, key: bytes) -> str | None:
        """The text stored under `key`, None if there is none."""
        payload = self._payload(key)
        return None if payload is None else payload.decode()

    def failure(self, key: bytes) -> tuple[str, str] | None:
        """Why there is no text under `key`, and what came instead; None if nothing is known."""
        payload = self._payload(_of_failure(key))
        return None if payload is None else tuple(json.loads(payload))

    def put(self, key: bytes, answer: str) -> None:
        """Store `answer` under `key`; it survives if the process is killed afterwards."""
        with self._engine_errors():
            self._rows.put(key, answer.encode())

    def put_failure(self, key: bytes, reason: str, text: str) -> None:
        """Store why there is no answer, and what came instead, beside what `put` has stored."""
        with self._engine_errors():
            self._rows.put(_of_failure(key), json.dumps([reason, text]).encode())

    def close(self) -> None:
        """Have the disk take what was stored."""
        with self._engine_errors():
            self._rows.close()

    def _payload(self, key: bytes) -> bytes | None:
        with self._engine_errors():
            return self._rows.get([key]).get(key)

    @contextmanager
    def _engine_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            found = f"the cache of {self._content} {self._path} cannot be used: {error}"
            raise EngineError(found, self._right) from None


def _of_failure(key: bytes) -> bytes:
    return hashlib.sha256(b"failure " + key).digest()
