"""Reward a response for its quality, as judged by another language model."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import xxhash
from pydantic import Field, PositiveInt, field_validator, model_validator
from typing_extensions import Self

from ..chats import is_chat
from ..errors import DataError
from ..first_failures import FirstFailures
from ..openai.options import ScorerOptions
from ..operator import Change, Columns, ResumableOperator
from ..scoring.cache import user_cache
from ..scoring.judge import REASONS, ScoringOutcome, ScoringRequest, open_judge, release
from ..scoring.prompt import PLACEHOLDERS, TEMPLATE, chat_text, fill_placeholders, system_message
from ..scoring.quality import WRITTEN, quality_columns
from ..scoring.verdict import AnswerFormat, read_verdict, schema

_log = logging.getLogger(__name__)
_first_failures = FirstFailures(_log.warning)
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOP = 20  # log-probabilities at a token: the most that OpenAI gives, and vLLM by default
_SEEDS = 2**31
_RESERVED = ("{prompt}", "{answer}")


class LlmQualityRewardMapper(ResumableOperator):
    """Write `reward_quality`: the quality of each response, as scored by an LLM behind a server.

    The scorer sees the question, which is the chat in `prompt`, and the response, and gives each
    dimension a score from 1 to 5. With s their mean / 5, in [0.2, 1], the reward is

        reward_quality = (s - 0.2) / 0.8 - 0.5

    in [-0.5, 0.5]. `quality` contains the scores, a struct with a field for each dimension, and
    `quality_score` contains s.

    A failure never becomes a number: the reward is missing, with a reason in
    `reward_quality_missing`. No response is scored twice: answers are stored in `cache` under
    everything that determines them, and equal requests, also of several threads, are sent once.
    Each row is committed as it finishes.
    """

    model: str
    """Name of the scorer on the server."""
    revision: str = ""
    """Identifies the weights. Change it when the weights behind the name change, and all responses
    are scored again."""
    server: ScorerOptions = ScorerOptions()
    """Where the scorer is. Within a process, steps with the same options share its connections and
    `concurrency`, in all threads."""
    dimensions: tuple[str, ...] = (
        "accuracy",
        "grammar",
        "informativeness",
        "coherence",
    )
    """What is scored. The defaults are those of Data-Juicer's `llm_quality_score_filter`."""
    system: str | None = None
    """System message of the scorer. Null: one that explains the dimensions and asks for JSON."""
    template: str | None = None
    """User message, with `{question}`, `{response}` and optionally `{reference}`, each once; all
    other braces are plain text. Null: question and response."""
    answer_format: AnswerFormat = "json_schema"
    """`json_schema` has the server constrain the answer to integers from 1 to 5, `json_object` to
    any JSON; with `text`, the last JSON object in the answer counts, so that the scorer may reason
    first. A verdict that is not exactly one score for each dimension is malformed."""
    expected_score: bool = False
    """Take the mean of the scores 1 to 5, weighted by their probabilities, instead of the sampled
    score. The server must give log-probabilities, 20 at a token; a score that is not among them has
    probability 0."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """The temperature of the scorer."""
    max_tokens: PositiveInt = 512
    """Longest answer of the scorer, in tokens, including its reasoning."""
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
    """File that stores answers. `user`: `rejuice/scores.sqlite` in your cache folder
    ($XDG_CACHE_HOME or ~/.cache). Null: answers are not stored."""

    reasons: ClassVar[Mapping[str, str]] = {
        "empty_response": "the response is null or blank, so it is not scored",
        "no_prompt": "the prompt is null or empty, so the response is not scored",
        "no_reference": "`template` contains the reference, which is null",
        **REASONS,
    }
    retryable: ClassVar[frozenset[str] | None] = frozenset(REASONS)

    @field_validator("dimensions")
    @classmethod
    def _are_names(cls, dimensions: tuple[str, ...]) -> tuple[str, ...]:
        if not dimensions:
            raise ValueError("name at least one")
        for name in dimensions:
            if not _NAME.fullmatch(name):
                raise ValueError(f"'{name}' is not a name such as accuracy")
        if len(set(dimensions)) < len(dimensions):
            raise ValueError("a dimension is listed twice")
        return dimensions

    @field_validator("template")
    @classmethod
    def _shows_each_once(cls, template: str | None) -> str | None:
        if template is None:
            return None
        for name in PLACEHOLDERS:
            count = template.count(f"{{{name}}}")
            if not count and name != "reference":
                raise ValueError(f"it must contain {{{name}}}")
            if count > 1:
                raise ValueError(f"it contains {{{name}}} {count} times")
        for name in _RESERVED:
            if name in template:
                raise ValueError(f"it contains {name}, which is not a placeholder")
        return template

    @field_validator("system")
    @classmethod
    def _has_no_places(cls, system: str | None) -> str | None:
        for name in PLACEHOLDERS:
            if system and f"{{{name}}}" in system:
                raise ValueError(f"it contains {{{name}}}, which is allowed in template only")
        return system

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        own = self._own_fields("", "", "").keys() | {"n", "stream"}
        for name in self.parameters:
            if name in own:
                raise ValueError(f"parameters must not name '{name}', which is set already")
        return self

    def reads(self) -> Columns:
        return ("prompt", "response", *(["reference"] if self._needs_reference() else []))

    def writes(self) -> Columns:
        return WRITTEN

    def cache_key_fields(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json", exclude={"server", "cache"})

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        shown = self._messages(*(f"{{{name}}}" for name in PLACEHOLDERS))
        return {} if row else {f"the scorer's {each['role']}": each["content"] for each in shown}

    def apply(self, table: pa.Table) -> Change:
        found = dict(self._outcomes(table, range(table.num_rows)))
        return self._change([found[row] for row in range(table.num_rows)])

    def process_rows(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        for row, outcome in self._outcomes(table, rows):
            yield row, self._change([outcome])

    def preflight(self) -> None:
        from ..openai.client import ServerDownError
        from ..openai.preflight import check_server

        if self.on_server_down == "fail":
            check_server(self.server, self.model)
            return
        try:  # Once, without waiting: the run goes on either way.
            check_server(self.server.model_copy(update={"patience_s": 0}), self.model)
        except ServerDownError as error:
            _log.warning("%s: rewards are missing while it is down", error.found)

    def has_results(self) -> bool:
        file = self._cache_file()
        return file is not None and file.exists()

    def close(self) -> None:
        release(self.server, self._cache_file())
        _first_failures.clear()

    def _outcomes(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[int, ScoringOutcome]]:
        """The outcome of each of these rows, as they finish."""
        places, requests = list[int](), list[ScoringRequest]()
        for row, shown in zip(rows, self._shown(table, rows), strict=True):
            if isinstance(shown, str):
                yield row, ScoringOutcome(None, shown)
            else:
                places.append(row)
                requests.append(self._request(*shown))
        if not requests:
            return
        judge = open_judge(self.server, self._cache_file())
        probe = self._body("Hi", "Hi", "Hi")
        fail = self.on_server_down == "fail"
        for index, outcome in judge.outcomes(requests, probe, fail=fail):
            if outcome.reason is not None:
                message = f"a response has no score, {outcome.reason}: {outcome.detail}"
                _first_failures.report(outcome.reason, message)
            yield places[index], outcome

    def _shown(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[str, str, str] | str]:
        """Question, response and reference of each row, or the reason not to score it."""
        taken = table.take(pa.array(rows, pa.int64()))
        questions, responses = _questions(taken["prompt"]), _texts(taken, "response")
        references: list[str | None] = [""] * len(questions)
        if self._needs_reference():
            references = _texts(taken, "reference")
        for question, response, reference in zip(questions, responses, references, strict=True):
            if not response or response.isspace():
                yield "empty_response"
            elif not question or question.isspace():
                yield "no_prompt"
            elif reference is None:
                yield "no_reference"
            else:
                yield question, response, reference

    def _request(self, question: str, response: str, reference: str) -> ScoringRequest:
        read = partial(
            read_verdict,
            dimensions=self.dimensions,
            answer_format=self.answer_format,
            expected=self.expected_score,
        )
        tries = self.tries if self.temperature else 1
        return ScoringRequest(self._body(question, response, reference), self.revision, read, tries)

    def _body(self, question: str, response: str, reference: str) -> dict[str, Any]:
        return self._own_fields(question, response, reference) | self.parameters

    def _own_fields(self, question: str, response: str, reference: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": self._messages(question, response, reference),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        if self.temperature:
            # A seed of its own, or the same random numbers would decide about all responses.
            shown = "\0".join((question, response, reference)).encode()
            body["seed"] = xxhash.xxh3_64_intdigest(shown) % _SEEDS
        if self.answer_format == "json_schema":
            verdict = {"name": "verdict", "strict": True, "schema": schema(self.dimensions)}
            body["response_format"] = {"type": "json_schema", "json_schema": verdict}
        elif self.answer_format == "json_object":
            body["response_format"] = {"type": "json_object"}
        if self.expected_score:
            body |= {"logprobs": True, "top_logprobs": _TOP}
        if self.chat_template_kwargs:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        return body

    def _messages(self, question: str, response: str, reference: str) -> list[dict[str, str]]:
        values = dict(zip(PLACEHOLDERS, (question, response, reference), strict=True))
        system = system_message(self.dimensions) if self.system is None else self.system
        return [
            {"role": "system", "content": system},
            {"role": "user", "content": fill_placeholders(self._template(), values)},
        ]

    def _change(self, outcomes: Sequence[ScoringOutcome]) -> Change:
        notes: dict[str, float] = {}
        for outcome in outcomes:
            for name, figure in outcome.notes.items():
                notes[name] = notes.get(name, 0) + figure
        absent = (0.0,) * len(self.dimensions)
        scores_ND = np.array([outcome.scores or absent for outcome in outcomes], np.float64)
        scores_DN = scores_ND.reshape(len(outcomes), len(self.dimensions)).T
        missing = pa.array([outcome.reason for outcome in outcomes], pa.string())
        columns = quality_columns(dict(zip(self.dimensions, scores_DN, strict=True)), missing)
        return Change(columns, notes=notes)

    def _template(self) -> str:
        return TEMPLATE if self.template is None else self.template

    def _needs_reference(self) -> bool:
        return "{reference}" in self._template()

    def _cache_file(self) -> Path | None:
        if self.cache is None:
            return None
        return user_cache() if self.cache == "user" else self.cache.expanduser()


def _questions(prompts: pa.ChunkedArray) -> list[str]:
    kind = prompts.type
    if not (pa.types.is_null(kind) or is_chat(kind)):
        right = "prompt_template_mapper makes prompts: lists of messages with role and content"
        raise DataError(f"column 'prompt' is {kind}", right)
    return [chat_text([each for each in chat or () if each]) for chat in prompts.to_pylist()]


def _texts(table: pa.Table, name: str) -> list[str | None]:
    kind = table[name].type
    if pa.types.is_nested(kind):
        raise DataError(f"column '{name}' is {kind}, not text", "give strings")
    texts: list[str | None] = table[name].cast(pa.string()).to_pylist()
    return texts
