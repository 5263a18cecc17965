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
from ..servers.judge_prompt import PLACEHOLDERS, TEMPLATE, escaped, lookalikes, system_message
from ..servers.judged_mapper import JudgedMapper, questions_of, summed_notes, texts_of
from ..servers.verdict import (
    LEAST,
    MOST,
    WRITTEN,
    ScorerAnswer,
    VerdictForm,
    json_objects,
    object_schema,
    quality_columns,
    read_verdict,
    schema,
    without_thought,
)

# --- The prompt and the answer of Data-Juicer's `llm_quality_score_filter` ------------
# The texts are those of the Data-Juicer that is installed. They are read from its source files,
# because importing them takes seconds.
#
# The scores in an answer are those of `LLMAnalysisFilter.parse_output` of py-data-juicer 1.6.1
# (https://github.com/datajuicer/data-juicer), which takes the first object, where this one takes
# the last with scores, and none if two differ: a policy is paid by it. Where there is no number
# from 1 to 5 for each dimension, there is no score. There it is 0, or what other numbers give.

DIMENSIONS = ("accuracy", "grammar", "informativeness", "coherence")
"""What the prompt asks to score, in the order in which Data-Juicer sums the scores."""

_SHOWN = ("prompt", "response")  # the names of the fields, as Trinity-RFT's recipe has them


def messages(question: str, response: str) -> list[dict[str, str]]:
    """The chat that Data-Juicer sends for a sample with these two fields. What looks in them like a
    delimiter of that prompt, or like a special token, has a backslash."""
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
    texts = {"type": "array", "items": {"type": "string"}}
    recommendation = {"type": "string", "enum": ["keep", "review", "discard"]}
    return object_schema(
        {
            "dimension_scores": schema(DIMENSIONS),
            "flags": texts,
            "rationale": {"type": "string"},
            "recommendation": {**texts, "items": recommendation},
        }
    )


def _rating(value: Any) -> float | None:
    is_one = type(value) in (int, float) and LEAST <= value <= MOST
    return float(value) if is_one else None


RATING = VerdictForm(_rating, f"a number from {LEAST} to {MOST}", "dimension_scores")
"""What an answer says of a dimension."""


def record(text: str) -> str:
    objects = [fields for _, fields in json_objects(without_thought(text))]
    found = next(each for each in reversed(objects) if isinstance(each.get(RATING.within), dict))
    found["recommendation"] = _as_texts(found.get("recommendation"))
    # Half of a surrogate pair, as of an emoji that was cut, is no text: it stays escaped.
    written = json.dumps(found, ensure_ascii=False)
    return written.encode(errors="backslashreplace").decode()


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
    with the fields `prompt` and `response`, as published with Trinity-RFT; the scores are those
    that Data-Juicer reads, but a failure, or an answer with two verdicts, is missing and never 0.
    It has no `{mark}`: only what looks like its delimiters is escaped."""
    dimensions: tuple[str, ...] = DIMENSIONS
    """What is scored. The defaults are those of Data-Juicer's `llm_quality_score_filter`; with
    `prompt: data_juicer`, which of them count for the mean."""
    expected_score: bool = False
    """Take the mean of the scores 1 to 5, weighted by their probabilities, instead of the sampled
    score. The server must give log-probabilities, 20 at a token; a score that is not among them has
    probability 0."""
    # Change it with what the model is asked and with how its answers are read.
    code: ClassVar[str | None] = "4"
    reasons: ClassVar[Mapping[str, str]] = {
        "no_response": "the response is null, so it is not scored",
        "no_prompt": "the prompt is null or empty, so the response is not scored",
        "no_reference": "`template` contains the reference, which is null",
        **REASONS,
    }

    placeholders = PLACEHOLDERS
    optional = frozenset({"reference"})
    default_template = TEMPLATE

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

    def reads(self) -> Columns:
        return ("prompt", "response", *(["reference"] if self._needs_reference() else []))

    def writes(self) -> Columns:
        return WRITTEN if self.prompt == "short" else (*WRITTEN, RECORD)

    def cache_key_fields(self) -> Mapping[str, Any]:
        fields = {**super().cache_key_fields()}
        if fields.pop("prompt") == "data_juicer":
            fields["prompt"] = messages("Hi", "Hi")  # The texts of the installed version.
        return fields

    def _shown(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[str, ...] | ScoringOutcome]:
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

    def _system_message(self) -> str:
        return system_message(self.dimensions, self._template())

    def _messages(self, shown: Sequence[str], mark: str | None = None) -> list[dict[str, str]]:
        if self.prompt == "data_juicer":
            return messages(*shown[:2])
        return super()._messages(shown, mark)

    def _schema(self) -> Mapping[str, Any]:
        return data_juicer_schema() if self.prompt == "data_juicer" else schema(self.dimensions)

    def _response_format(self) -> Mapping[str, Any]:
        top = {"logprobs": True, "top_logprobs": _TOP} if self.expected_score else {}
        return {**super()._response_format(), **top}

    def _reader(self) -> Callable[[ScorerAnswer], tuple[float, ...]]:
        if self.prompt == "data_juicer":
            return partial(read_verdict, names=self.dimensions, form=RATING)
        return partial(read_verdict, names=self.dimensions, expected=self.expected_score)

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

    def _needs_reference(self) -> bool:
        return "{reference}" in self._template()
