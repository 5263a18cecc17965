"""What a scorer answered, as it came over the wire and as it is kept."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from pydantic import BaseModel, FiniteFloat

from ..openai.wire import Blame, Fault, check_not_refused, parsed

_DIGIT = re.compile("[0-9]")


class Token(NamedTuple):
    """A token of an answer.

    Attributes:
        text: as the server decodes it.
        top: the tokens that might have stood in its place, itself among them, and their
            log-probabilities; empty where no digit is in the token, because nobody asks there.
    """

    text: str
    top: tuple[tuple[str, float], ...]


class Answer(NamedTuple):
    """An answer of a scorer, before anything is made of it.

    Attributes:
        text: what it says.
        finish_reason: `stop`, or `length` where it was cut.
        tokens: what the text is made of, which may begin with tokens that are not in it, of a
            thought; None where the server gives no log-probabilities.
        prompt_tokens, completion_tokens: what it cost, 0 where the server does not say.
    """

    text: str
    finish_reason: str
    tokens: tuple[Token, ...] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def dump(self) -> str:
        """As JSON, for `load`."""
        return json.dumps(self)

    @classmethod
    def load(cls, text: str) -> Answer:
        """What `dump` wrote.

        Example:
            >>> answer = Answer("4", "stop", (Token("4", (("4", -0.1), ("5", -2.5))),), 9, 1)
            >>> Answer.load(answer.dump()) == answer
            True
        """
        said, finish_reason, tokens, *cost = json.loads(text)
        if tokens is not None:
            tokens = tuple(Token(each, tuple((t, p) for t, p in top)) for each, top in tokens)
        return cls(said, finish_reason, tokens, *cost)


class _LogProb(BaseModel):
    token: str
    logprob: FiniteFloat


class _TopLogProb(_LogProb):
    top_logprobs: list[_LogProb] = []


class _LogProbs(BaseModel):
    content: list[_TopLogProb] | None = None


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: _LogProbs | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None


def read_answer(body: bytes) -> Answer:
    """The answer in the body of a chat completion.

    Raises:
        Fault: it is none, or the model refuses.
    """
    completion = parsed(_Completion, body)
    if len(completion.choices) != 1:
        raise Fault("bad_response", f"{len(completion.choices)} choices, not 1", Blame.ANSWER)
    choice, usage = completion.choices[0], completion.usage or _Usage()
    check_not_refused(choice.message.refusal, choice.finish_reason)
    if choice.finish_reason not in ("stop", "length"):
        raise Fault("bad_response", f"it finished with {choice.finish_reason!r}", Blame.ANSWER)
    content = None if choice.logprobs is None else choice.logprobs.content
    return Answer(
        choice.message.content or "",  # Null where a model thought until it was cut.
        choice.finish_reason,
        None if content is None else tuple(_token(each) for each in content),
        usage.prompt_tokens,
        usage.completion_tokens,
    )


def _token(each: _TopLogProb) -> Token:
    if not _DIGIT.search(each.token):
        return Token(each.token, ())
    top = {other.token: other.logprob for other in each.top_logprobs}
    return Token(each.token, tuple((top | {each.token: each.logprob}).items()))
