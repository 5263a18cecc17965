"""Reward a response for its quality, as judged by another language model."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import field_validator, model_validator
from typing_extensions import Self

from ..errors import needs
from ..operator import Change, Columns
from ..servers.judge import REASONS, ScoringOutcome
from ..servers.judge_prompt import (
    PLACEHOLDERS,
    TEMPLATE,
    escaped,
    filled,
    lookalikes,
    system_message,
)
from ..servers.judged_mapper import PROBE, JudgedMapper, questions_of, response_format
from ..servers.scoring_mapper import summed_notes, texts_of
from ..servers.verdict import (
    LEAST,
    MOST,
    WRITTEN,
    AnswerFormat,
    MalformedError,
    ScorerAnswer,
    quality_columns,
    read_verdict,
    schema,
    without_thought,
)
from ..servers.verdict import schema as schema_of_scores

# --- The prompt and the answer of Data-Juicer's `llm_quality_score_filter` ------------
# The texts are those of the Data-Juicer that is installed. They are read from its source files,
# because importing them takes seconds.
#
# An answer is read as `LLMAnalysisFilter.parse_output` of py-data-juicer 1.6.1 reads it
# (https://github.com/datajuicer/data-juicer), with two differences: what is within `<think>` is no
# answer; and where there is no number from 1 to 5 for each dimension, there is no score. There it
# is 0, or what the numbers outside of 1 to 5 give.

DIMENSIONS = ("accuracy", "grammar", "informativeness", "coherence")
"""What the prompt asks to score, in the order in which Data-Juicer sums the scores."""

_SHOWN = ("prompt", "response")  # the names of the fields, as Trinity-RFT's recipe has them
_RECOMMENDATIONS = ("keep", "review", "discard")
_FIRST_OBJECT = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


def messages(question: str, response: str) -> list[dict[str, str]]:
    """Return the chat that Data-Juicer sends for a sample with these two fields.

    What looks in them like a delimiter of that prompt, or like a special token, has a backslash.
    """
    texts = {**_texts("llm_analysis_filter"), **_texts("llm_quality_score_filter")}
    field, whole = texts["DEFAULT_FIELD_TEMPLATE"], texts["DEFAULT_INPUT_TEMPLATE"]
    titles = (field.replace("{field_name}", name) for name in _SHOWN)
    looks = lookalikes("\n".join((whole, *titles)), ("data", "field_data"))
    fields = (
        field.format(field_name=name, field_data=escaped(text, looks))
        for name, text in zip(_SHOWN, (question, response), strict=True)
    )
    shown = whole.format(data="\n\n".join(fields))
    return [
        {"role": "system", "content": texts["DEFAULT_SYSTEM_PROMPT"]},
        {"role": "user", "content": shown},
    ]


def data_juicer_schema() -> dict[str, Any]:
    """Return the JSON schema of an answer as the prompt describes it."""
    texts = {"type": "array", "items": {"type": "string"}}
    properties = {
        "dimension_scores": schema_of_scores(DIMENSIONS),
        "flags": texts,
        "rationale": {"type": "string"},
        "recommendation": {**texts, "items": {"type": "string", "enum": [*_RECOMMENDATIONS]}},
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def read_scores(answer: ScorerAnswer, dimensions: Sequence[str]) -> tuple[float, ...]:
    """Return the score of each dimension; the first JSON object in the text counts.

    Raises:
        MalformedError: there is no number from 1 to 5 for one of them.
    """
    scores = _object(answer.text).get("dimension_scores")
    if not isinstance(scores, dict):
        raise MalformedError("no dimension_scores", answer.text)
    for name in dimensions:
        score: Any = scores.get(name)
        if type(score) not in (int, float) or not LEAST <= score <= MOST:
            found = f"{name} is {json.dumps(score)[:20]}"
            raise MalformedError(f"{found}, not a number from {LEAST} to {MOST}", answer.text)
    return tuple(float(scores[name]) for name in dimensions)


def record(text: str) -> str:
    """All that an answer with scores says, as Data-Juicer keeps it in `llm_quality_record`."""
    found = _object(text)
    found["recommendation"] = _as_texts(found.get("recommendation"))
    # Half of a surrogate pair, as of an emoji that was cut, is no text: it stays escaped.
    written = json.dumps(found, ensure_ascii=False)
    return written.encode(errors="backslashreplace").decode()


def _object(text: str) -> dict[str, Any]:
    found = _FIRST_OBJECT.search(without_thought(text))
    if found is None:
        raise MalformedError("no JSON object", text)
    try:
        value: dict[str, Any] = json.loads(found[0])
    except (ValueError, RecursionError):
        raise MalformedError("no JSON", text) from None
    return value


def _as_texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    texts = (str(each).strip() for each in values if each is not None)
    return [text for text in texts if text]


@cache
def _texts(operator: str) -> Mapping[str, str]:
    """The texts that the class of an operator gives a name to, such as `DEFAULT_SYSTEM_PROMPT`."""
    needs("prompt: data_juicer", "rejuice[data-juicer]", "data_juicer")
    # `find_spec` of a package without a dot looks it up and does not import it.
    spec = importlib.util.find_spec("data_juicer")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent / "ops" / "filter" / f"{operator}.py"
    return {
        node.targets[0].id: node.value.value
        for kind in ast.parse(file.read_text("utf-8")).body
        if isinstance(kind, ast.ClassDef)
        for node in kind.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


# --- Reward a response for its quality, as judged by another language model -----------

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOP = 20  # log-probabilities at a token: the most that OpenAI gives, and vLLM by default
_RESERVED = ("{prompt}", "{answer}")
RECORD = "quality_record"
"""The column of all that the scorer answered to Data-Juicer's prompt."""


class LlmQualityRewardMapper(JudgedMapper):
    """Write `reward_quality`: the quality of each response, as scored by an LLM behind a server.

    The scorer sees the question, which is the chat in `prompt`, and the response, delimited so that
    neither can pass for the prompt (docs/quality.md), and gives each dimension a score from 1 to 5.
    With s their mean / 5, in [0.2, 1], the reward is

        reward_quality = (s - 0.2) / 0.8 - 0.5

    in [-0.5, 0.5]. `quality` contains the scores, a struct with a field for each dimension, and
    `quality_score` contains s. With `prompt: data_juicer`, `quality_record` contains all that the
    scorer answered, as JSON: the scores, flags, a rationale and a recommendation.

    A blank response is not sent and has all scores 1. A failure never becomes a number: the reward
    is missing, with a reason in `reward_quality_missing`. No response is scored twice: answers are
    stored in `cache` under everything that determines them, and equal requests, also of several
    threads, are sent once. Each row is committed as it finishes.
    """

    prompt: Literal["short", "data_juicer"] = "short"
    """What the scorer is asked. `short`: the scores alone, by the fields below. `data_juicer`: the
    system message, the user message and the answer of Data-Juicer's `llm_quality_score_filter`,
    with the fields `prompt` and `response`, as published with Trinity-RFT; the answer is read as
    Data-Juicer reads it, but a failure is missing and never 0. It has no `{mark}`: only what looks
    like its delimiters is escaped."""
    dimensions: tuple[str, ...] = DIMENSIONS
    """What is scored. The defaults are those of Data-Juicer's `llm_quality_score_filter`; with
    `prompt: data_juicer`, which of them count for the mean."""
    system: str | None = None
    """System message of the scorer. Null: one that explains the dimensions and asks for JSON."""
    template: str | None = None
    """User message, with `{question}`, `{response}` and optionally `{reference}`, each once; all
    other braces are plain text, but for `{mark}`: 16 digits that are others in each request and
    occur in none of its texts. Put it into what delimits them, such as `<response {mark}>`, so that
    no response can end early and go on as if it were the prompt. Null: question and response,
    delimited in this way."""
    answer_format: AnswerFormat = "json_schema"
    """`json_schema` has the server constrain the answer to integers from 1 to 5, `json_object` to
    any JSON; with `text`, as Data-Juicer sends requests, to nothing. Of `prompt: short` there must
    be one JSON object in the answer, or with `text` the last one counts, so that the scorer may
    reason first; of `prompt: data_juicer` the first one counts. What it thinks before `</think>`
    never counts. A verdict without exactly one score for each dimension is malformed; further
    fields do no harm."""
    expected_score: bool = False
    """Take the mean of the scores 1 to 5, weighted by their probabilities, instead of the sampled
    score. The server must give log-probabilities, 20 at a token; a score that is not among them has
    probability 0."""
    # Change it with what the model is asked and with how its answers are read.
    code: ClassVar[str | None] = "3"
    reasons: ClassVar[Mapping[str, str]] = {
        "no_response": "the response is null, so it is not scored",
        "no_prompt": "the prompt is null or empty, so the response is not scored",
        "no_reference": "`template` contains the reference, which is null",
        **REASONS,
    }

    @model_validator(mode="after")
    def _fits_the_prompt(self) -> Self:
        if self.prompt == "short":
            return self
        own = {"system": self.system, "template": self.template}
        given = [name for name, text in own.items() if text is not None]
        given += ["expected_score"] if self.expected_score else []
        if given:
            raise ValueError(f"prompt: data_juicer does not take {given[0]}; leave one of them out")
        for name in self.dimensions:
            if name not in DIMENSIONS:
                known = ", ".join(DIMENSIONS)
                raise ValueError(f"prompt: data_juicer has no dimension '{name}', only {known}")
        return self

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

    def reads(self) -> Columns:
        return ("prompt", "response", *(["reference"] if self._needs_reference() else []))

    def writes(self) -> Columns:
        return WRITTEN if self.prompt == "short" else (*WRITTEN, RECORD)

    def cache_key_fields(self) -> Mapping[str, Any]:
        fields = {**super().cache_key_fields()}
        if fields.pop("prompt") == "data_juicer":
            fields["prompt"] = self._messages(PROBE)  # The texts of the installed version.
        return fields

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        names = [f"{{{name}}}" for name in PLACEHOLDERS]
        shown = [] if row else self._messages(names, mark="{mark}")
        return {f"the scorer's {each['role']}": each["content"] for each in shown}

    def _shown(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[str, ...] | ScoringOutcome]:
        """Question, response and reference of each row, or the reason not to score it."""
        taken = table.take(pa.array(rows, pa.int64()))
        questions, responses = questions_of(taken["prompt"]), texts_of(taken, "response")
        references: list[str | None] = [""] * len(questions)
        if self._needs_reference():
            references = texts_of(taken, "reference")
        for question, response, reference in zip(questions, responses, references, strict=True):
            if response is None:
                yield ScoringOutcome(None, "no_response")
            elif not response or response.isspace():
                yield ScoringOutcome((float(LEAST),) * len(self.dimensions))
            elif not question or question.isspace():
                yield ScoringOutcome(None, "no_prompt")
            elif reference is None:
                yield ScoringOutcome(None, "no_reference")
            else:
                yield question, response, reference

    def _messages(self, shown: Sequence[str], mark: str | None = None) -> list[dict[str, str]]:
        if self.prompt == "data_juicer":
            question, response, _ = shown
            return messages(question, response)
        values = dict(zip(PLACEHOLDERS, shown, strict=True))
        own = system_message(self.dimensions, self._template())
        system = own if self.system is None else self.system
        return [
            {"role": "system", "content": system},
            {"role": "user", "content": filled(self._template(), values, mark=mark)},
        ]

    def _answer_fields(self) -> Mapping[str, Any]:
        if self.prompt == "data_juicer":
            return response_format(self.answer_format, data_juicer_schema())
        top = {"logprobs": True, "top_logprobs": _TOP} if self.expected_score else {}
        return {**response_format(self.answer_format, schema(self.dimensions)), **top}

    def _reader(self) -> Callable[[ScorerAnswer], tuple[float, ...]]:
        if self.prompt == "data_juicer":
            return partial(read_scores, dimensions=self.dimensions)
        return partial(
            read_verdict,
            dimensions=self.dimensions,
            answer_format=self.answer_format,
            expected=self.expected_score,
        )

    def _change(self, table: pa.Table, outcomes: Sequence[ScoringOutcome]) -> Change:
        absent = (0.0,) * len(self.dimensions)
        scores_ND = np.array([outcome.scores or absent for outcome in outcomes], np.float64)
        scores_DN = scores_ND.reshape(len(outcomes), len(self.dimensions)).T
        missing = pa.array([outcome.reason for outcome in outcomes], pa.string())
        columns = quality_columns(dict(zip(self.dimensions, scores_DN, strict=True)), missing)
        if self.prompt == "data_juicer":
            found = (record(o.text) if o.scores and o.text else None for o in outcomes)
            columns[RECORD] = pa.array(list(found), pa.string())
        return Change(columns, notes=summed_notes(outcomes))

    def _template(self) -> str:
        return TEMPLATE if self.template is None else self.template

    def _needs_reference(self) -> bool:
        return "{reference}" in self._template()
