"""From what a scorer says to the scores, or that it says something else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from .answer import Answer, Token
from .quality import LEAST, MOST

AnswerFormat = Literal["json_schema", "json_object", "text"]
_SCORES = range(LEAST, MOST + 1)
_ONE_DIGIT = re.compile(r"[^0-9]*([0-9])[^0-9]*")


class MalformedError(Exception):
    """A verdict that is not what was asked for, and why."""


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
    answer: Answer, dimensions: Sequence[str], answer_format: AnswerFormat, *, expected: bool
) -> tuple[float, ...]:
    """The score of each dimension.

    Args:
        answer: of the scorer.
        dimensions: whose scores.
        answer_format: with `text` the last JSON object in the text counts, whatever is around it;
            otherwise the text is one.
        expected: the mean of the scores from 1 to 5 by their probability, instead of the score
            that was sampled.

    Raises:
        MalformedError: it is not exactly what `schema` asks for.

    Example:
        >>> read_verdict(Answer('{"accuracy": 4}', "stop"), ["accuracy"], "text", expected=False)
        (4.0,)
    """
    if answer.finish_reason == "length":
        raise MalformedError("it is cut at max_tokens")
    text = answer.text if answer_format == "text" else answer.text.strip()
    found = _last_object(text) if answer_format == "text" else text
    scores = _scores(found, dimensions)
    if not expected:
        return tuple(float(score) for score in scores)
    return tuple(_expected(answer, found, name) for name in dimensions)


def _last_object(text: str) -> str:
    # A verdict holds numbers only, so no brace stands within its own.
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
            said = _shown(json.dumps(score))
            raise MalformedError(f"{name} is {said}, not an integer from {LEAST} to {MOST}")
    return [scores[name] for name in dimensions]


def _expected(answer: Answer, verdict: str, name: str) -> float:
    """sum_d d p(d) / sum_d p(d) over the scores d, at the token that holds the score.

    A score that is not among the most probable tokens counts as one that cannot be.
    Source: G-Eval, https://arxiv.org/abs/2303.16634.
    """
    best = _logprobs(_token_of(answer, verdict, name))
    highest = max(best.values())
    weights = {score: math.exp(logprob - highest) for score, logprob in best.items()}
    return sum(score * weight for score, weight in weights.items()) / sum(weights.values())


def _token_of(answer: Answer, verdict: str, name: str) -> Token:
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


def _logprobs(token: Token) -> dict[int, float]:
    """Log-probability of each score; of several tokens for one, such as `4` and ` 4`, their sum."""
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
