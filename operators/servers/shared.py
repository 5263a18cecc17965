"""Clients that all who ask the same server in the same event loop share.

They share its connections and one limit of concurrent requests.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from .client import OpenAIClient
from .options import DialectServer, ServerOptions


class SharedClient:
    """A client whose users wait for each other where the server would have too many requests.

    Attributes:
        client: open.
        slots: taken for the time of a request.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.client = OpenAIClient(options, options.concurrency)
        self.slots = asyncio.Semaphore(options.concurrency)


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ServerOptions, SharedClient]]
_open = WeakKeyDictionary()


async def shared_client(options: ServerOptions) -> SharedClient:
    """The client of this event loop for a server, which is opened if it is not open.

    Raises:
        EngineError: the environment variable named for the key is not set.
    """
    own = _open.setdefault(asyncio.get_running_loop(), {})
    options = _plain(options)
    if options not in own:
        # Kept before it is open, which takes no time: nobody else can open another meanwhile.
        found = own[options] = SharedClient(options)
        await found.client.__aenter__()
    return own[options]


async def close_shared_client(options: ServerOptions) -> None:
    """Close the client of this event loop for a server, if it is open."""
    found = _open.get(asyncio.get_running_loop(), {}).pop(_plain(options), None)
    if found:
        await found.client.__aexit__()


def _plain(options: ServerOptions) -> ServerOptions:
    """The server alone: its options without those of whoever asks it, so that they can be a key."""
    kind = DialectServer if isinstance(options, DialectServer) else ServerOptions
    return kind.model_validate({name: getattr(options, name) for name in kind.model_fields})
