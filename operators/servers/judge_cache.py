"""The cache of scorers' answers, by request: no response is scored twice.

It stores the answer as the server gave it, so that it can be interpreted differently without
another request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..user_cache import in_user_cache
from .answer_cache import AnswerCache

CODE = 1
"""Version of what the fields of a request do not show, and of the stored answers: part of keys."""


def key_of(body: Mapping[str, Any], revision: str) -> bytes:
    """The key of an answer: SHA-256 of everything that determines it.

    Args:
        body: of the request: the model, the whole chat, all parameters.
        revision: identifies the weights behind the name of the model.
    """
    request = json.dumps([CODE, revision, body], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(request.encode()).digest()


def user_cache() -> Path:
    """The cache in the user's cache folder."""
    return in_user_cache("scores.answers")


def open_cache(path: Path, *, writes: bool = True) -> AnswerCache:
    """The cache at a path; see `AnswerCache`.

    Raises:
        EngineError: it cannot be used; all methods of the cache may raise it.
    """
    right = "set `cache` to another path, or to null to keep no scores"
    return AnswerCache(path, "scores", right, writes=writes)
