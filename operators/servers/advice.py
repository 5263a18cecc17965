"""What to set where a server refuses a request, by what it says and what it was sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .dialect import Dialect
from .wire import ServerRefusal, in_server, refusal_in

_UNKNOWN = re.compile(
    r"unsupported|not (?:been )?(?:supported|implemented|permitted|allowed|recogni[sz]ed)|unknown|"
    r"unrecogni[sz]ed|unexpected|(?:does|do) not (?:support|accept|exist)|extra (?:inputs|fields)|"
    r"no such|not a valid|disallowed|use '?max_",
    re.IGNORECASE,
)
"""How servers say that they do not know a field, or never take it."""
_ABOUT_N = re.compile(
    r"(?<!\w)(?:['\"`]n['\"`]|n(?=\s*(?:[=<>]|must|should|has to|can ?not|can only|is |value))|"
    r"(?:parameter|argument|field|property):? n|n_cmpl)(?!\w)|"
    r"best_of|(?:completion|multiple|one|1) (?:choice|completion|sample)s?",
    re.IGNORECASE,
)
_ABOUT_FORMAT = ("response_format", "json_schema", "json_object", "structured output", "grammar")
_OTHER_LIMIT = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
_FOR_TRAINING = ("return_token_ids", "logprobs", "top_k", "min_p", "repetition_penalty")


def advice(body: bytes, sent: Mapping[str, Any], dialect: Dialect, place: str = "") -> str:
    """What to set so that the server may take a request that it has refused.

    Args:
        body: of the refusal.
        sent: the refused request.
        dialect: by which it was written.
        place: see `in_server`.

    Returns:
        An instruction with the field; empty if it is unknown, or the prompt that is refused.

    Example:
        >>> body = b'{"error": {"message": "n must be 1"}}'
        >>> advice(body, {"n": 4}, Dialect(), "openai")
        'set openai: {server: {one_sample_per_request: true}}'
    """
    fields = {**sent, **sent.get("sampling_params", {})}
    for name, value in _candidates(refusal_in(body), fields, dialect):
        text = f"{name}: {value}"
        return f"set {in_server(place, text) if name in Dialect.model_fields else text}"
    return ""


def _candidates(
    refusal: ServerRefusal, sent: Mapping[str, Any], dialect: Dialect
) -> Iterator[tuple[str, str]]:
    """Fields that may help, with their values; the most probable one first."""
    is_unknown = bool(_UNKNOWN.search(refusal.message))
    for limit, other in _OTHER_LIMIT.items():
        # One that is too long for the prompt is named as well, often by both names.
        if limit in sent and is_unknown and _is_about(refusal, limit):
            yield "token_limit", other
    if sent.get("n", 1) != 1 and _is_about(refusal, "n"):
        yield "one_sample_per_request", "true"
    seed = sent.get("seed")
    if seed is not None and _is_about(refusal, "seed", str(seed)):
        is_refused = is_unknown and str(seed) not in refusal.message
        yield "seed", "none" if is_refused or dialect.seed == "32_bit" else "32_bit"
    if "response_format" in sent and _is_about(refusal, *_ABOUT_FORMAT):
        yield "answer_format", "text"
    for name in ("temperature", "top_p"):
        if name in sent and _is_about(refusal, name):
            yield ("defaults", "left_out") if sent[name] == 1 else (name, "1")
    for name in _FOR_TRAINING:
        if name in sent and is_unknown and _is_about(refusal, name):
            yield "on_policy", "false"
    if "chat_template_kwargs" in sent and is_unknown and _is_about(refusal, "chat_template_kwargs"):
        yield "chat_template_kwargs", "{}"


def _is_about(refusal: ServerRefusal, *words: str) -> bool:
    """Whether it is about one of these; where the server names a field, about no other one."""
    if refusal.param:
        return refusal.param.rpartition(".")[2] in words
    if words == ("n",):
        return bool(_ABOUT_N.search(refusal.message))
    named = "|".join(map(re.escape, words))
    return bool(re.search(rf"(?<!\w)(?:{named})(?!\w)", refusal.message, re.IGNORECASE))
