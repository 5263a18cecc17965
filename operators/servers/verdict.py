"""From a scorer's answer to its scores."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

from ..thoughts import answer_part
from .answer import AnswerToken, ScorerAnswer
from .quality import LEAST, MOST

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
    """The score of each dimension.

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
    """A verdict that is one decision, `{"name": true}` or `{"name": false}`, with or without
    further fields.

    Args:
        answer: of the scorer.
        name: of the decision.
        answer_format: as in `read_verdict`.

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
    """The part of an answer that is its verdict."""
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
    """What a scorer answers after its thought.

    Raises:
        MalformedError: it is cut off within its thought.
    """
    after = answer_part(text)
    if after is None:
        raise MalformedError("it ends within its thought", text)
    return after


def _last_object(text: str) -> str:
    """The last JSON object that is not part of another one."""
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
    """The text, of the same length, with 4 for 4/5."""
    return _OF_FIVE.sub(lambda found: found[1].ljust(len(found[0])), text)


def _pairs(json_text: str, text: str) -> list[tuple[str, Any]]:
    """The fields of a JSON object; none if it is something else.

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
    """What a value says as a number; NaN if it says none."""
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
