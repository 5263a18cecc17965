"""Limits of requests and tokens per minute, over all addresses of a client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from pydantic import BaseModel, ValidationError

from ..logs import logger
from .options import ServerOptions

_log = logger(__name__)
_AT_ONCE_S = 1.0
"""So many seconds' worth of requests may pass at once, so that a late timer costs no request."""
_MINUTE_S = 60 + _AT_ONCE_S
"""What the limits apply to. The second more is what passes at once; and requests do not all take
equally long to arrive, so that the server's minute is not quite ours."""
_CHARACTERS_PER_TOKEN = 4
_ABSURD = 4
"""No request uses so many times what was estimated, even in a language with few letters a token."""


class ReportedUsage(BaseModel):
    """What a server reports to have used for a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class _UsageBody(BaseModel):
    usage: ReportedUsage | None = None


@dataclass(eq=False)
class Admission:
    """A request that may be sent.

    Attributes:
        at: when it was admitted, in seconds of the event loop.
        estimate: tokens that it uses at most.
        tokens: those that count for it, for a minute.
    """

    at: float = 0.0
    estimate: int = 0
    tokens: int = 0


class Rates:
    """Lets requests through no faster than the options allow, in the order in which they ask.

    Requests pass evenly. Of tokens, no more than the limit are in any minute: those that requests
    may use at most, until it is known what they have used. A request that may use more than the
    limit passes alone.

    Args:
        options: the limits.
    """

    def __init__(self, options: ServerOptions) -> None:
        requests, tokens = options.requests_per_minute, options.tokens_per_minute
        self._interval_s = _MINUTE_S / requests if requests else 0.0
        self._next_at = -inf  # when a request may pass, unless it was given back since
        self._most_tokens, self._tokens = tokens or inf, 0
        self._admitted = deque[Admission]()  # in the last minute; their tokens together are above
        self._turn, self._given_back = asyncio.Lock(), asyncio.Event()
        self._warned = set[str]()

    async def admit(self, body: Mapping[str, Any]) -> Admission:
        """Wait until a request may be sent, which it should be at once."""
        if not self._interval_s and self._most_tokens == inf:
            return Admission()
        time, estimate = asyncio.get_running_loop().time, estimated_tokens(body)
        async with self._turn:
            while (wait_s := self._wait_s(time(), estimate)) > 0:
                self._given_back.clear()
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._given_back.wait(), wait_s)
            admission = Admission(time(), estimate, estimate)
            self._next_at = max(self._next_at, admission.at - _AT_ONCE_S) + self._interval_s
            self._admitted.append(admission)
            self._tokens += estimate
        return admission

    def _wait_s(self, now: float, tokens: int) -> float:
        """How long a request has to wait at most; 0: it need not."""
        while self._admitted and self._admitted[0].at <= now - _MINUTE_S:
            self._count(self._admitted[0], 0)
            self._admitted.popleft().at = -inf
        wait_s = max(0.0, self._next_at - now)
        if self._tokens and self._tokens + tokens > self._most_tokens:
            wait_s = max(wait_s, self._admitted[0].at + _MINUTE_S - now)
        return wait_s

    def give_back(self, admission: Admission, *, sent: bool) -> None:
        """Count no tokens for a request that was not worked on.

        Args:
            admission: of the request.
            sent: whether it reached a server, so that it counts as a request.
        """
        self._count(admission, 0)
        # Its place is free, unless it took long to find that out: then others have passed since.
        if not sent and admission.at > asyncio.get_running_loop().time() - _AT_ONCE_S:
            self._next_at -= self._interval_s
            self._given_back.set()

    def correct(self, admission: Admission, body: bytes, base: str) -> None:
        """Take the usage that an answer reports instead of the estimate, if it can be true.

        Args:
            admission: of the request.
            body: of the answer.
            base: where it is from.
        """
        estimate = admission.estimate
        if self._most_tokens == inf or not estimate:  # A search has none.
            return
        try:
            usage = _UsageBody.model_validate_json(body).usage
        except ValidationError:
            self._warn(base, "usage that is not in numbers")
            return
        if usage is None:
            self._warn(base, "no usage")
            return
        used = usage.prompt_tokens + usage.completion_tokens
        least = min(usage.prompt_tokens, usage.completion_tokens)
        if least < 0 or not 0 < used <= _ABSURD * estimate:
            found = f"{usage.prompt_tokens} and {usage.completion_tokens} tokens used"
            self._warn(base, f"{found} where about {estimate} at most were expected")
            return
        self._count(admission, used)

    def _count(self, admission: Admission, tokens: int) -> None:
        """Count other tokens for a request, if its minute is not over."""
        if admission.at > -inf:
            self._tokens += tokens - admission.tokens
            admission.tokens = tokens
            self._given_back.set()

    def _warn(self, base: str, found: str) -> None:
        if base not in self._warned:
            self._warned.add(base)
            text = "%s reports %s: tokens_per_minute counts its requests by their longest response"
            _log.warning(text, base, found)


def estimated_tokens(body: Mapping[str, Any]) -> int:
    """Tokens that a request uses at most: those of its prompt, and of all responses.

    Where the prompt is text, four characters count as a token.

    >>> estimated_tokens({"prompt": [5, 6, 7], "n": 2, "max_tokens": 10})
    23
    """
    sampling = body.get("sampling_params", body)
    longest = sampling.get("max_tokens") or sampling.get("max_completion_tokens") or 0
    ids = body.get("token_ids") or body.get("prompt")
    if isinstance(ids, list):
        prompt = len(ids)
    else:
        texts = (message.get("content") or "" for message in body.get("messages") or ())
        prompt = -(-sum(len(str(text)) for text in texts) // _CHARACTERS_PER_TOKEN)
    return prompt + int(sampling.get("n", 1)) * int(longest)
