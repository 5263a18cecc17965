"""What mappers that ask another language model about responses have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
import xxhash
from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ..chats import is_chat
from ..errors import DataError
from .judge import REASONS, ScoringOutcome, ScoringRequest
from .judge_prompt import chat_text
from .options import ScorerOptions, refuse_own_fields
from .scoring_mapper import ScoringMapper, WhenDown, cache_file
from .verdict import AnswerFormat, ScorerAnswer

_SEEDS = 2**31
PROBE = ("Hi", "Hi", "Hi")
"""Something short to show: what the placeholders of a template have."""


class JudgedMapper(ScoringMapper):
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
    in your cache folder ($XDG_CACHE_HOME or ~/.cache). Null: answers are not stored."""

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

    def preflight(self) -> None:
        self._check_server(self.model)

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

    def _server_options(self) -> ScorerOptions:
        return self.server

    def _cache_file(self) -> Path | None:
        return cache_file(self.cache)

    def _when_down(self) -> WhenDown:
        return self.on_server_down

    def _probe(self) -> ScoringRequest:
        return self._request(PROBE)

    def _requests(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[ScoringRequest | ScoringOutcome]:
        for shown in self._shown(table, rows):
            yield shown if isinstance(shown, ScoringOutcome) else self._request(shown)

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
