"""A FakeServer in the event loop of those who ask it, in virtual time."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from fake_server import FakeServer


class VirtualServer(FakeServer):
    """Serves by a socket of Unix: what one end writes, the other one can read at once, so that
    virtual time passes only where both wait. To be used by `async with`, in `run_in_virtual_time`.

    It also answers GET, at `/v1/search`; a response is known by `seed` and `n` as with POST.

    Attributes:
        sent_at: seconds from its start to each request, by seed; to the tenth.
    """

    def start(self) -> None:
        """It is started by `async with`."""

    async def __aenter__(self) -> VirtualServer:
        self._folder = tempfile.TemporaryDirectory()
        self.sent_at: defaultdict[int, list[float]] = defaultdict(list)
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.time()
        await self.start_again()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_away()
        self._folder.cleanup()

    async def start_again(self) -> None:
        """Listen, after `go_away`."""
        await self._start()

    async def go_away(self) -> None:
        """As `kill`."""
        await self._kill()

    @property
    def url(self) -> str:
        return "http://server/v1"

    @property
    def now(self) -> float:
        """Seconds since its start, to the tenth."""
        return round(self._loop.time() - self._begin, 1)

    @property
    def path(self) -> str:
        """That of its socket."""
        return str(Path(self._folder.name) / "socket")

    def connector(self, limit: int) -> aiohttp.UnixConnector:
        """Instead of a client's `aiohttp.TCPConnector`."""
        return aiohttp.UnixConnector(self.path, limit=limit)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        super().add_routes(router)
        router.add_get("/v1/search", self._post)

    async def _listen(self, runner: web.AppRunner) -> None:
        await web.UnixSite(runner, self.path).start()

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        seed, n = map(int, super().seed_and_n(body))
        self.sent_at[seed].append(self.now)
        return seed, n

    def answer(
        self, path: str, body: dict[str, Any], seed: int, attempt: int, n: int
    ) -> dict[str, Any]:
        if path == "/v1/search":
            path = "/v1/chat/completions"
        return super().answer(path, body, seed, attempt, n)
