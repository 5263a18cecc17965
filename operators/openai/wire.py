"""What goes to an OpenAI-compatible server and what comes back, as JSON."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import EngineError

Model = TypeVar("Model", bound=BaseModel)
_BUSY = frozenset({408, 425, 429})
_NEVER = frozenset({501, 505})  # Not implemented, not this version of HTTP: no server for us.
_REFUSED = frozenset({400, 413, 422, 451})


Api: TypeAlias = Literal["completions", "chat", "generate"]
"""Endpoint of the server: `/v1/completions` with token ids, `/v1/chat/completions`, which applies
the chat template itself, or vLLM's own `/inference/v1/generate`, which states weight versions."""


class Blame(Enum):
    """What failed in an attempt, and so how much of a prompt's attempts it uses up."""

    LOAD = "load"
    """Too many requests: none, time alone bounds it."""
    SERVER = "server"
    """Perhaps only for now: one."""
    ANSWER = "answer"
    """A third. A proxy may have cut it; but the same seed mostly gives the same answer."""
    PROMPT = "prompt"
    """All: the server refuses it and will refuse it again."""

    def cost(self, attempts: int) -> int:
        """Attempts used up, of so many."""
        third = -(-attempts // 3)
        return {Blame.LOAD: 0, Blame.SERVER: 1, Blame.ANSWER: third, Blame.PROMPT: attempts}[self]


class Fault(Exception):  # noqa: N818 - a fault of the server or the prompt, not of the program
    """One attempt that gave nothing to use.

    Args:
        reason: a slug.
        detail: what was said.
        blame: what failed.
        after: seconds that the server asks to wait before the next attempt.
    """

    def __init__(self, reason: str, detail: str, blame: Blame, *, after: float = 0.0) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail, self.blame, self.after = reason, detail, blame, after


class Response(NamedTuple):
    """What came back by HTTP."""

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


def check_status(response: Response, base: str) -> None:
    """Nothing for 200.

    Raises:
        Fault: another attempt or another prompt may fare better.
        EngineError: none would; the address or the key is wrong.
    """
    status = response.status
    if status == 200:
        return
    said = f"{status}: {one_line(response.body)}"
    if status in _REFUSED:
        raise Fault("request_refused", said, Blame.PROMPT)
    if status == 429:
        raise Fault("rate_limited", said, Blame.LOAD, after=_seconds(response.retry_after))
    if status in _BUSY or (status >= 500 and status not in _NEVER):
        raise Fault("server_error", said, Blame.SERVER, after=_seconds(response.retry_after))
    if 300 <= status < 400:
        found = f"{base} sends requests on to '{response.location}'"
        raise EngineError(found, "set base_url to where the server is")
    if status in (401, 403):
        raise EngineError(f"{base} answers {said}", "is the key right? see api_key_env")
    raise EngineError(f"{base} answers {said}", "is base_url right?")


def no_such(model: str, url: str, models: Response, elsewhere: str) -> EngineError:
    """What to say where posting to `url` gives 404.

    Args:
        model: asked for.
        url: posted to.
        models: what `/v1/models` gives.
        elsewhere: what to try if the model is among them.
    """
    try:
        known = [entry.id for entry in _Models.model_validate_json(models.body).data]
    except ValidationError:
        known = []
    if not known:
        return EngineError(f"{url} does not exist", "is base_url right? it mostly ends in /v1")
    if model not in known:
        return EngineError(f"the server has no model '{model}'", f"it has {', '.join(known[:9])}")
    return EngineError(f"the server has the model '{model}' but no {url}", elsewhere)


def one_line(body: bytes) -> str:
    """The beginning of what was said: the message within an error in JSON, or the bare text."""
    try:
        said = _Error.model_validate_json(body).error
        text = said if isinstance(said, str) else said.message
    except ValidationError:
        text = body[:300].decode(errors="replace")
    return " ".join(text.split())[:300]


def _seconds(retry_after: str) -> float:
    """What a `Retry-After` header asks to wait: seconds or a date; 0 for anything else."""
    if re.fullmatch(r"\d{1,12}(\.\d+)?", retry_after):
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


class _Message(BaseModel):
    message: str


class _Error(BaseModel):
    error: _Message | str


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


def parsed(kind: type[Model], body: bytes) -> Model:
    """What a server answered, as that kind.

    Raises:
        Fault: it is something else.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        raise bad_response(f"{place}: {first['msg']}: {body[:80]!r}") from None


def check_not_refused(refusal: str | None, finish_reason: str | None) -> None:
    """Nothing for what was answered.

    Raises:
        Fault: the model refuses, or a content filter withholds the answer.
    """
    if refusal or finish_reason == "content_filter":
        raise Fault("content_refused", refusal or "the server's content filter", Blame.PROMPT)


def bad_response(detail: str) -> Fault:
    """What to raise where an answer is not what was asked for."""
    return Fault("bad_response", detail, Blame.ANSWER)
