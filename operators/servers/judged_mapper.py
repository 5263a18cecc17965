"""What mappers have in common that ask a scorer behind a server about each row."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import pyarrow as pa
from pydantic import PositiveInt, model_validator
from typing_extensions import Self

from ..chats import is_chat
from ..chunk_results import KnownResult, ToCompute, results_of_chunks
from ..errors import DataError, EngineError, FirstFailures
from ..logs import logger
from ..operator import Change, ResumableOperator, RowsOfChunk
from .answer_cache import AnswerCache, has_answers
from .client import chat_request, check_server
from .endpoints import ServerDownError
from .judge import (
    REASONS,
    ScoringOutcome,
    ScoringRequest,
    key_of,
    open_cache,
    open_judge,
    release,
    user_cache,
)
from .judge_prompt import chat_text, filled
from .options import ChatFields, ScorerOptions, ServerOptions
from .verdict import STORED_ANSWER, ScorerAnswer, read_answer

_log = logger(__name__)
_first_failures = FirstFailures(_log.warning)
_NAMES = ("question", "response", "reference", "answer", "prompt")
"""Names that someone may take for placeholders of a template."""


class RawAnswer(NamedTuple):
    text: str  # as it came; of a request that got none, the message of the failure
    reason: str | None  # why there is no score; None where there is one


class ScoringMapper(ResumableOperator):
    """Base of mappers whose values are answers of a scorer.

    No request is sent twice: answers are stored in `cache` under everything that determines them,
    and equal requests, also of several threads, are sent once. Each row is committed as it
    finishes. A failure never becomes a number.
    """

    model: str | None = None
    """Name of the scorer on the server."""
    revision: str = ""
    """Identifies the weights. Change it when the weights behind the name change, and all responses
    are scored again."""
    server: ServerOptions = ServerOptions()
    """Where the scorer is. Within a process, steps with the same options share its connections and
    `concurrency`, in all threads."""
    on_server_down: Literal["fail", "missing"] = "fail"
    """What to do if the server is down for `patience_s`: end the run, or leave the rewards that it
    has not scored missing, as `scorer_unreachable`."""
    cache: Path | Literal["user"] | None = "user"
    """Where answers of servers are stored: a folder that ends in `.answers`. `user`:
    `rejuice/scores.answers` in your cache folder ($XDG_CACHE_HOME or ~/.cache). Null: answers are
    not stored."""

    retryable: ClassVar[frozenset[str] | None] = frozenset(REASONS)

    @abstractmethod
    def _requests(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[ScoringRequest | ScoringOutcome]:
        """Yield the request about each row, or the outcome that is known without it."""

    @abstractmethod
    def _probe(self) -> ScoringRequest:
        """A short request of the same kind, to see whether the server answers any."""

    @abstractmethod
    def _change(self, table: pa.Table, outcomes: Sequence[ScoringOutcome]) -> Change:
        """The change to rows with these outcomes."""

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

    def has_results(self) -> bool:
        file = self._cache_file()
        return file is not None and has_answers(file)

    def preflight(self) -> None:
        server = self._server()
        if self.on_server_down == "fail":
            check_server(server, self.model)
            return
        try:  # Once, without waiting: the run goes on either way.
            check_server(server.model_copy(update={"patience_s": 0}), self.model)
        except ServerDownError as error:
            _log.warning("%s: rewards are missing while it is down", error.found)

    def close(self) -> None:
        release(self._server(), self._cache_file())
        _first_failures.clear()

    def raw_answers(self, table: pa.Table) -> list[RawAnswer | None]:
        """What is kept of the scorer's answers about some rows; nothing is sent. None where nothing
        is kept, or the scorer was not needed."""
        file = self._cache_file()
        cache = None if file is None or not has_answers(file) else _opened(file)
        if cache is None:
            return [None] * table.num_rows
        asked = self._requests(table, range(table.num_rows))
        keys = [None if isinstance(each, ScoringOutcome) else each.key for each in asked]
        kept = {key: _kept(cache, key) for key in dict.fromkeys(keys) if key is not None}
        return [None if key is None else kept[key] for key in keys]

    def _server(self) -> ServerOptions:
        return self.server

    def _cache_file(self) -> Path | None:
        if self.cache is None:
            return None
        return user_cache() if self.cache == "user" else self.cache.expanduser()

    def _scored(self, requests: Iterable[ScoringRequest]) -> Iterator[tuple[int, ScoringOutcome]]:
        judge, probe = open_judge(self._server(), self._cache_file()), self._probe().sent[0]
        yield from judge.outcomes(requests, probe, fail=self.on_server_down == "fail")

    def _outcomes(
        self, chunks: Iterator[RowsOfChunk]
    ) -> Iterator[tuple[int, pa.Table, int, ScoringOutcome]]:
        """The outcome of each row, as they finish, after the number of its table and that table."""
        results = results_of_chunks(chunks, self._distinct, self._scored)
        for number, (table, (first, *others)), outcome in results:
            if outcome.reason is not None and outcome.reason in REASONS:
                message = f"a response has no score, {outcome.reason}: {outcome.detail}"
                _first_failures.report(outcome.reason, message)
            yield number, table, first, outcome
            for row in others:
                yield number, table, row, outcome.for_equal_request()

    def _distinct(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[ToCompute[ScoringRequest] | KnownResult[ScoringOutcome]]:
        equal: dict[bytes, tuple[ScoringRequest, list[int]]] = {}
        for row, asked in zip(rows, self._requests(table, rows), strict=True):
            if isinstance(asked, ScoringOutcome):
                yield KnownResult([row], asked)
            else:
                equal.setdefault(asked.key, (asked, []))[1].append(row)
        for request, same in equal.values():
            yield ToCompute(same, request)


@lru_cache(maxsize=1)  # A page asks for the rows of a run piece by piece.
def _opened(file: Path) -> AnswerCache | None:
    try:
        return open_cache(file, writes=False)
    except EngineError:
        return None  # One that cannot be used has no evidence, and is no error here.


def _kept(cache: AnswerCache, key: bytes) -> RawAnswer | None:
    answer, failure = cache.get(key), cache.failure(key)
    if answer is not None:
        return RawAnswer(STORED_ANSWER.validate_json(answer).text, None)
    return None if failure is None else RawAnswer(failure[1], failure[0])


def summed_notes(outcomes: Sequence[ScoringOutcome]) -> dict[str, float]:
    notes = Counter[str]()
    for outcome in outcomes:
        notes.update(outcome.notes)
    return dict(notes)


def texts_of(table: pa.Table, name: str) -> list[str | None]:
    """A column as texts; a DataError if it holds something else."""
    kind = table[name].type
    if pa.types.is_nested(kind):
        raise DataError(f"column '{name}' is {kind}, not text", "give strings")
    texts: list[str | None] = table[name].cast(pa.string()).to_pylist()
    return texts


# --- Scorers that are chat models -----------------------------------------------------


class JudgedMapper(ChatFields, ScoringMapper):
    """Base of mappers whose values are the verdicts of a language model behind a server."""

    server: ScorerOptions = ScorerOptions()
    """Where the scorer is, how it differs from other servers, and how requests are retried. Within
    a process, steps with the same options share its connections and `concurrency`, in all
    threads."""
    max_tokens: PositiveInt = 512
    """Longest answer of the scorer, in tokens, including its reasoning. A server that takes it by
    another name has `server: {token_limit: max_completion_tokens}`."""
    tries: PositiveInt = 3
    """How often to send a request while the verdict is malformed; once if `temperature` is 0,
    because the answer would be the same."""
    system: str | None = None
    """System message of the scorer. Null: one that explains the task and asks for JSON."""
    template: str | None = None
    """User message. Its placeholders, each once, are those of the default one: `{question}`,
    `{response}` and optionally `{reference}`, or of `llm_verify_mapper` `{question}`, `{reference}`
    and `{answer}`. All other braces are plain text, but for `{mark}`: 16 digits that are others in
    each request, a hash of its texts. Put it into what delimits them, such as
    `<response {mark}>`, so that no text can end early and go on as if it were the prompt. Null: one
    that delimits them in this way."""
    answer_format: Literal["json_schema", "json_object", "text"] = "json_schema"
    """`json_schema` has the server constrain the answer to the form of a verdict, `json_object` to
    any JSON, `text` to nothing, so that the scorer may reason first. The last JSON object with a
    verdict counts, whatever stands around it; what is thought before `</think>` never does. An
    answer with two verdicts that differ, or that lacks a part, is malformed."""

    placeholders: ClassVar[tuple[str, ...]]
    """What the template may name; `_shown` gives the values."""
    optional: ClassVar[frozenset[str]] = frozenset()
    """Placeholders that a template need not have."""
    default_template: ClassVar[str]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.check_parameters(self._own_fields(self.placeholders), self.server)
        for name in self.placeholders:
            if self.system and f"{{{name}}}" in self.system:
                raise ValueError(f"system contains {{{name}}}, which is allowed in template only")
        for name in _NAMES if self.template is not None else ():
            count, known = self._template().count(f"{{{name}}}"), name in self.placeholders
            if known and count != 1 and (count or name not in self.optional):
                found = f"template contains {{{name}}} {count} times"
                raise ValueError(f"{found}; it must contain it once")
            if count and not known:
                raise ValueError(f"template contains {{{name}}}, which is not a placeholder")
        return self

    def cache_key_fields(self) -> Mapping[str, Any]:
        fields = self.model_dump(mode="json", exclude={"server", "cache"})
        # Where no seed is sent, another answer is drawn than with one.
        unseeded = self.temperature and self.server.seed == "none"
        return {**fields, "server": {"seed": "none"}} if unseeded else fields

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        names = [f"{{{name}}}" for name in self.placeholders]
        shown = [] if row else self._messages(names, mark="{mark}")
        return {f"the scorer's {each['role']}": each["content"] for each in shown}

    @abstractmethod
    def _shown(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[str, ...] | ScoringOutcome]:
        """What the scorer is shown of each row, or the outcome that is known without it."""

    @abstractmethod
    def _system_message(self) -> str:
        """The default system message."""

    @abstractmethod
    def _schema(self) -> Mapping[str, Any]:
        """The JSON schema of a verdict."""

    @abstractmethod
    def _reader(self) -> Callable[[ScorerAnswer], tuple[float, ...]]:
        """Reads the scores in an answer; raises MalformedError."""

    def _template(self) -> str:
        return self.default_template if self.template is None else self.template

    def _messages(self, shown: Sequence[str], mark: str | None = None) -> list[dict[str, str]]:
        values = dict(zip(self.placeholders, shown, strict=True))
        system = self._system_message() if self.system is None else self.system
        user = filled(self._template(), values, mark=mark)
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def _probe(self) -> ScoringRequest:
        return self._request(["Hi"] * len(self.placeholders))

    def _requests(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[ScoringRequest | ScoringOutcome]:
        for shown in self._shown(table, rows):
            yield shown if isinstance(shown, ScoringOutcome) else self._request(shown)

    def _request(self, shown: Sequence[str]) -> ScoringRequest:
        body, read = self._body(shown), partial(read_answer, dialect=self.server)
        bodies = [body]
        for number in range(1, self.tries if self.temperature else 1):
            # A server may take no seed.
            seed = {"seed": body["seed"] + number} if "seed" in body else {}
            bodies.append({**body, **seed})
        sent = [chat_request(each, self.server, read) for each in bodies]
        return ScoringRequest(key_of(body, self.revision), sent, self._reader())

    def _body(self, shown: Sequence[str]) -> dict[str, Any]:
        return self._own_fields(shown) | self.parameters

    def _own_fields(self, shown: Sequence[str]) -> dict[str, Any]:
        # A seed of its own, or the same random numbers would decide about all responses.
        body = self.chat_body(self._messages(shown), self.server, "\0".join(shown))
        return {**body, **self._response_format()}

    def _response_format(self) -> Mapping[str, Any]:
        if self.answer_format == "text":
            return {}
        if self.answer_format == "json_object":
            return {"response_format": {"type": "json_object"}}
        verdict = {"name": "verdict", "strict": True, "schema": self._schema()}
        return {"response_format": {"type": "json_schema", "json_schema": verdict}}


def questions_of(prompts: pa.ChunkedArray) -> list[str]:
    """Each prompt as one text; a DataError if the column does not hold chats."""
    kind = prompts.type
    if not (pa.types.is_null(kind) or is_chat(kind)):
        right = "prompt_template_mapper makes prompts: lists of messages with role and content"
        raise DataError(f"column 'prompt' is {kind}", right)
    return [chat_text([each for each in chat or () if each]) for chat in prompts.to_pylist()]
