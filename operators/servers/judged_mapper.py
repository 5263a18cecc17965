"""What mappers that ask another language model about responses have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

import pyarrow as pa
import xxhash
from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ..chats import is_chat
from ..chunk_results import KnownResult, ToCompute, results_of_chunks
from ..errors import DataError, EngineError, FirstFailures
from ..logs import logger
from ..operator import Change, ResumableOperator, RowsOfChunk
from .answer_cache import AnswerCache, has_answers
from .client import check_server
from .endpoints import ServerDownError
from .judge import (
    REASONS,
    ScoringBatch,
    ScoringOutcome,
    ScoringRequest,
    is_open,
    open_cache,
    open_judge,
    release,
    user_cache,
)
from .judge_prompt import chat_text
from .options import ScorerOptions, refuse_own_fields
from .verdict import AnswerFormat, ScorerAnswer

_log = logger(__name__)
_first_failures = FirstFailures(_log.warning)
_SEEDS = 2**31
_FIRST_ROWS = 64
PROBE = ("Hi", "Hi", "Hi")
"""Something short to show: what the placeholders of a template have."""
_RequestOrKnown: TypeAlias = (
    ToCompute[tuple[ScoringBatch, ScoringRequest]] | KnownResult[ScoringOutcome]
)


class RawAnswer(NamedTuple):
    """What a scorer answered about a row."""

    text: str  # as it came; of a request that got none, the message of the failure
    reason: str | None  # why there is no score; None where there is one


class JudgedMapper(ResumableOperator):
    """Base of mappers whose values are the verdicts of a language model behind a server.

    No request is sent twice: answers are stored in `cache` under everything that determines them,
    and equal requests, also of several threads, are sent once. Each row is committed as it
    finishes. A failure never becomes a number.
    """

    model: str
    """Name of the scorer on the server."""
    revision: str = ""
    """Identifies the weights. Change it when the weights behind the name change, and all responses
    are scored again."""
    server: ScorerOptions = ScorerOptions()
    """Where the scorer is. Within a process, steps with the same options share its connections and
    `concurrency`, in all threads."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """The temperature of the scorer."""
    max_tokens: PositiveInt = 512
    """Longest answer of the scorer, in tokens, including its reasoning. A server that takes it by
    another name has `server: {token_limit: max_completion_tokens}`."""
    chat_template_kwargs: dict[str, Any] = Field({})
    """Further arguments of the server's chat template, such as `{enable_thinking: false}` for
    Qwen3."""
    parameters: dict[str, Any] = Field({})
    """Further fields of the request, such as `{reasoning_effort: low}`."""
    tries: PositiveInt = 3
    """How often to send a request while the verdict is malformed; once if `temperature` is 0,
    because the answer would be the same."""
    on_server_down: Literal["fail", "missing"] = "fail"
    """What to do if the server is down for `patience_s`: end the run, or leave the rewards that it
    has not scored missing, as `scorer_unreachable`."""
    cache: Path | Literal["user"] | None = "user"
    """Where answers are stored: a folder that ends in `.answers`. `user`: `rejuice/scores.answers`
    in your cache folder ($XDG_CACHE_HOME or ~/.cache). Null: answers are not stored. The file of an
    earlier version, such as `scores.sqlite`, is read, and the folder `scores.answers` beside it is
    written."""

    retryable: ClassVar[frozenset[str] | None] = frozenset(REASONS)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        own = self._own_fields(PROBE).keys() | {"n", "stream"}
        refuse_own_fields(self.parameters, own, self.server)
        return self

    def cache_key_fields(self) -> Mapping[str, Any]:
        fields = self.model_dump(mode="json", exclude={"server", "cache"})
        # Where no seed is sent, another answer is drawn than with one.
        unseeded = self.temperature and self.server.seed == "none"
        return {**fields, "server": {"seed": "none"}} if unseeded else fields

    def apply(self, table: pa.Table) -> Change:
        chunks = iter([RowsOfChunk(table, range(table.num_rows))])
        found = {row: outcome for _, _, row, outcome in self._outcomes(chunks)}
        return self._change(table, [found[row] for row in range(table.num_rows)])

    def process_rows(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        for _, row, change in self.process_chunks(iter([RowsOfChunk(table, rows)])):
            yield row, change

    def process_chunks(
        self, chunks: Iterator[RowsOfChunk | None]
    ) -> Iterator[tuple[int, int, Change]]:
        for number, table, row, outcome in self._outcomes(chunks):
            yield number, row, self._change(table.slice(row, 1), [outcome])

    def before_apply(self, table: pa.Table) -> None:
        file = self._cache_file()
        if file is not None and not is_open(self.server, file) and self._asks(table):
            open_judge(self.server, file, keeps_failures=True)

    def preflight(self) -> None:
        if self.on_server_down == "fail":
            check_server(self.server, self.model)
            return
        try:  # Once, without waiting: the run goes on either way.
            check_server(self.server.model_copy(update={"patience_s": 0}), self.model)
        except ServerDownError as error:
            _log.warning("%s: rewards are missing while it is down", error.found)

    def has_results(self) -> bool:
        file = self._cache_file()
        return file is not None and has_answers(file)

    def close(self) -> None:
        release(self.server, self._cache_file())
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
        shown = self._shown(table, range(table.num_rows))
        keys = [
            None if isinstance(each, ScoringOutcome) else self._request(each).key for each in shown
        ]
        kept = {key: _kept(cache, key) for key in dict.fromkeys(keys) if key is not None}
        return [None if key is None else kept[key] for key in keys]

    @abstractmethod
    def _shown(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[str, ...] | ScoringOutcome]:
        """Return what the scorer is shown of each row, or the outcome that is known without it."""

    @abstractmethod
    def _messages(self, shown: Sequence[str], mark: str | None = None) -> list[dict[str, str]]:
        """Return the chat that shows it to the scorer."""

    @abstractmethod
    def _answer_fields(self) -> Mapping[str, Any]:
        """Return fields of the request that say what the answer must look like."""

    @abstractmethod
    def _reader(self) -> Callable[[ScorerAnswer], tuple[float, ...]]:
        """Reads the scores in an answer; raises MalformedError. Called once for each row."""

    @abstractmethod
    def _change(self, table: pa.Table, outcomes: Sequence[ScoringOutcome]) -> Change:
        """Return the change to rows with these outcomes."""

    def _outcomes(
        self, chunks: Iterator[RowsOfChunk | None]
    ) -> Iterator[tuple[int, pa.Table, int, ScoringOutcome]]:
        """The outcome of each row, as they finish, after the number of its table and that table."""
        results = results_of_chunks(chunks, self._requests, self._judged)
        for number, (table, (first, *others)), outcome in results:
            yield number, table, first, outcome
            for row in others:
                yield number, table, row, outcome.for_equal_request()

    def _requests(self, table: pa.Table, rows: Sequence[int]) -> Iterator[_RequestOrKnown]:
        """What to send about these rows, equal requests once, and what is known without it."""
        equal: dict[bytes, tuple[ScoringRequest, list[int]]] = {}
        for row, shown in zip(rows, self._shown(table, rows), strict=True):
            if isinstance(shown, ScoringOutcome):
                yield KnownResult([row], shown)
            else:
                request = self._request(shown)
                equal.setdefault(request.key, (request, []))[1].append(row)
        batch = ScoringBatch()
        for request, same in equal.values():
            yield ToCompute(same, (batch, request))

    def _judged(
        self, requests: Iterable[tuple[ScoringBatch, ScoringRequest] | None]
    ) -> Iterator[tuple[int, ScoringOutcome]]:
        judge = open_judge(self.server, self._cache_file())
        fail = self.on_server_down == "fail"
        for index, outcome in judge.outcomes(requests, self._body(PROBE), fail=fail):
            if outcome.reason is not None:
                message = f"a response has no score, {outcome.reason}: {outcome.detail}"
                _first_failures.report(outcome.reason, message)
            yield index, outcome

    def _asks(self, table: pa.Table) -> bool:
        """Return whether the outcome of any row is not known without the scorer."""
        for start in range(0, table.num_rows, _FIRST_ROWS):
            rows = range(start, min(start + _FIRST_ROWS, table.num_rows))
            if not all(isinstance(each, ScoringOutcome) for each in self._shown(table, rows)):
                return True
        return False

    def _request(self, shown: tuple[str, ...]) -> ScoringRequest:
        tries = self.tries if self.temperature else 1
        return ScoringRequest(self._body(shown), self.revision, self._reader(), tries)

    def _body(self, shown: tuple[str, ...]) -> dict[str, Any]:
        return self._own_fields(shown) | self.parameters

    def _own_fields(self, shown: tuple[str, ...]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": self._messages(shown),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        if self.temperature and self.server.seed != "none":
            # A seed of its own, or the same random numbers would decide about all responses.
            body["seed"] = xxhash.xxh3_64_intdigest("\0".join(shown).encode()) % _SEEDS
        body |= self._answer_fields()
        if self.chat_template_kwargs:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        return body

    def _cache_file(self) -> Path | None:
        if self.cache is None:
            return None
        return user_cache() if self.cache == "user" else self.cache.expanduser()


def summed_notes(outcomes: Sequence[ScoringOutcome]) -> dict[str, float]:
    """Return the figures of all outcomes, added up."""
    notes: dict[str, float] = {}
    for outcome in outcomes:
        for name, figure in outcome.notes.items():
            notes[name] = notes.get(name, 0) + figure
    return notes


def response_format(
    answer_format: AnswerFormat, schema: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """Return the field of a request that has the server constrain the answer; none for `text`."""
    if answer_format == "text":
        return {}
    if answer_format == "json_object":
        return {"response_format": {"type": "json_object"}}
    verdict = {"name": "verdict", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": verdict}}


def questions_of(prompts: pa.ChunkedArray) -> list[str]:
    """Return each prompt as one text.

    Raises:
        DataError: the column does not hold chats.
    """
    kind = prompts.type
    if not (pa.types.is_null(kind) or is_chat(kind)):
        right = "prompt_template_mapper makes prompts: lists of messages with role and content"
        raise DataError(f"column 'prompt' is {kind}", right)
    return [chat_text([each for each in chat or () if each]) for chat in prompts.to_pylist()]


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
