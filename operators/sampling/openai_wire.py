"""What goes to an OpenAI-compatible server and what comes back, as JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, FiniteFloat, ValidationError

from ..errors import EngineError
from .protocol import Group, Prompt, Sample, Settings
from .tokenizer import NO_KWARGS

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


def request_body(
    api: Api,
    model: str,
    prompt: Prompt,
    ids: list[int] | None,
    settings: Settings,
    exact: bool,
    chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
) -> dict[str, Any]:
    """The JSON of one request for all n responses of a prompt.

    Args:
        api: which endpoint it goes to.
        model: name of the model on the server.
        prompt: what to answer.
        ids: token ids of the prompt; None for `chat`.
        settings: how to sample.
        exact: ask for token ids and log-probabilities, and switch off whatever the server's
            defaults would do to the distribution (Qwen's own `generation_config.json` sets
            top_k 20 and a repetition penalty). Not every server knows these fields.
        chat_template_kwargs: what the server tells its chat template beside the chat; `chat` only.
    """
    sampling: dict[str, Any] = {**settings._asdict(), "seed": prompt.seed}
    if exact:
        sampling |= {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        sampling["logprobs"] = True if api == "chat" else 0
    extra: dict[str, Any] = {"return_token_ids": True} if exact else {}
    if api == "generate":
        asked = {"token_ids": ids, "sampling_params": sampling, "output_mode": "text"}
        return {"model": model, **asked, **extra}
    if api == "chat":
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        if chat_template_kwargs:
            extra["chat_template_kwargs"] = dict(chat_template_kwargs)
        return {"model": model, "messages": messages, **sampling, **extra}
    return {"model": model, "prompt": ids, **sampling, **extra}


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


class _LogProb(BaseModel):
    logprob: FiniteFloat


class _LogProbs(BaseModel):
    """`token_logprobs` for completions, `content` for the other two."""

    token_logprobs: list[FiniteFloat] | None = None
    content: list[_LogProb] | None = None


class _Said(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Span(BaseModel):
    version: str


class _Choice(BaseModel):
    index: int
    finish_reason: str | None = None
    text: str | None = None
    message: _Said = _Said()
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _LogProbs | None = None
    weight_versions: list[_Span] | None = None


class _Answer(BaseModel):
    choices: list[_Choice]
    prompt_token_ids: list[int] | None = None


def read_group(
    body: bytes,
    prompt: Prompt,
    ids: list[int] | None,
    n: int,
    *,
    policy: str,
    version: int,
    exact: bool,
) -> Group:
    """The group that the server answered with.

    Args:
        body: of the response.
        prompt: what was answered.
        ids: its token ids as they were sent, None if it was sent as text.
        n: responses asked for.
        policy: its name.
        version: of the weights, where the server states none. Where they changed while the
            group was sampled, and that is not `exact`, it has the oldest.
        exact: token ids and log-probabilities must be there, and all of one version.

    Raises:
        Fault: it is not the n responses asked for, or not of one version.
        EngineError: the server cannot give what `exact` needs.
    """
    answer = parsed(_Answer, body)
    choices = sorted(answer.choices, key=lambda choice: choice.index)
    _check_whole(choices, n)
    seen = answer.prompt_token_ids or choices[0].prompt_token_ids
    if exact:
        _check_exact(choices, seen, ids)
    prompt_ids = seen if ids is None else ids
    labels = {span.version for choice in choices for span in choice.weight_versions or ()}
    versions = {_number(label, version) for label in labels} or {version}
    oldest, newest = min(versions), max(versions)
    if exact and oldest != newest:
        raise _bad(f"weights changed from {oldest} to {newest} while it was sampled")
    return Group(
        policy=policy,
        version=oldest,
        seed=prompt.seed,
        prompt_token_ids=None if prompt_ids is None else tuple(prompt_ids),
        samples=tuple(_sample(choice) for choice in choices),
    )


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
        raise _bad(f"{place}: {first['msg']}: {body[:80]!r}") from None


def _check_whole(choices: list[_Choice], n: int) -> None:
    for choice in choices:
        check_not_refused(choice.message.refusal, choice.finish_reason)
    if len(choices) < n:
        raise Fault("too_few_samples", f"{len(choices)} of {n} responses", Blame.ANSWER)
    if [choice.index for choice in choices] != list(range(n)):
        raise _bad(f"choices {[choice.index for choice in choices]}, not 0 to {n - 1}")


def check_not_refused(refusal: str | None, finish_reason: str | None) -> None:
    """Nothing for what was answered.

    Raises:
        Fault: the model refuses, or a content filter withholds the answer.
    """
    if refusal or finish_reason == "content_filter":
        raise Fault("content_refused", refusal or "the server's content filter", Blame.PROMPT)


def _check_exact(choices: list[_Choice], seen: list[int] | None, ids: list[int] | None) -> None:
    lacks = [
        name
        for name, missing in {
            "prompt token ids": ids is None and seen is None,
            "token ids": any(choice.token_ids is None for choice in choices),
            "log-probabilities": any(_logprobs(choice) is None for choice in choices),
        }.items()
        if missing
    ]
    if lacks:
        raise EngineError(
            f"the server gives no {' and no '.join(lacks)}, which on-policy training needs",
            "sample from one that does, such as vLLM",
        )
    if ids is not None and seen is not None and seen != ids:
        raise EngineError("the server samples from other prompt token ids than it was sent")


def _sample(choice: _Choice) -> Sample:
    text = choice.message.content if choice.text is None else choice.text
    if text is None:
        raise _bad(f"choice {choice.index} has no text")
    if choice.finish_reason not in ("stop", "length"):
        raise _bad(f"choice {choice.index} finished with {choice.finish_reason!r}")
    ids = None if choice.token_ids is None else tuple(choice.token_ids)
    logprobs = _logprobs(choice)
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        raise _bad(f"choice {choice.index} has {len(ids)} token ids, {len(logprobs)} logprobs")
    return Sample(text, ids, logprobs, choice.finish_reason)


def _logprobs(choice: _Choice) -> tuple[float, ...] | None:
    if choice.logprobs is None:
        return None
    if choice.logprobs.token_logprobs is not None:
        return tuple(choice.logprobs.token_logprobs)
    content = choice.logprobs.content
    return None if content is None else tuple(token.logprob for token in content)


def _number(label: str, version: int) -> int:
    """The version that a label of the server says; vLLM's own first label says none."""
    if label == "default":
        return version
    if not label.isdecimal():
        raise EngineError(f"the server calls its weights '{label}'", "label them by a number")
    return int(label)


def _bad(detail: str) -> Fault:
    return Fault("bad_response", detail, Blame.ANSWER)
