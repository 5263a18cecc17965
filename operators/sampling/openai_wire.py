"""The request for the samples of a prompt, and the samples in a server's answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, FiniteFloat

from ..errors import EngineError
from ..openai.wire import (
    Api,
    AttemptError,
    ChatMessage,
    LogProb,
    RetryClass,
    bad_response,
    check_not_refused,
    parse_body,
)
from .protocol import Group, Prompt, Sample, Settings
from .tokenizer import NO_KWARGS

_LARGEST_ID = (1 << 31) - 1
"""No vocabulary is larger, and tables keep token ids in 32 bits."""


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
        api: the endpoint of the server.
        model: name of the model on the server.
        prompt: the prompt to answer.
        ids: token ids of the prompt; None for `chat`.
        settings: how to sample.
        exact: request token ids and log-probabilities, and switch off defaults of the server
            that change the distribution (Qwen's own `generation_config.json` sets top_k 20 and
            a repetition penalty). Not every server supports these fields.
        chat_template_kwargs: further arguments of the server's chat template; `chat` only.
    """
    sampling: dict[str, Any] = {**settings._asdict(), "seed": prompt.seed}
    if exact:
        sampling |= {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        sampling["logprobs"] = True if api == "chat" else 0
    extra: dict[str, Any] = {"return_token_ids": True} if exact else {}
    if api == "generate":
        body = {"token_ids": ids, "sampling_params": sampling, "output_mode": "text"}
        return {"model": model, **body, **extra}
    if api == "chat":
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        if chat_template_kwargs:
            extra["chat_template_kwargs"] = dict(chat_template_kwargs)
        return {"model": model, "messages": messages, **sampling, **extra}
    return {"model": model, "prompt": ids, **sampling, **extra}


_ROUNDED_LOGPROB = 0.01
"""What a log-probability of 0 may become in low precision."""


class _SampleLogProbs(BaseModel):
    """`token_logprobs` of `completions`, `content` of the other two APIs."""

    token_logprobs: list[FiniteFloat] | None = None
    content: list[LogProb] | None = None


class _WeightSpan(BaseModel):
    version: str


class _SampleChoice(BaseModel):
    index: int
    finish_reason: str | None = None
    text: str | None = None
    message: ChatMessage = ChatMessage()
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _SampleLogProbs | None = None
    weight_versions: list[_WeightSpan] | None = None


class _SampleCompletion(BaseModel):
    choices: list[_SampleChoice]
    prompt_token_ids: list[int] | None = None


def read_group(
    body: bytes,
    prompt: Prompt,
    ids: list[int] | None,
    settings: Settings,
    *,
    policy: str,
    version: int,
    exact: bool,
) -> Group:
    """The group in the server's answer.

    Args:
        body: of the HTTP response.
        prompt: the prompt that was answered.
        ids: its token ids as they were sent, None if it was sent as text.
        settings: how many responses were requested, and how long they may be.
        policy: its name.
        version: of the weights, if the server reports none. If the weights changed while the group
            was sampled, and `exact` is false, the group gets the oldest version.
        exact: require token ids and log-probabilities, all of one weight version.

    Raises:
        AttemptError: the answer has other than n responses, or responses of several versions, or
            tokens that cannot be those of its responses.
        EngineError: the server cannot give what `exact` needs.
    """
    answer = parse_body(_SampleCompletion, body)
    choices = sorted(answer.choices, key=lambda choice: choice.index)
    _check_whole(choices, settings.n)
    seen = answer.prompt_token_ids or choices[0].prompt_token_ids
    if exact:
        _check_exact(choices, seen, ids)
    prompt_ids = seen if ids is None else ids
    labels = {span.version for choice in choices for span in choice.weight_versions or ()}
    versions = {_number(label, version) for label in labels} or {version}
    oldest, newest = min(versions), max(versions)
    if exact and oldest != newest:
        raise bad_response(f"weights changed from {oldest} to {newest} while it was sampled")
    return Group(
        policy=policy,
        version=oldest,
        seed=prompt.seed,
        prompt_token_ids=None if prompt_ids is None else tuple(prompt_ids),
        samples=tuple(_sample(choice, settings.max_tokens) for choice in choices),
    )


def _check_whole(choices: list[_SampleChoice], n: int) -> None:
    for choice in choices:
        check_not_refused(choice.message.refusal, choice.finish_reason)
    if len(choices) < n:
        detail = f"{len(choices)} of {n} responses"
        raise AttemptError("too_few_samples", detail, RetryClass.BAD_ANSWER)
    if [choice.index for choice in choices] != list(range(n)):
        raise bad_response(f"choices {[choice.index for choice in choices]}, not 0 to {n - 1}")


def _check_exact(
    choices: list[_SampleChoice], seen: list[int] | None, ids: list[int] | None
) -> None:
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
            "sample from one that does, such as vLLM, or set on_policy: false",
        )
    if ids is not None and seen is not None and seen != ids:
        raise EngineError("the server samples from other prompt token ids than those it was sent")


def _sample(choice: _SampleChoice, max_tokens: int) -> Sample:
    text = choice.message.content if choice.text is None else choice.text
    if text is None:
        raise bad_response(f"choice {choice.index} has no text")
    if choice.finish_reason not in ("stop", "length"):
        raise bad_response(f"choice {choice.index} finished with {choice.finish_reason!r}")
    ids = None if choice.token_ids is None else tuple(choice.token_ids)
    logprobs = _logprobs(choice)
    fault = _token_fault(text, ids, logprobs, max_tokens)
    if fault:
        raise bad_response(f"choice {choice.index} has {fault}")
    return Sample(text, ids, logprobs, choice.finish_reason)


def _token_fault(
    text: str, ids: tuple[int, ...] | None, logprobs: tuple[float, ...] | None, max_tokens: int
) -> str:
    """Why a response cannot have these tokens; empty: it can.

    What a server says of tokens is trained on and counted, and nothing later would find it wrong.
    """
    if logprobs and max(logprobs) > _ROUNDED_LOGPROB:
        return f"a log-probability of {max(logprobs)}, above 0"
    if ids is None:
        return ""
    if logprobs is not None and len(ids) != len(logprobs):
        return f"{len(ids)} token ids, {len(logprobs)} logprobs"
    if len(ids) > max_tokens:
        return f"{len(ids)} token ids, more than max_tokens {max_tokens}"
    for number in ids:
        if not 0 <= number <= _LARGEST_ID:
            return f"token id {number}"
    return "text, but no token ids" if text and not ids else ""


def _logprobs(choice: _SampleChoice) -> tuple[float, ...] | None:
    if choice.logprobs is None:
        return None
    if choice.logprobs.token_logprobs is not None:
        return tuple(choice.logprobs.token_logprobs)
    content = choice.logprobs.content
    return None if content is None else tuple(token.logprob for token in content)


def _number(label: str, version: int) -> int:
    """The version in a weight label of the server; vLLM's initial label has none."""
    if label == "default":
        return version
    if not label.isdecimal():
        raise EngineError(f"the server calls its weights '{label}'", "label them with a number")
    return int(label)
