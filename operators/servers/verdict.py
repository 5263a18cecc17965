"""From a scorer's answer to its scores."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, Field

from ..chats import answer_part
from ..columns import component, component_columns
from ..groups import Array
from ..operator import Columns
from .options import Dialect
from .wire import ChatChoice, ChatCompletion, LogProb, ReportedUsage, parse_body

# --- A scorer's answer, as the server sends it and as the cache stores it -------------

_DIGIT = re.compile("[0-9]")
_PLAIN = Dialect()


class AnswerToken(NamedTuple):
    """A token of an answer."""

    text: str  # as the server decodes it
    # the most probable tokens at its position, including itself, with their log-probabilities;
    # empty if the token contains no digit, because only those are used
    top: tuple[tuple[str, float], ...]


class ScorerAnswer(NamedTuple):
    """An answer of a scorer, not yet interpreted.

    Attributes:
        text: of the answer.
        finish_reason: `stop`, or `length` if it was truncated.
        tokens: of the text, perhaps preceded by reasoning tokens that are not in it; None if the
            server gives no log-probabilities.
        prompt_tokens, completion_tokens: its cost, 0 if the server does not report it.
    """

    text: str
    finish_reason: str
    tokens: tuple[AnswerToken, ...] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def dump(self) -> str:
        """As JSON, for `load`."""
        return json.dumps(self)

    @classmethod
    def load(cls, text: str) -> ScorerAnswer:
        """Return what `dump` wrote.

        Example:
            >>> token = AnswerToken("4", (("4", -0.1), ("5", -2.5)))
            >>> answer = ScorerAnswer("4", "stop", (token,), 9, 1)
            >>> ScorerAnswer.load(answer.dump()) == answer
            True
        """
        content, finish_reason, tokens, *cost = json.loads(text)
        if tokens is not None:
            tokens = tuple(AnswerToken(each, tuple((t, p) for t, p in top)) for each, top in tokens)
        return cls(content, finish_reason, tokens, *cost)


class _TokenLogProb(LogProb):
    token: str


class _ScoredToken(_TokenLogProb):
    top_logprobs: list[_TokenLogProb] = Field(default_factory=list)


class _ScorerLogProbs(BaseModel):
    content: list[_ScoredToken] | None = None


class _ScorerChoice(ChatChoice):
    logprobs: _ScorerLogProbs | None = None


class _ScorerCompletion(ChatCompletion[_ScorerChoice]):
    usage: ReportedUsage | None = None


def read_answer(body: bytes, dialect: Dialect = _PLAIN) -> ScorerAnswer:
    """Return the answer in the body of a chat completion.

    Raises:
        AttemptError: there is no usable answer, or the model refuses to answer.
    """
    completion = parse_body(_ScorerCompletion, body)
    choice, usage = completion.the_choice(dialect), completion.usage or ReportedUsage()
    content = None if choice.logprobs is None else choice.logprobs.content
    return ScorerAnswer(
        choice.message.content
        or "",  # Null if the model was still reasoning when it was truncated.
        choice.finish_reason or "",
        None if content is None else tuple(_token(each) for each in content),
        usage.prompt_tokens,
        usage.completion_tokens,
    )


def _token(each: _ScoredToken) -> AnswerToken:
    if not _DIGIT.search(each.token):
        return AnswerToken(each.token, ())
    top = {other.token: other.logprob for other in each.top_logprobs}
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
    """Return the reward of a mean score, float64[N]: (s - 0.2) / 0.8 - 0.5 with s = mean / 5.

    It is computed as (mean - 1) / 4 - 0.5, which is equal, and exact if the mean is.

    Example:
        >>> reward_of(np.array([1.0, 3.0, 5.0])).tolist()
        [-0.5, 0.0, 0.5]
    """
    reward_N: Array = (mean_N - LEAST) / (MOST - LEAST) - 0.5
    return reward_N


def quality_columns(scores: Mapping[str, Array], missing: pa.Array) -> dict[str, pa.Array]:
    """Return the columns in `WRITTEN`.

    Returns:
        `quality` struct of float64, `quality_score` float64 s, `reward_quality` float64 and
        `reward_quality_missing` string; in a row without scores, only the last is not null.
    """
    absent_N = np.asarray(missing.is_valid())
    mean_N = sum(scores.values(), np.zeros(len(missing))) / len(scores)
    fields = [pa.array(each_N, pa.float64(), mask=absent_N) for each_N in scores.values()]
    return {
        "quality": pa.StructArray.from_arrays(fields, names=list(scores), mask=pa.array(absent_N)),
        "quality_score": pa.array(mean_N / MOST, pa.float64(), mask=absent_N),
        **component("quality", reward_of(mean_N), missing),
    }


# --- The scores in an answer ----------------------------------------------------------

AnswerFormat = Literal["json_schema", "json_object", "text"]
_SCORES = range(LEAST, MOST + 1)
_OF_FIVE = re.compile(r"(?<![0-9./])([0-9]+(?:\.[0-9]+)?)\s*/\s*5(?![0-9./])")
_decoder = json.JSONDecoder()
_ONE_DIGIT = re.compile(r"[^0-9]*([0-9])[^0-9]*")


class MalformedError(Exception):
    """A verdict that does not have the requested form.

    Args:
        why: what is wrong.
        text: of the answer, whose beginning the message shows.
    """

    def __init__(self, why: str, text: str) -> None:
        super().__init__(f"{why}: {_shown(text)}")


def schema(dimensions: Iterable[str]) -> dict[str, Any]:
    """The JSON schema of a verdict: an integer from 1 to 5 for each dimension, nothing else."""
    names = list(dimensions)
    score = {"type": "integer", "enum": list(_SCORES)}
    return {
        "type": "object",
        "properties": dict.fromkeys(names, score),
        "required": names,
        "additionalProperties": False,
    }


def read_verdict(
    answer: ScorerAnswer, dimensions: Sequence[str], answer_format: AnswerFormat, *, expected: bool
) -> tuple[float, ...]:
    """Return the score of each dimension.

    What the scorer thinks before, up to `</think>`, is no part of it; so are further fields.

    Args:
        answer: of the scorer.
        dimensions: those to score.
        answer_format: with `text`, the last JSON object in the text counts, whatever is around it;
            otherwise there must be one alone, with or without text around it.
        expected: return the mean of the scores from 1 to 5, weighted by their probabilities,
            instead of the sampled score.

    Raises:
        MalformedError: there is not exactly one score from 1 to 5 for each dimension. 4, 4.0, "4",
            4/5 and "4/5" are the same score.

    Example:
        >>> answer = ScorerAnswer('{"accuracy": 4}', "stop")
        >>> read_verdict(answer, ["accuracy"], "text", expected=False)
        (4.0,)
    """
    found = _object(answer, answer_format)
    scores = _scores(found, dimensions)
    if not expected:
        return tuple(float(score) for score in scores)
    return tuple(_expected(answer, found, name) for name in dimensions)


def read_decision(answer: ScorerAnswer, name: str, answer_format: AnswerFormat) -> bool:
    """Return a verdict that is one decision, `{"name": true}` or `{"name": false}`, with or without
    further fields.

    Raises:
        MalformedError: the verdict is something else.

    Example:
        >>> read_decision(ScorerAnswer('Same. {"correct": true}', "stop"), "correct", "text")
        True
    """
    text = _object(answer, answer_format)
    decisions = [value for each, value in _pairs(text, text) if each == name]
    if len(decisions) != 1 or type(decisions[0]) is not bool:
        raise MalformedError(f"not {name}, true or false", text)
    return bool(decisions[0])


def _object(answer: ScorerAnswer, answer_format: AnswerFormat) -> str:
    """Return the part of an answer that is its verdict."""
    if answer.finish_reason == "length":
        raise MalformedError("it is truncated at max_tokens", answer.text)
    text = without_thought(answer.text).strip()
    if answer_format == "text":
        return _last_object(text)
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return text
    begin, end = text.find("{"), text.rfind("}") + 1
    return text[begin:end] if 0 <= begin < end else text


def without_thought(text: str) -> str:
    """Return what a scorer answers after its thought.

    Raises:
        MalformedError: it is cut off within its thought.
    """
    after = answer_part(text)
    if after is None:
        raise MalformedError("it ends within its thought", text)
    return after


def _last_object(text: str) -> str:
    """Return the last JSON object that is not part of another one."""
    json_text, last, place = _without_of_five(text), "", text.find("{")
    while place >= 0:
        try:
            _, end = _decoder.raw_decode(json_text, place)
            last, place = text[place:end], end
        except (ValueError, RecursionError):
            place += 1
        place = text.find("{", place)
    if last:
        return last
    # None: the message shows what comes nearest.
    end = text.rfind("}") + 1
    start = text.rfind("{", 0, end)
    if start < 0:
        raise MalformedError("no JSON object", text)
    return text[start:end]


def _without_of_five(text: str) -> str:
    """Return the text, of the same length, with 4 for 4/5."""
    return _OF_FIVE.sub(lambda found: found[1].ljust(len(found[0])), text)


def _pairs(json_text: str, text: str) -> list[tuple[str, Any]]:
    """Return the fields of a JSON object; none if it is something else.

    Raises:
        MalformedError: it is no JSON; the message shows `text`.
    """
    try:
        pairs: list[tuple[str, Any]] = json.loads(json_text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise MalformedError("no JSON", text) from None
    return pairs if json_text[:1] == "{" else []


def _scores(text: str, dimensions: Sequence[str]) -> list[int]:
    pairs = [pair for pair in _pairs(_without_of_five(text), text) if pair[0] in dimensions]
    if sorted(name for name, _ in pairs) != sorted(dimensions):
        raise MalformedError(f"not the scores of {', '.join(dimensions)}", text)
    scores = {name: _score(value) for name, value in pairs}
    for name, value in pairs:
        if scores[name] not in _SCORES:
            found = f"{name} is {json.dumps(value)[:20]}"
            raise MalformedError(f"{found}, not an integer from {LEAST} to {MOST}", text)
    return [int(scores[name]) for name in dimensions]


def _score(value: object) -> float:
    """Return what a value says as a number; NaN if it says none."""
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            return float(value)
    return math.nan


def _expected(answer: ScorerAnswer, verdict: str, name: str) -> float:
    """sum_d d p(d) / sum_d p(d) over the scores d, at the token of the score.

    A score that is not among the most probable tokens has probability 0.
    Source: G-Eval, https://arxiv.org/abs/2303.16634.
    """
    best = _logprobs(_token_of(answer, verdict, name))
    highest = max(best.values())
    weights = {score: math.exp(logprob - highest) for score, logprob in best.items()}
    return sum(score * weight for score, weight in weights.items()) / sum(weights.values())


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


def _logprobs(token: AnswerToken) -> dict[int, float]:
    """Log-probability of each score; several tokens of one, such as `4` and ` 4`, are summed."""
    if not _ONE_DIGIT.fullmatch(token.text):
        raise MalformedError("a score shares its token", token.text)
    found: dict[int, float] = {}
    for text, logprob in token.top:
        digit = _ONE_DIGIT.fullmatch(text)
        if digit and (score := int(digit[1])) in _SCORES:
            before = found.get(score, -math.inf)
            most, least = max(before, logprob), min(before, logprob)
            found[score] = most + math.log1p(math.exp(least - most))
    return found


def _shown(text: str) -> str:
    return " ".join(text.split())[:200] or "empty"
