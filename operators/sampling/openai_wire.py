"""The request for the samples of a prompt, and the samples in what a server answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, FiniteFloat

from ..errors import EngineError
from ..openai.wire import Api, Blame, Fault, bad_response, check_not_refused, parsed
from .protocol import Group, Prompt, Sample, Settings
from .tokenizer import NO_KWARGS


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
        raise bad_response(f"weights changed from {oldest} to {newest} while it was sampled")
    return Group(
        policy=policy,
        version=oldest,
        seed=prompt.seed,
        prompt_token_ids=None if prompt_ids is None else tuple(prompt_ids),
        samples=tuple(_sample(choice) for choice in choices),
    )


def _check_whole(choices: list[_Choice], n: int) -> None:
    for choice in choices:
        check_not_refused(choice.message.refusal, choice.finish_reason)
    if len(choices) < n:
        raise Fault("too_few_samples", f"{len(choices)} of {n} responses", Blame.ANSWER)
    if [choice.index for choice in choices] != list(range(n)):
        raise bad_response(f"choices {[choice.index for choice in choices]}, not 0 to {n - 1}")


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
        raise bad_response(f"choice {choice.index} has no text")
    if choice.finish_reason not in ("stop", "length"):
        raise bad_response(f"choice {choice.index} finished with {choice.finish_reason!r}")
    ids = None if choice.token_ids is None else tuple(choice.token_ids)
    logprobs = _logprobs(choice)
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        raise bad_response(
            f"choice {choice.index} has {len(ids)} token ids, {len(logprobs)} logprobs"
        )
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
