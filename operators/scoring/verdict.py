"""From a scorer's answer to its scores."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from .answer import AnswerToken, ScorerAnswer
from .quality import LEAST, MOST

AnswerFormat = Literal["json_schema", "json_object", "text"]
_SCORES = range(LEAST, MOST + 1)
_ONE_DIGIT = re.compile(r"[^0-9]*([0-9])[^0-9]*")


class MalformedError(Exception):
    """A verdict that does not have the requested form, and why."""


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

    Args:
        answer: of the scorer.
        dimensions: those to score.
        answer_format: with `text`, the last JSON object in the text counts, whatever is around it;
            otherwise the whole text must be one.
        expected: return the mean of the scores from 1 to 5, weighted by their probabilities,
            instead of the sampled score.

    Raises:
        MalformedError: the verdict does not match `schema` exactly.

    Example:
        >>> answer = ScorerAnswer('{"accuracy": 4}', "stop")
        >>> read_verdict(answer, ["accuracy"], "text", expected=False)
        (4.0,)
    """
    if answer.finish_reason == "length":
        raise MalformedError("it is truncated at max_tokens")
    text = answer.text if answer_format == "text" else answer.text.strip()
    found = _last_object(text) if answer_format == "text" else text
    scores = _scores(found, dimensions)
    if not expected:
        return tuple(float(score) for score in scores)
    return tuple(_expected(answer, found, name) for name in dimensions)


def _last_object(text: str) -> str:
    # A verdict contains only numbers, so there is no brace inside its braces.
    end = text.rfind("}") + 1
    start = text.rfind("{", 0, end)
    if start < 0:
        raise MalformedError(f"no JSON object: {_shown(text)}")
    return text[start:end]


def _scores(text: str, dimensions: Sequence[str]) -> list[int]:
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise MalformedError(f"no JSON: {_shown(text)}") from None
    if text[:1] != "{" or sorted(name for name, _ in pairs) != sorted(dimensions):
        raise MalformedError(f"not the scores of {', '.join(dimensions)}: {_shown(text)}")
    scores = dict(pairs)
    for name, score in scores.items():
        if type(score) is not int or score not in _SCORES:
            shown = _shown(json.dumps(score))
            raise MalformedError(f"{name} is {shown}, not an integer from {LEAST} to {MOST}")
    return [scores[name] for name in dimensions]


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
        raise MalformedError("the server gives no log-probabilities")
    whole = "".join(token.text for token in answer.tokens)
    begin = whole.rfind(verdict)
    score = re.search(rf'"{name}"\s*:\s*', verdict)
    if begin < 0 or score is None:
        raise MalformedError("the tokens are not those of the text")
    at = begin + score.end()
    for token in answer.tokens:
        if at < len(token.text):
            return token
        at -= len(token.text)
    raise AssertionError("a verdict ends with a brace")


def _logprobs(token: AnswerToken) -> dict[int, float]:
    """Log-probability of each score; several tokens of one, such as `4` and ` 4`, are summed."""
    if not _ONE_DIGIT.fullmatch(token.text):
        raise MalformedError(f"a score shares its token: {_shown(token.text)}")
    found: dict[int, float] = {}
    for text, logprob in token.top:
        digit = _ONE_DIGIT.fullmatch(text)
        if digit and (score := int(digit[1])) in _SCORES:
            before = found.get(score, -math.inf)
            most, least = max(before, logprob), min(before, logprob)
            found[score] = most + math.log1p(math.exp(least - most))
    return found


def _shown(text: str) -> str:
    return " ".join(text.split())[:80] or "empty"
