"""A cache of answers that cost something: no request is sent twice."""

from __future__ import annotations

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
        path: the folder, which is created if necessary; `.answers` is added if it is missing.
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
        return self._found(key)[0]

    def failure(self, key: bytes) -> tuple[str, str] | None:
        """Why there is no text under `key`, and what came instead; None if nothing is known."""
        _, reason, text = self._found(key)
        return None if reason is None else (reason, text)

    def put(self, key: bytes, answer: str) -> None:
        """Store `answer` under `key`; it survives if the process is killed afterwards."""
        self._put(key, [answer, None, ""])

    def put_failure(self, key: bytes, reason: str, text: str) -> None:
        """Store why there is no answer, and what came instead."""
        self._put(key, [None, reason, text])

    def close(self) -> None:
        """Have the disk take what was stored."""
        with self._engine_errors():
            self._rows.close()

    def _found(self, key: bytes) -> tuple[str | None, str | None, str]:
        with self._engine_errors():
            payload = self._rows.get([key]).get(key)
        answer, reason, text = (None, None, "") if payload is None else json.loads(payload)
        return answer, reason, text

    def _put(self, key: bytes, payload: list[str | None]) -> None:
        with self._engine_errors():
            self._rows.put(key, json.dumps(payload).encode())

    @contextmanager
    def _engine_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            found = f"the cache of {self._content} {self._path} cannot be used: {error}"
            raise EngineError(found, self._right) from None
