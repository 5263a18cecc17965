"""Servers with OpenAI's API in virtual time and without sockets: hours pass at once."""

import asyncio
import json
from collections import Counter
from typing import NamedTuple

import aiohttp
from virtual_time import run_in_virtual_time

from rejuice.operators.servers.client import OpenAIClient, Request
from rejuice.operators.servers.concurrency import run_concurrently
from rejuice.operators.servers.options import ServerOptions
from rejuice.operators.servers.wire import AttemptError, HttpResponse, RetryClass

A, B, C = "http://a/v1", "http://b/v1", "http://c/v1"


class Fault(NamedTuple):
    """What a server does from one time to another, in seconds from the beginning.

    `down`, `drops` (packets), `loads`, `404` (first, and then it loads), `500`, `429`, `hangs` or
    `garbage`; a number: it takes so long.
    """

    begin: float
    end: float
    kind: str | float


class Simulated(OpenAIClient):
    """A client whose servers are simulated.

    Attributes:
        sent: of each request, when it was sent, where to and what for.
        answered: whole answers that were received, by prompt.
        probes: when each address was probed.
    """

    def __init__(self, options, faults, usage=None, answer_s=1.0):
        self.loop = asyncio.get_running_loop()
        super().__init__(options, clock=self.loop.time)
        self.faults, self.usage, self.answer_s = faults, usage, answer_s
        self.begin = self.loop.time()
        self.sent, self.answered, self.probes = [], Counter(), []

    @property
    def now(self):
        return self.loop.time() - self.begin

    def fault(self, base):
        return next((f.kind for f in self.faults.get(base, ()) if f.begin <= self.now < f.end), "")

    async def _exchange_http(self, method, url, body, timeout_s):
        base = url[: url.index("/v1") + 3]
        kind = self.fault(base)
        if method == "GET":
            self.probes.append((self.now, base))
        else:
            self.sent.append((self.now, base, body["seed"]))
        await asyncio.sleep(0.001)
        if kind == "down":
            raise aiohttp.ClientConnectorError(_KEY, ConnectionRefusedError(111, "refused"))
        if kind == "drops":
            await asyncio.sleep(min(30, timeout_s))
            raise aiohttp.ConnectionTimeoutError if timeout_s > 30 else asyncio.TimeoutError
        if kind == "404" and method == "POST":
            return HttpResponse(404, b"")
        if kind in ("loads", "404"):
            return HttpResponse(503, b"Loading model")
        if method == "GET":
            return HttpResponse(200, b"{}")
        if kind in ("429", "500"):
            return HttpResponse(int(kind), kind.encode(), "20" if kind == "429" else "")
        if kind == "hangs":
            await asyncio.sleep(timeout_s)
            raise asyncio.TimeoutError
        if kind == "garbage":
            return HttpResponse(200, b"<html>")
        await asyncio.sleep(kind or self.answer_s)
        if self.fault(base) == "down":
            raise aiohttp.ServerDisconnectedError
        usage = {} if self.usage is None else {"usage": self.usage}
        return HttpResponse(200, json.dumps({"seed": body["seed"], **usage}).encode())

    async def get(self, seed, **body):
        def read(text):
            if text == b"<html>":
                raise AttemptError("bad_response", "a page", RetryClass.BAD_ANSWER)
            found = json.loads(text)["seed"]  # That of the prompt, or of the probe.
            self.answered[found] += 1
            return found

        request, probe = (
            Request("{}/completions".format, {"model": "m", "seed": each, **body}, read)
            for each in (seed, -1)
        )
        return await self.answer(request, probe, Counter())


_KEY = aiohttp.client_reqrep.ConnectionKey("host", 80, False, True, None, None, None)


def run(faults, count=60, *, addresses=(A, B, C), usage=None, answer_s=1.0, body=None, **fields):
    """The simulated client after all its requests, and their results."""
    found = {}

    async def all_of_them():
        options = ServerOptions(base_url=addresses, **{"concurrency": 6, **fields})
        async with Simulated(options, faults, usage, answer_s) as client:

            async def work(seed):
                assert seed not in found
                try:
                    found[seed] = await client.get(seed, **(body or {}))
                except AttemptError as error:
                    found[seed] = error

            await run_concurrently(work, range(count), options.concurrency)
            return client

    client = run_in_virtual_time(all_of_them())
    return client, found


def all_once(client, found, count=60):
    return (
        found
        == {k: k for k in range(count)}
        == {k: k for k, n in client.answered.items() if n == 1}
    )


def places(client, begin=0.0, end=float("inf")):
    return Counter(base for at, base, _ in client.sent if begin <= at < end)
