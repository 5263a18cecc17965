"""Limits of requests and tokens per minute, over all addresses of a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from .options import ServerOptions

_log = logging.getLogger(__name__)
_CHARACTERS_PER_TOKEN = 4
_ABSURD = 4
"""No request uses so many times what was estimated, even in a language with few letters a token."""


class ReportedUsage(BaseModel):
    """What a server reports to have used for a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class _UsageBody(BaseModel):
    usage: ReportedUsage | None = None


class Rates:
    """Lets requests through no faster than the options allow.

    Tokens are estimated before a request and corrected after it: what a request used less counts
    for those after it.

    Args:
        options: the limits.
    """

    def __init__(self, options: ServerOptions) -> None:
        from aiolimiter import AsyncLimiter

        requests, tokens = options.requests_per_minute, options.tokens_per_minute
        # A limit below one a minute is one in a longer time.
        self._requests = requests and AsyncLimiter(max(1.0, requests), 60 * max(1.0, 1 / requests))
        self._tokens = tokens and AsyncLimiter(tokens, 60)
        self._credit = 0.0  # tokens that were estimated and not used; below 0: the other way round
        self._one = asyncio.Lock()
        self._warned = set[str]()

    async def admit(self, body: Mapping[str, Any]) -> int:
        """Wait until a request may be sent; the tokens that it is taken to use."""
        if self._requests:
            await self._requests.acquire()
        if not self._tokens:
            return 0
        estimate = estimated_tokens(body)
        async with self._one:  # Whoever is next profits from what others have not used.
            amount = min(max(0.0, estimate - self._credit), self._tokens.max_rate)
            self._credit -= estimate - amount
            await self._tokens.acquire(amount)
        return estimate

    def correct(self, estimate: int, body: bytes, base: str) -> None:
        """Take the usage that an answer reports instead of the estimate, if it can be true.

        Args:
            estimate: what `admit` returned.
            body: of the answer.
            base: where it is from.
        """
        if not self._tokens:
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
        self._credit += estimate - used

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
