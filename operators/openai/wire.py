"""The requests to an OpenAI-compatible server and its answers, as JSON."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, FiniteFloat, ValidationError

from ..errors import EngineError

WireModel = TypeVar("WireModel", bound=BaseModel)
ChoiceT = TypeVar("ChoiceT", bound="ChatChoice")
_BUSY = frozenset({408, 425, 429})
_UNSUPPORTED = frozenset(
    {501, 505}
)  # Not implemented, unsupported version of HTTP: retrying cannot help.
_REFUSED = frozenset({400, 413, 414, 422, 451})


Api: TypeAlias = Literal["completions", "chat", "generate"]
"""Endpoint of the server: `/v1/completions` with token ids, `/v1/chat/completions`, which applies
the chat template itself, or vLLM's own `/inference/v1/generate`, which states weight versions."""


class RetryClass(Enum):
    """Why an attempt failed, which decides how much of a request's attempts it uses up."""

    OVERLOADED = "overloaded"
    """The server has too many requests. Uses up no attempt: only time bounds it."""
    SERVER_FAILED = "server_failed"
    """The server failed, perhaps only for now. Uses up one attempt."""
    BAD_ANSWER = "bad_answer"
    """The answer is unusable. Uses up a third of the attempts: a proxy may have truncated it, but
    the same seed mostly gives the same answer."""
    REFUSED = "refused"
    """The server refuses the request and will refuse it again. Uses up all attempts."""

    def cost(self, attempts: int) -> int:
        """How many of a request's `attempts` this uses up."""
        return {
            RetryClass.OVERLOADED: 0,
            RetryClass.SERVER_FAILED: 1,
            RetryClass.BAD_ANSWER: -(-attempts // 3),
            RetryClass.REFUSED: attempts,
        }[self]


class AttemptError(Exception):
    """An attempt at a request that gave no usable answer.

    Args:
        reason: a slug.
        detail: the server's message, or what was wrong.
        retry_class: why it failed.
        after: seconds that the server asks to wait before the next attempt.
    """

    def __init__(
        self, reason: str, detail: str, retry_class: RetryClass, *, after: float = 0.0
    ) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail, self.retry_class, self.after = reason, detail, retry_class, after


class HttpResponse(NamedTuple):
    """A response by HTTP."""

    status: int
    body: bytes
    retry_after: str = ""
    location: str = ""


def endpoint(base: str, api: Api) -> str:
    """The address to post to.

    >>> endpoint("http://localhost:8000/v1", "generate")
    'http://localhost:8000/inference/v1/generate'
    """
    if api == "generate":
        return f"{base.removesuffix('/v1')}/inference/v1/generate"
    return f"{base}/chat/completions" if api == "chat" else f"{base}/completions"


def check_status(response: HttpResponse, base: str) -> None:
    """Pass a response with status 200.

    Raises:
        AttemptError: another attempt or another prompt may succeed.
        EngineError: no attempt can succeed; the address or the key is wrong.
    """
    status = response.status
    if status == 200:
        return
    message = f"{status}: {error_text(response.body)}"
    if status in _REFUSED:
        raise AttemptError("request_refused", message, RetryClass.REFUSED)
    if status == 429:
        after = _seconds(response.retry_after)
        raise AttemptError("rate_limited", message, RetryClass.OVERLOADED, after=after)
    if status in _BUSY or (status >= 500 and status not in _UNSUPPORTED):
        after = _seconds(response.retry_after)
        raise AttemptError("server_error", message, RetryClass.SERVER_FAILED, after=after)
    if 300 <= status < 400:
        found = f"{base} redirects requests to '{response.location}'"
        raise EngineError(found, "set base_url to the address of the server")
    if status in (401, 403):
        raise EngineError(f"{base} answers {message}", "is the key right? see api_key_env")
    raise EngineError(f"{base} answers {message}", "is base_url right?")


def model_not_found(
    model: str, url: str, models: HttpResponse, hint: str, place: str = ""
) -> EngineError:
    """The error to raise if posting to `url` gives 404.

    Args:
        model: the requested model.
        url: the address that was posted to.
        models: the response of `/v1/models`.
        hint: what to try if the server has the model.
        place: which of several servers it is.
    """
    server = f"the server {place}" if place else "the server"
    known = served_models(models)
    if not known:
        return EngineError(f"{url} does not exist", "is base_url right? it usually ends in /v1")
    if model not in known:
        return EngineError(f"{server} has no model '{model}'", f"it has {', '.join(known[:9])}")
    return EngineError(f"{server} has the model '{model}' but no {url}", hint)


def served_models(models: HttpResponse) -> list[str]:
    """The names in the response of `/v1/models`; none if it is something else."""
    try:
        return [entry.id for entry in _ModelList.model_validate_json(models.body).data]
    except ValidationError:
        return []


def error_text(body: bytes) -> str:
    """The message of an error, from its JSON or its text: one line of at most 300 characters."""
    try:
        error = _ErrorBody.model_validate_json(body).error
        text = error if isinstance(error, str) else error.message
    except ValidationError:
        text = body[:300].decode(errors="replace")
    return " ".join(text.split())[:300]


def _seconds(retry_after: str) -> float:
    """How long a `Retry-After` header asks to wait, given in seconds or as a date; otherwise 0."""
    if re.fullmatch(r"\d{1,12}(\.\d+)?", retry_after):
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


class ChatMessage(BaseModel):
    """The message of a choice in a chat completion."""

    content: str | None = None
    refusal: str | None = None


class ChatChoice(BaseModel):
    """A choice in a chat completion."""

    message: ChatMessage
    finish_reason: str | None = None


class ChatCompletion(BaseModel, Generic[ChoiceT]):
    """A chat completion."""

    choices: list[ChoiceT]

    def the_choice(self) -> ChoiceT:
        """Its only choice, which ended by itself (`stop`) or was cut off (`length`).

        Raises:
            AttemptError: there is no such choice, or the model refuses to answer.
        """
        if len(self.choices) != 1:
            raise bad_response(f"{len(self.choices)} choices, not 1")
        (choice,) = self.choices
        check_not_refused(choice.message.refusal, choice.finish_reason)
        if choice.finish_reason not in ("stop", "length"):
            raise bad_response(f"it finished with {choice.finish_reason!r}")
        return choice


class LogProb(BaseModel):
    """The log-probability of a token."""

    logprob: FiniteFloat


class _ErrorMessage(BaseModel):
    message: str


class _ErrorBody(BaseModel):
    error: _ErrorMessage | str


class _ModelEntry(BaseModel):
    id: str


class _ModelList(BaseModel):
    data: list[_ModelEntry]


def parse_body(kind: type[WireModel], body: bytes) -> WireModel:
    """The body of an answer, as a model of that kind.

    Raises:
        AttemptError: the body is something else.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        raise bad_response(f"{place}: {first['msg']}: {body[:80]!r}") from None


def check_not_refused(refusal: str | None, finish_reason: str | None) -> None:
    """Pass an answer that was not refused.

    Raises:
        AttemptError: the model refuses to answer, or a content filter withholds the answer.
    """
    if refusal or finish_reason == "content_filter":
        detail = refusal or "the server's content filter"
        raise AttemptError("content_refused", detail, RetryClass.REFUSED)


def bad_response(detail: str) -> AttemptError:
    """The error to raise if an answer is not what was requested."""
    return AttemptError("bad_response", detail, RetryClass.BAD_ANSWER)
