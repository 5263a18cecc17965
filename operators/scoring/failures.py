"""What scorers answered instead of a score, kept beside their answers; and what is kept, by row.

    scores.sqlite   answers(key, answer)             what could be read
                    failures(key, reason, answer)    what could not; a later answer outdates it

A judge keeps failures once `keep_failures` has opened it. No operator imports this module, so its
code is no part of the keys of their results: how a failure is kept changes no score.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ..answer_cache import AnswerCache
from ..openai.options import ServerOptions
from .answer import ScorerAnswer
from .cache import user_cache
from .judge import Judge, ScoringOutcome, ScoringRequest, _open, _opening
from .judged_mapper import JudgedMapper
from .verdict import MalformedError

_MAKE = (
    "CREATE TABLE IF NOT EXISTS failures "
    "(key BLOB PRIMARY KEY, reason TEXT NOT NULL, answer TEXT NOT NULL) WITHOUT ROWID"
)
_PUT = "INSERT OR REPLACE INTO failures VALUES (?, ?, ?)"
_MALFORMED, _NOT_SENT = "scorer_malformed", "scorer_unreachable"
_AT_ONCE = 500
"""Keys in one query: SQLite takes at least 999."""
_FIRST_ROWS = 64


class RawAnswer(NamedTuple):
    """What a scorer answered about a row.

    Attributes:
        text: as it came; of a request that got none, the message of the failure.
        reason: why there is no score; None where there is one.
    """

    text: str
    reason: str | None


class FailureCache(AnswerCache):
    """The cache of scores, with a table of failures: versions without it leave the table alone.

    Args:
        path: of the file of scores, which is created if necessary.

    Raises:
        EngineError: the file cannot be used; all methods may raise it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "failures", "set `cache` to another path, or to null to keep none")
        with self._engine_errors(), self._writing:
            self._writer.execute(_MAKE)

    def put_failure(self, key: bytes, reason: str, answer: str) -> None:
        """Store why a request has no score, and what came instead, in place of an earlier one."""
        with self._engine_errors(), self._writing:
            self._writer.execute(_PUT, (key, reason, answer))


class KeepingJudge(Judge):
    """A judge that keeps what came instead of a score.

    Args:
        server: which server, and how to retry.
        cache: file in which its answers are stored, and failures.
    """

    def __init__(self, server: ServerOptions, cache: Path) -> None:
        self._failures = FailureCache(cache)
        super().__init__(server, cache)
        self._malformed: dict[bytes, str] = {}

    def outcomes(
        self, requests: Sequence[ScoringRequest], probe: Mapping[str, Any], *, fail: bool
    ) -> Iterator[tuple[int, ScoringOutcome]]:
        """As `Judge.outcomes`; failures are stored before they are yielded."""
        for request in requests:
            request.read = partial(self._read, request.key, request.read)
        for index, outcome in super().outcomes(requests, probe, fail=fail):
            self._keep(requests[index].key, outcome)
            yield index, outcome

    def close(self) -> None:
        """Cancel requests in flight and close connections and cache."""
        super().close()
        self._failures.close()

    def _read(
        self,
        key: bytes,
        read: Callable[[ScorerAnswer], tuple[float, ...]],
        answer: ScorerAnswer,
    ) -> tuple[float, ...]:
        try:
            return read(answer)
        except MalformedError:
            self._malformed[key] = answer.text
            raise

    def _keep(self, key: bytes, outcome: ScoringOutcome) -> None:
        if "same_as_another" in outcome.notes:
            return  # Kept with the outcome of the request that was sent.
        text = self._malformed.pop(key, outcome.detail)
        if outcome.reason is not None and outcome.reason != _NOT_SENT:
            text = text if outcome.reason == _MALFORMED else outcome.detail
            self._failures.put_failure(key, outcome.reason, text)


def keep_failures(operator: JudgedMapper, table: pa.Table) -> None:
    """Open the judge of an operator so that it keeps failures, if it is going to be needed.

    Args:
        operator: about to be applied to these rows; without a cache, nothing can be kept.
        table: the rows.

    Raises:
        EngineError: the judge cannot be opened.
    """
    file = _file(operator)
    key = (operator.server, file)
    if file is None or key in _open or not _asks(operator, table):
        return
    with _opening:
        if key not in _open:
            _open[key] = KeepingJudge(operator.server, file)


def _file(operator: JudgedMapper) -> Path | None:
    if operator.cache is None:
        return None
    return user_cache() if operator.cache == "user" else operator.cache.expanduser()


def _asks(operator: JudgedMapper, table: pa.Table) -> bool:
    """Whether the outcome of any row is not known without the scorer."""
    for start in range(0, table.num_rows, _FIRST_ROWS):
        rows = range(start, min(start + _FIRST_ROWS, table.num_rows))
        if not all(isinstance(each, ScoringOutcome) for each in operator._shown(table, rows)):
            return True
    return False


def raw_answers(operator: JudgedMapper, table: pa.Table) -> list[RawAnswer | None]:
    """What is kept of the scorer's answers about some rows, by their requests; nothing is sent.

    Args:
        operator: as it was when they were judged.
        table: the rows, with the columns that it reads.

    Returns:
        One for each row; None where nothing is kept, or the scorer was not needed.
    """
    file = _file(operator)
    if file is None or not file.is_file():
        return [None] * table.num_rows
    shown = operator._shown(table, range(table.num_rows))
    keys = [
        None if isinstance(each, ScoringOutcome) else operator._request(each).key for each in shown
    ]
    kept: dict[bytes, RawAnswer] = {}
    distinct = list(dict.fromkeys(key for key in keys if key is not None))
    # A file that is gone, damaged or of another program has no evidence, and is no error here.
    with suppress(sqlite3.Error), closing(_read_only(file)) as connection:
        for start in range(0, len(distinct), _AT_ONCE):
            kept |= _kept(connection, distinct[start : start + _AT_ONCE])
    return [None if key is None else kept.get(key) for key in keys]


def _read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _kept(connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, RawAnswer]:
    places = ", ".join("?" * len(keys))
    found = dict[bytes, RawAnswer]()
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'failures'").fetchone():
        query = f"SELECT key, reason, answer FROM failures WHERE key IN ({places})"
        for key, reason, text in connection.execute(query, keys):
            found[key] = RawAnswer(text, reason)
    query = f"SELECT key, answer FROM answers WHERE key IN ({places})"
    for key, answer in connection.execute(query, keys):
        found[key] = RawAnswer(ScorerAnswer.load(answer).text, None)
    return found
