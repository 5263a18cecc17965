"""From a scorer's answer to its scores."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import AliasPath, BaseModel, Field, TypeAdapter

from ..chats import answer_part
from ..columns import component, component_columns
from ..groups import Array
from ..operator import Columns
from .options import Dialect
from .wire import ChatCompletion, LogProb, ReportedUsage, parse_body

# --- A scorer's answer, as the server sends it and as the cache stores it -------------

_DIGIT = re.compile("[0-9]")
_PLAIN = Dialect()
_TOKENS = AliasPath("choices", 0, "logprobs", "content")


class AnswerToken(NamedTuple):
    text: str  # as the server decodes it
    # the most probable tokens at its position, including itself, with their log-probabilities;
    # empty if the token contains no digit, because only those are used
    top: tuple[tuple[str, float], ...]


class ScorerAnswer(NamedTuple):
    text: str
    finish_reason: str  # `stop`, or `length` if it was truncated
    # of the text, perhaps preceded by reasoning tokens that are not in it; None if the server gives
    # no log-probabilities
    tokens: tuple[AnswerToken, ...] | None = None
    prompt_tokens: int = 0  # 0 if the server does not report it
    completion_tokens: int = 0


STORED_ANSWER = TypeAdapter(ScorerAnswer)
"""As JSON, in caches."""


class _Token(LogProb):
    token: str
    top_logprobs: list[_Token] | None = None


class _BesideText(BaseModel):
    tokens: list[_Token] | None = Field(None, validation_alias=_TOKENS)
    usage: ReportedUsage | None = None


def read_answer(body: bytes, dialect: Dialect = _PLAIN) -> ScorerAnswer:
    """The answer in the body of a chat completion; an AttemptError if there is no usable one."""
    choice = parse_body(ChatCompletion, body).the_choice(dialect)
    beside = parse_body(_BesideText, body)
    usage, tokens = beside.usage or ReportedUsage(), beside.tokens
    return ScorerAnswer(
        # Null if the model was still reasoning when it was truncated.
        choice.message.content or "",
        choice.finish_reason or "",
        None if tokens is None else tuple(map(_token, tokens)),
        usage.prompt_tokens,
        usage.completion_tokens,
    )


def _token(each: _Token) -> AnswerToken:
    if not _DIGIT.search(each.token):
        return AnswerToken(each.token, ())
    top = {other.token: other.logprob for other in each.top_logprobs or ()}
    return AnswerToken(each.token, tuple((top | {each.token: each.logprob}).items()))


# --- From the scores of a response to its reward: the same scale for all scorers ------
# Each dimension has a score from 1 to 5. With m their mean
#
#     s      = m / 5                           in [0.2, 1]
#     reward = (s - 0.2) / 0.8 - 0.5           in [-0.5, 0.5]
#
# The first line is Data-Juicer's `llm_quality_score_filter`
# (https://github.com/datajuicer/data-juicer), the second the normalisation that Trinity-RFT
# describes (https://arxiv.org/abs/2505.17826).

LEAST, MOST = 1, 5
WRITTEN: Columns = ("quality", "quality_score", *component_columns("quality"))
"""The columns of `quality_columns`."""


def reward_of(mean_N: Array) -> Array:
    """The reward of a mean score, float64[N]: as above, but exact if the mean is.

    >>> reward_of(np.array([1.0, 3.0, 5.0])).tolist()
    [-0.5, 0.0, 0.5]
    """
    reward_N: Array = (mean_N - LEAST) / (MOST - LEAST) - 0.5
    return reward_N


def quality_columns(scores: Mapping[str, Array], missing: pa.Array) -> dict[str, pa.Array]:
    """The columns in `WRITTEN`; in a row without scores, only the reason is not null."""
    absent_N = np.asarray(missing.is_valid())
    mean_N = sum(scores.values(), np.zeros(len(missing))) / len(scores)
    fields = [pa.array(each_N, pa.float64(), mask=absent_N) for each_N in scores.values()]
    return {
        "quality": pa.StructArray.from_arrays(fields, names=list(scores), mask=pa.array(absent_N)),
        "quality_score": pa.array(mean_N / MOST, pa.float64(), mask=absent_N),
        **component("quality", reward_of(mean_N), missing),
    }


# --- The verdict in an answer ---------------------------------------------------------

_SCORES = range(LEAST, MOST + 1)
_OF_FIVE = re.compile(r"(?<![0-9./])([0-9]+(?:\.[0-9]+)?)\s*/\s*5(?![0-9./])")
_ONE_DIGIT = re.compile(r"[^0-9]*([0-9])[^0-9]*")


class MalformedError(Exception):
    def __init__(self, why: str, text: str) -> None:
        super().__init__(f"{why}: {' '.join(text.split())[:200] or 'empty'}")


class VerdictForm(NamedTuple):
    read: Callable[[Any], float | None]  # None: it does not say that
    right: str  # such as "true or false"
    within: str = ""  # the field whose object has the names; empty: the verdict itself has them


def _score(value: Any) -> float | None:
    """4, 4.0, "4", 4/5 and "4/5" are the same score."""
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(_OF_FIVE.sub(r"\1", value) if isinstance(value, str) else value)
            return number if number in _SCORES else None
    return None


SCORE = VerdictForm(_score, f"an integer from {LEAST} to {MOST}")
DECISION = VerdictForm(
    lambda value: float(value) if isinstance(value, bool) else None, "true or false"
)


def schema(dimensions: Iterable[str]) -> dict[str, Any]:
    """The JSON schema of a verdict: an integer from 1 to 5 for each dimension, nothing else."""
    score = {"type": "integer", "enum": list(_SCORES)}
    return object_schema(dict.fromkeys(dimensions, score))


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"properties": dict(properties), "required": list(properties)}
    return {"type": "object", **fields, "additionalProperties": False}


def read_verdict(
    answer: ScorerAnswer, names: Sequence[str], form: VerdictForm = SCORE, *, expected: bool = False
) -> tuple[float, ...]:
    """What the last JSON object that has one of the names says of each of them, in that form.

    Text around it does not matter, nor do further fields, nor what stands before `</think>`. An
    `expected` score is the mean of the scores from 1 to 5, weighted by their probabilities. A
    MalformedError where there is no such object, it lacks a name, or another object says something
    else: it may be a quotation of what is judged.

    >>> read_verdict(ScorerAnswer('{"accuracy": 4}', "stop"), ["accuracy"])
    (4.0,)
    >>> read_verdict(ScorerAnswer('Same. {"correct": true}', "stop"), ["correct"], DECISION)
    (1.0,)
    """
    if answer.finish_reason == "length":
        raise MalformedError("it is truncated at max_tokens", answer.text)
    text = without_thought(answer.text)
    verdicts = [
        (found, inner)
        for found, fields in json_objects(text)
        if isinstance(inner := fields.get(form.within) if form.within else fields, dict)
        and (form.within or not inner.keys().isdisjoint(names))
    ]
    if not verdicts:
        raise MalformedError(f"no JSON object with {form.within or ', '.join(names)}", text)
    *others, (last, fields) = verdicts
    scores = _read(fields, names, form, last)
    for other, fields in others:
        try:
            differs = _read(fields, names, form, other) != scores
        except MalformedError:
            continue
        if differs:
            raise MalformedError("two verdicts that differ", text)
    return tuple(_expected(answer, last, name) for name in names) if expected else scores


def without_thought(text: str) -> str:
    """What a scorer answers after its thought; a MalformedError if it is cut off within that."""
    after = answer_part(text)
    if after is None:
        raise MalformedError("it ends within its thought", text)
    return after


def json_objects(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The JSON objects in a text that are not part of others, as they are written and as read.

    4/5 is no JSON, and is read as 4. An object that has a name twice is none.
    """
    found, place = [], text.find("{")
    of_five = _OF_FIVE.sub(lambda each: each[1].ljust(len(each[0])), text)
    decoder = json.JSONDecoder(object_pairs_hook=_unambiguous)
    while place >= 0:
        end = place + 1
        for each in dict.fromkeys((text, of_five)):
            with suppress(ValueError, RecursionError):
                fields, end = decoder.raw_decode(each, place)
                found.append((text[place:end], fields))
                break
        place = text.find("{", end)
    return found


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _read(
    fields: Mapping[str, Any], names: Sequence[str], form: VerdictForm, text: str
) -> tuple[float, ...]:
    values = []
    for name in names:
        value = form.read(fields.get(name))
        if value is None:
            found = json.dumps(fields[name])[:20] if name in fields else "missing"
            raise MalformedError(f"{name} is {found}, not {form.right}", text)
        values.append(value)
    return tuple(values)


def _expected(answer: ScorerAnswer, verdict: str, name: str) -> float:
    """sum_d d p(d) / sum_d p(d) over the scores d, at the token of the score.

    A score that is not among the most probable tokens has probability 0.
    Source: G-Eval, https://arxiv.org/abs/2303.16634.
    """
    token = _token_of(answer, verdict, name)
    if not _ONE_DIGIT.fullmatch(token.text):
        raise MalformedError("a score shares its token", token.text)
    # Several tokens may be of one score, such as `4` and ` 4`.
    digits = [(_ONE_DIGIT.fullmatch(text), logprob) for text, logprob in token.top]
    known = [(int(digit[1]), logprob) for digit, logprob in digits if digit]
    known = [(score, logprob) for score, logprob in known if score in _SCORES]
    highest = max(logprob for _, logprob in known)
    weights = [math.exp(logprob - highest) for _, logprob in known]
    return sum(score * w for (score, _), w in zip(known, weights, strict=True)) / sum(weights)


def _token_of(answer: ScorerAnswer, verdict: str, name: str) -> AnswerToken:
    if answer.tokens is None:
        raise MalformedError("the server gives no log-probabilities", answer.text)
    whole = "".join(token.text for token in answer.tokens)
    begin = whole.rfind(verdict)
    scores = list(re.finditer(rf'"{name}"\s*:\s*"?', verdict))
    if begin < 0 or len(scores) != 1:
        raise MalformedError("the tokens are not those of the text", answer.text)
    at = begin + scores[0].end()
    for token in answer.tokens:
        if at < len(token.text):
            return token
        at -= len(token.text)
    raise AssertionError("a verdict ends with a brace")
