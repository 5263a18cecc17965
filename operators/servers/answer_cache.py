"""A cache of answers that cost something: no request is sent twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..errors import EngineError
from ..kept_rows import has_kept_rows, open_kept_rows

P = ParamSpec("P")
T = TypeVar("T")
_FOLDER = ".answers"


def folder_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_FOLDER) + _FOLDER)


def has_answers(path: Path) -> bool:
    return has_kept_rows(folder_of(path))


class AnswerCache:
    """Texts in a folder, see `kept_rows`; thread-safe. Several processes and nodes may use it.

    `right` says what to do where the cache cannot be used, which is the EngineError of all methods.
    """

    def __init__(self, path: Path, content: str, right: str, *, writes: bool = True) -> None:
        self._cannot = f"the cache of {content} {path} cannot be used", right
        self._rows = self._do(partial(open_kept_rows, writes=writes), folder_of(path))
        self._do(len, self._rows)

    def get(self, key: bytes) -> str | None:
        payload = self._do(self._rows.get, [key]).get(key)
        return None if payload is None else payload.decode()

    def failure(self, key: bytes) -> tuple[str, str] | None:
        """Why there is no text under `key`, and what came instead; None if nothing is known."""
        text = self.get(_of_failure(key))
        return None if text is None else tuple(json.loads(text))

    def put(self, key: bytes, answer: str) -> None:
        """Store `answer` under `key`; it survives if the process is killed afterwards."""
        self._do(self._rows.put, key, answer.encode())

    def put_failure(self, key: bytes, reason: str, text: str) -> None:
        """Store why there is no answer, and what came instead, beside what `put` has stored."""
        self.put(_of_failure(key), json.dumps([reason, text]))

    def close(self) -> None:
        self._do(self._rows.close)

    def _do(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except OSError as error:
            found, right = self._cannot
            raise EngineError(f"{found}: {error}", right) from None


def _of_failure(key: bytes) -> bytes:
    return hashlib.sha256(b"failure " + key).digest()
