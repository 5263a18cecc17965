"""What mappers have in common that send a request about each row to a scorer behind a server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa

from ..chunk_results import KnownResult, ToCompute, results_of_chunks
from ..errors import DataError, EngineError, FirstFailures
from ..logs import logger
from ..operator import Change, ResumableOperator, RowsOfChunk
from .answer_cache import AnswerCache, has_answers
from .client import check_server
from .endpoints import ServerDownError
from .judge import (
    ScoringBatch,
    ScoringOutcome,
    ScoringRequest,
    is_open,
    open_cache,
    open_judge,
    release,
    user_cache,
)
from .options import ServerOptions
from .verdict import ScorerAnswer

_log = logger(__name__)
_first_failures = FirstFailures(_log.warning)
_FIRST_ROWS = 64
_RequestOrKnown: TypeAlias = (
    ToCompute[tuple[ScoringBatch, ScoringRequest]] | KnownResult[ScoringOutcome]
)
WhenDown = Literal["fail", "missing"]
"""What to do if a server is down: end the run, or leave values missing."""
CachePlace = Path | Literal["user"] | None
"""Where answers are stored; `user`: in the user's cache folder."""


class RawAnswer(NamedTuple):
    """What a scorer answered about a row."""

    text: str  # as it came; of a request that got none, the message of the failure
    reason: str | None  # why there is no score; None where there is one


class ScoringMapper(ResumableOperator):
    """Base of mappers whose values are answers of a scorer; its subclasses have the fields.

    No request is sent twice: answers are stored in a cache under everything that determines them,
    and equal requests, also of several threads, are sent once. Each row is committed as it
    finishes. A failure never becomes a number.
    """

    def apply(self, table: pa.Table) -> Change:
        chunks = iter([RowsOfChunk(table, range(table.num_rows))])
        found = {row: outcome for _, _, row, outcome in self._outcomes(chunks)}
        return self._change(table, [found[row] for row in range(table.num_rows)])

    def process_rows(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        for _, row, change in self.process_chunks(iter([RowsOfChunk(table, rows)])):
            yield row, change

    def process_chunks(self, chunks: Iterator[RowsOfChunk]) -> Iterator[tuple[int, int, Change]]:
        for number, table, row, outcome in self._outcomes(chunks):
            yield number, row, self._change(table.slice(row, 1), [outcome])

    def before_apply(self, table: pa.Table) -> None:
        file, server = self._cache_file(), self._server_options()
        if file is not None and not is_open(server, file) and self._asks(table):
            open_judge(server, file, keeps_failures=True)

    def has_results(self) -> bool:
        file = self._cache_file()
        return file is not None and has_answers(file)

    def close(self) -> None:
        release(self._server_options(), self._cache_file())
        _first_failures.clear()

    def raw_answers(self, table: pa.Table) -> list[RawAnswer | None]:
        """What is kept of the scorer's answers about some rows, by their requests; nothing is sent.

        Returns:
            One for each row; None where nothing is kept, or the scorer was not needed.
        """
        file = self._cache_file()
        cache = None if file is None or not has_answers(file) else _opened(file)
        if cache is None:
            return [None] * table.num_rows
        asked = self._requests(table, range(table.num_rows))
        keys = [None if isinstance(each, ScoringOutcome) else each.key for each in asked]
        kept = {key: _kept(cache, key) for key in dict.fromkeys(keys) if key is not None}
        return [None if key is None else kept[key] for key in keys]

    @abstractmethod
    def _server_options(self) -> ServerOptions:
        """Return where the scorer is."""

    @abstractmethod
    def _cache_file(self) -> Path | None:
        """Return where answers are stored; None: nowhere."""

    @abstractmethod
    def _when_down(self) -> WhenDown:
        """Return what to do if the server is down."""

    @abstractmethod
    def _requests(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[ScoringRequest | ScoringOutcome]:
        """Yield the request about each row, or the outcome that is known without it."""

    @abstractmethod
    def _probe(self) -> ScoringRequest:
        """Return a short request of the same kind, to see whether the server answers any."""

    @abstractmethod
    def _change(self, table: pa.Table, outcomes: Sequence[ScoringOutcome]) -> Change:
        """Return the change to rows with these outcomes."""

    def _check_server(self, model: str) -> None:
        """Check that the server is up, if it has to be, and that it has the model."""
        server = self._server_options()
        if self._when_down() == "fail":
            check_server(server, model)
            return
        try:  # Once, without waiting: the run goes on either way.
            check_server(server.model_copy(update={"patience_s": 0}), model)
        except ServerDownError as error:
            _log.warning("%s: rewards are missing while it is down", error.found)

    def _scored(
        self, requests: Iterable[tuple[ScoringBatch, ScoringRequest]]
    ) -> Iterator[tuple[int, ScoringOutcome]]:
        """Yield the outcomes of requests as they finish, each with the index of its request."""
        judge = open_judge(self._server_options(), self._cache_file())
        yield from judge.outcomes(requests, self._probe(), fail=self._when_down() == "fail")

    def _outcomes(
        self, chunks: Iterator[RowsOfChunk]
    ) -> Iterator[tuple[int, pa.Table, int, ScoringOutcome]]:
        """The outcome of each row, as they finish, after the number of its table and that table."""
        results = results_of_chunks(chunks, self._distinct, self._reported)
        for number, (table, (first, *others)), outcome in results:
            yield number, table, first, outcome
            for row in others:
                yield number, table, row, outcome.for_equal_request()

    def _distinct(self, table: pa.Table, rows: Sequence[int]) -> Iterator[_RequestOrKnown]:
        """What to send about these rows, equal requests once, and what is known without it."""
        equal: dict[bytes, tuple[ScoringRequest, list[int]]] = {}
        for row, asked in zip(rows, self._requests(table, rows), strict=True):
            if isinstance(asked, ScoringOutcome):
                yield KnownResult([row], asked)
            else:
                equal.setdefault(asked.key, (asked, []))[1].append(row)
        batch = ScoringBatch()
        for request, same in equal.values():
            yield ToCompute(same, (batch, request))

    def _reported(
        self, requests: Iterable[tuple[ScoringBatch, ScoringRequest]]
    ) -> Iterator[tuple[int, ScoringOutcome]]:
        """As `_scored`; the first failure of each kind is logged."""
        for index, outcome in self._scored(requests):
            if outcome.reason is not None:
                message = f"a response has no score, {outcome.reason}: {outcome.detail}"
                _first_failures.report(outcome.reason, message)
            yield index, outcome

    def _asks(self, table: pa.Table) -> bool:
        """Return whether the outcome of any row is not known without the scorer."""
        for start in range(0, table.num_rows, _FIRST_ROWS):
            rows = range(start, min(start + _FIRST_ROWS, table.num_rows))
            if not all(isinstance(each, ScoringOutcome) for each in self._requests(table, rows)):
                return True
        return False


def cache_file(place: CachePlace) -> Path | None:
    """Return the folder of a cache of answers; None: they are not stored."""
    if place is None:
        return None
    return user_cache() if place == "user" else place.expanduser()


def summed_notes(outcomes: Sequence[ScoringOutcome]) -> dict[str, float]:
    """Return the figures of all outcomes, added up."""
    notes: dict[str, float] = {}
    for outcome in outcomes:
        for name, figure in outcome.notes.items():
            notes[name] = notes.get(name, 0) + figure
    return notes


def texts_of(table: pa.Table, name: str) -> list[str | None]:
    """Return a column as texts.

    Raises:
        DataError: it holds something else.
    """
    kind = table[name].type
    if pa.types.is_nested(kind):
        raise DataError(f"column '{name}' is {kind}, not text", "give strings")
    texts: list[str | None] = table[name].cast(pa.string()).to_pylist()
    return texts


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
