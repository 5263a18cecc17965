"""What scorers answered instead of a score, kept beside their answers; and what is kept, by row.

A failure is outdated by a later answer to the same request. A judge keeps failures once
`keep_failures` has opened it. No operator imports this module, so its code is no part of the keys
of their results: how a failure is kept changes no score.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ..errors import EngineError
from .answer import ScorerAnswer
from .answer_cache import AnswerCache, has_answers
from .judge import Judge, ScoringOutcome, ScoringRequest, _open, _opening
from .judge_cache import open_cache, user_cache
from .judged_mapper import JudgedMapper

_MALFORMED = "scorer_malformed"
_FIRST_ROWS = 64


class RawAnswer(NamedTuple):
    """What a scorer answered about a row.

    Attributes:
        text: as it came; of a request that got none, the message of the failure.
        reason: why there is no score; None where there is one.
    """

    text: str
    reason: str | None


class KeepingJudge(Judge):
    """A judge that keeps what came instead of a score.

    Args:
        server: which server, and how to retry.
        cache: in which its answers are stored, and failures.
    """

    async def send(self, request: ScoringRequest, probe: Mapping[str, Any]) -> ScoringOutcome:
        """As that of `Judge`; a failure is stored before anybody gets it."""
        outcome = await super().send(request, probe)
        if outcome.reason is not None:
            assert self._cache is not None
            text = outcome.text if outcome.reason == _MALFORMED else outcome.detail
            await asyncio.to_thread(self._cache.put_failure, request.key, outcome.reason, text)
        return outcome


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
    cache = None if file is None or not has_answers(file) else _opened(file)
    if cache is None:
        return [None] * table.num_rows
    shown = operator._shown(table, range(table.num_rows))
    keys = [
        None if isinstance(each, ScoringOutcome) else operator._request(each).key for each in shown
    ]
    kept = {key: _kept(cache, key) for key in dict.fromkeys(keys) if key is not None}
    return [None if key is None else kept[key] for key in keys]


@lru_cache(maxsize=1)  # A page asks for the rows of a run piece by piece.
def _opened(file: Path) -> AnswerCache | None:
    try:
        return open_cache(file, writes=False)
    except EngineError:
        return None  # One that cannot be used has no evidence, and is no error here.


def _kept(cache: AnswerCache, key: bytes) -> RawAnswer | None:
    answer, failure = cache.get(key), cache.failure(key)
    if answer is not None:
        return RawAnswer(ScorerAnswer.load(answer).text, None)
    return None if failure is None else RawAnswer(failure[1], failure[0])
