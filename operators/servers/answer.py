"""A scorer's answer, as the server sends it and as the cache stores it."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from pydantic import BaseModel, Field

from .dialect import Dialect
from .wire import ChatChoice, ChatCompletion, LogProb, parse_body

_DIGIT = re.compile("[0-9]")
_PLAIN = Dialect()


class AnswerToken(NamedTuple):
    """A token of an answer.

    Attributes:
        text: as the server decodes it.
        top: the most probable tokens at its position, including itself, with their
            log-probabilities; empty if the token contains no digit, because only those are used.
    """

    text: str
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
        """What `dump` wrote.

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


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _ScorerCompletion(ChatCompletion[_ScorerChoice]):
    usage: _Usage | None = None


def read_answer(body: bytes, dialect: Dialect = _PLAIN) -> ScorerAnswer:
    """The answer in the body of a chat completion.

    Args:
        body: of the HTTP response.
        dialect: how the server differs from others.

    Raises:
        AttemptError: there is no usable answer, or the model refuses to answer.
    """
    completion = parse_body(_ScorerCompletion, body)
    choice, usage = completion.the_choice(dialect), completion.usage or _Usage()
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
