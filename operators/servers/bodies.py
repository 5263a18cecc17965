"""Bodies of answers: each of them, and all that are being read, are bounded."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp

from .wire import bad_response

LARGEST = 1 << 28
"""Bytes of one answer: 64 responses of 32,768 tokens with their log-probabilities."""
_SMALLEST_SHARE = 1 << 18


class Bodies:
    """Reads the answers of one client.

    Each connection has a share of `LARGEST`, and only one answer at a time may be larger than its
    share: the others wait, and what is sent to them stays with the server.

    Args:
        connections: most answers at a time.
    """

    def __init__(self, connections: int) -> None:
        self._share = max(_SMALLEST_SHARE, LARGEST // connections)
        self._large = asyncio.Lock()

    async def read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body of an answer.

        Raises:
            AttemptError: it is too large.
        """
        parts, size, is_large = list[bytes](), 0, False
        async with AsyncExitStack() as until_end:
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > LARGEST:
                    raise bad_response(f"an answer of more than {LARGEST >> 20} MiB")
                if size > self._share and not is_large:
                    await until_end.enter_async_context(self._large)
                    is_large = True
            return b"".join(parts)
