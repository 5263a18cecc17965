"""Reward a response for its quality, as another language model sees it."""

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

from ..errors import DataError
from ..openai.options import ScorerOptions
from ..operator import Change, Columns, ResumableOperator
from ..scoring.cache import user_cache
from ..scoring.judge import REASONS, Outcome, Question, judge_of, release
from ..scoring.prompt import PLACES, TEMPLATE, chat_text, filled, system_message
from ..scoring.quality import WRITTEN, quality_columns
from ..scoring.verdict import AnswerFormat, read_verdict, schema

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOP = (
    20  # log-probabilities at a token: the most that OpenAI gives, and vLLM unless told otherwise
)
_SEEDS = 2**31
_NOT_FILLED = ("{prompt}", "{answer}")


class LlmQualityRewardMapper(ResumableOperator):
    """Write `reward_quality`: what an LLM behind a server thinks of each response.

    The scorer sees the question, which is the chat in `prompt`, and the response, and gives each
    dimension a score from 1 to 5. With s their mean / 5, in [0.2, 1], the reward is

        reward_quality = (s - 0.2) / 0.8 - 0.5

    in [-0.5, 0.5]. `quality` keeps the scores, a struct with a field for each dimension, and
    `quality_score` keeps s.

    A failure is never a number: the reward is missing, with a reason in `reward_quality_missing`.
    No response is scored twice: answers are kept in `cache` by all that decides them, equal
    responses to a question are asked once, and so are responses of several threads at a time.
    Each row is committed as it finishes.
    """

    model: str
    """Name of the scorer on the server."""
    revision: str = ""
    """Which weights these are. Change it when those behind the name have changed, and all is
    scored anew."""
    server: ScorerOptions = ScorerOptions()
    """Where the scorer is. In a process, steps with the same options share its connections and
    `concurrency`, however many threads they run in."""
    dimensions: tuple[str, ...] = (
        "accuracy",
        "grammar",
        "informativeness",
        "coherence",
    )
    """What is scored. The default are those of Data-Juicer's `llm_quality_score_filter`."""
    system: str | None = None
    """System message of the scorer. Null: one that explains the dimensions and asks for JSON."""
    template: str | None = None
    """Message of the user, with `{question}`, `{response}` and, if you like, `{reference}`, each
    once; all other braces are text. Null: question and response."""
    answer_format: AnswerFormat = "json_schema"
    """`json_schema` has the server constrain the answer to integers from 1 to 5; `json_object`
    to some JSON; with `text` the last JSON object in the answer counts, so that the scorer may
    think before. A verdict that is not exactly one score for each dimension is malformed."""
    expected_score: bool = False
    """Take the mean of the scores 1 to 5 by their probability instead of the score that was
    sampled. The server must give log-probabilities, 20 at a token; one that is not among
    them counts as 0."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Of the scorer."""
    max_tokens: PositiveInt = 512
    """Longest answer of the scorer, in tokens, its thoughts included."""
    chat_template_kwargs: dict[str, Any] = Field({})
    """What else the server's chat template is told, such as `{enable_thinking: false}` for
    Qwen3."""
    parameters: dict[str, Any] = Field({})
    """Further fields of the request, such as `{reasoning_effort: low}`."""
    tries: PositiveInt = 3
    """How often to ask while the verdict is malformed; once if `temperature` is 0, because the same
    would come again."""
    on_server_down: Literal["fail", "missing"] = "fail"
    """What a server does that is down for `patience_s`: end the run, or leave the reward of all
    that it has not scored missing, with `scorer_unreachable`."""
    cache: Path | Literal["user"] | None = "user"
    """File that keeps answers. `user`: `rejuice/scores.sqlite` in your cache folder
    ($XDG_CACHE_HOME or ~/.cache). Null: none is kept."""

    reasons: ClassVar[Mapping[str, str]] = {
        "empty_response": "the response is null or blank: the scorer is not asked",
        "no_prompt": "the prompt is null or empty: the scorer is not asked",
        "no_reference": "`template` shows the reference, which is null",
        **REASONS,
    }

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
        for place in PLACES:
            count = template.count(f"{{{place}}}")
            if not count and place != "reference":
                raise ValueError(f"it must contain {{{place}}}")
            if count > 1:
                raise ValueError(f"it contains {{{place}}} {count} times")
        for place in _NOT_FILLED:
            if place in template:
                raise ValueError(f"it contains {place}, which is not filled in")
        return template

    @field_validator("system")
    @classmethod
    def _has_no_places(cls, system: str | None) -> str | None:
        for place in PLACES:
            if system and f"{{{place}}}" in system:
                raise ValueError(f"it contains {{{place}}}, which is filled in in template only")
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
        shown = self._messages(*(f"{{{place}}}" for place in PLACES))
        return {} if row else {f"the scorer's {each['role']}": each["content"] for each in shown}

    def apply(self, table: pa.Table) -> Change:
        found = dict(self._outcomes(table, range(table.num_rows)))
        return self._change([found[row] for row in range(table.num_rows)])

    def process_rows(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        for row, outcome in self._outcomes(table, rows):
            yield row, self._change([outcome])

    def close(self) -> None:
        release(self.server, self._cache_file())
        _told.clear()

    def _outcomes(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
        """What became of each of these rows, as they finish."""
        places, questions = list[int](), list[Question]()
        for row, shown in zip(rows, self._shown(table, rows), strict=True):
            if isinstance(shown, str):
                yield row, Outcome(None, shown)
            else:
                places.append(row)
                questions.append(self._question(*shown))
        if not questions:
            return
        judge = judge_of(self.server, self._cache_file())
        probe = self._body("Hi", "Hi", "Hi")
        fail = self.on_server_down == "fail"
        for index, outcome in judge.outcomes(questions, probe, fail=fail):
            _tell(outcome)
            yield places[index], outcome

    def _shown(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[str, str, str] | str]:
        """Question, response and reference of each row, or the reason not to ask."""
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

    def _question(self, question: str, response: str, reference: str) -> Question:
        read = partial(
            read_verdict,
            dimensions=self.dimensions,
            answer_format=self.answer_format,
            expected=self.expected_score,
        )
        tries = self.tries if self.temperature else 1
        return Question(self._body(question, response, reference), self.revision, read, tries)

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
            # Of its own, or the same chance would decide about all responses.
            shown = "\0".join((question, response, reference)).encode()
            body["seed"] = xxhash.xxh3_64_intdigest(shown) % _SEEDS
        if self.answer_format == "json_schema":
            asked = {"name": "verdict", "strict": True, "schema": schema(self.dimensions)}
            body["response_format"] = {"type": "json_schema", "json_schema": asked}
        elif self.answer_format == "json_object":
            body["response_format"] = {"type": "json_object"}
        if self.expected_score:
            body |= {"logprobs": True, "top_logprobs": _TOP}
        if self.chat_template_kwargs:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        return body

    def _messages(self, question: str, response: str, reference: str) -> list[dict[str, str]]:
        values = dict(zip(PLACES, (question, response, reference), strict=True))
        system = system_message(self.dimensions) if self.system is None else self.system
        return [
            {"role": "system", "content": system},
            {"role": "user", "content": filled(self._template(), values)},
        ]

    def _change(self, outcomes: Sequence[Outcome]) -> Change:
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
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    is_chat = is_list and pa.types.is_struct(kind.value_type) and _is_message(kind.value_type)
    if not (pa.types.is_null(kind) or is_chat):
        right = "prompt_template_mapper makes prompts: lists of messages with role and content"
        raise DataError(f"column 'prompt' is {kind}", right)
    return [chat_text([each for each in chat or () if each]) for chat in prompts.to_pylist()]


def _is_message(kind: pa.DataType) -> bool:
    fields = {field.name: field.type for field in kind}
    texts = (pa.string(), pa.large_string(), pa.null())
    return all(fields.get(name) in texts for name in ("role", "content"))


def _texts(table: pa.Table, name: str) -> list[str | None]:
    kind = table[name].type
    if pa.types.is_nested(kind):
        raise DataError(f"column '{name}' is {kind}, not text", "give strings")
    texts: list[str | None] = table[name].cast(pa.string()).to_pylist()
    return texts


_told: set[str] = set()


def _tell(outcome: Outcome) -> None:
    """The first failure of each kind in full: the books keep only its reason."""
    if outcome.reason is not None and outcome.reason not in _told:
        _told.add(outcome.reason)
        _log.warning("a response has no score, %s: %s", outcome.reason, outcome.detail)
