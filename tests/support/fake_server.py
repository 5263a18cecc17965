"""An OpenAI-compatible server that answers at once, or fails as a script tells it to."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

from aiohttp import web

from rejuice.operators.servers.concurrency import LoopThread


class Trouble(Enum):
    """What may go wrong with one request."""

    RATE_LIMIT = "429"
    RATE_LIMIT_AFTER = "429 with Retry-After"
    ERROR_500 = "500"
    ERROR_503 = "503"
    RESET = "connection reset before the answer"
    RESET_MID_BODY = "connection reset in the middle of the answer"
    SLOW = "no answer before the client gives up"
    WRONG_JSON = "JSON of another shape"
    CUT_JSON = "half of the JSON"
    EMPTY = "no choices"
    FEWER = "one choice too few"
    TWICE = "one choice twice, another not at all"
    ABORTED = "a choice that was not finished"
    MISCOUNTED = "a log-probability more than it has token ids"
    OVERLONG = "more tokens than were asked for"
    NO_TOKEN = "a token id that no vocabulary has"
    UNLIKELY = "a log-probability above 0"
    UNCOUNTED = "text of no tokens"
    HTML = "the page of a proxy instead of an answer"
    TOO_MUCH = "an answer without end"
    ERROR_IN_200 = "an error in an answer with status 200"
    STREAM = "a stream of events instead of an answer"
    REDIRECT = "302"
    NO_KEY = "401"
    NOT_FOUND = "404"
    REFUSED = "400"
    FILTERED = "a choice withheld by the content filter"
    NEW_WEIGHTS = "weights are replaced while it samples: the last choice ends with version 4"
    RESTART = "the server is killed and comes back on the same port"


SLOW_STATUS = 598


class FakeServer:
    """Serves on a free port of the loopback, in a thread of its own.

    A response tells where it comes from: its text is `seed:attempt:index`, its token ids are
    (attempt, index, 7) and its log-probabilities (-0.5, -index, -0.25).

    Args:
        script: seed of a prompt -> what its requests meet, one after the other.
        always: what all requests meet that have no script any more; None: all is well.
        retry_after: value of that header.
        think_s: time that an answer takes.
        crowd: requests that must have been under way at once before it answers any.
        token_ids: whether it gives token ids and log-probabilities.
        version: label of its weights, reported by `/inference/v1/generate`.

    Attributes:
        attempts: requests by seed.
        answered: whole and good answers that were written, by seed.
        taken: seeds whose answers a client is known to have: the connection brought another request.
        bodies: JSON of each request.
        keys: values of the Authorization header that were seen.
        peak: most requests that were under way at a time.
        script, always, token_ids, version: as above; may be changed at any time.
        slow_at_once: whether an answer that would be late is a status that says so, see the fixture
            `slow_at_once`.
    """

    slow_at_once = False

    def __init__(
        self,
        script: Mapping[int, Sequence[Trouble]] | None = None,
        *,
        always: Trouble | None = None,
        retry_after: str = "0.05",
        think_s: float = 0.0,
        crowd: int = 0,
        token_ids: bool = True,
        version: str = "default",
    ) -> None:
        self.script: dict[int, list[Trouble]] = {k: list(v) for k, v in (script or {}).items()}
        self.always, self.retry_after, self.think_s = always, retry_after, think_s
        self.token_ids, self.version, self._crowd = token_ids, version, crowd
        self.attempts: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        self.taken: set[int] = set()
        self._last: dict[object, int] = {}
        self.bodies: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        self.keys: set[str | None] = set()
        self.peak = self._under_way = 0
        self._thread: LoopThread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0
        self.start()

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._thread is not None:
            self._thread.close()

    @property
    def url(self) -> str:
        """Base address, up to and with /v1."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def under_way(self) -> int:
        """How many requests it works on."""
        return self._under_way

    @property
    def connections(self) -> int:
        """How many are open."""
        server = self._runner.server
        return 0 if server is None else len(server.connections)

    def start(self) -> None:
        """Listen; again on the same port after `kill`."""
        self._thread = self._thread or LoopThread("fake server")
        self._thread.run(self._start())

    def kill(self) -> None:
        """Drop all connections and stop listening, as a killed process does."""
        if self._thread is not None:
            self._thread.run(self._kill())

    async def _start(self) -> None:
        app = web.Application()
        self.add_routes(app.router)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        await self._listen(self._runner)

    async def _listen(self, runner: web.AppRunner) -> None:
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        self._port = runner.addresses[0][1]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """What it serves."""
        router.add_get("/v1/models", self._models)
        for path in ("/v1/completions", "/v1/chat/completions", "/inference/v1/generate"):
            router.add_post(path, self._post)

    async def _kill(self) -> None:
        for site in list(self._runner.sites):
            await site.stop()
        server = self._runner.server
        for connection in server.connections if server else ():
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()

    async def _restart(self) -> None:
        await self._kill()
        await asyncio.sleep(0.05)
        await self._start()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}, {"id": "other"}]})

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" else dict(request.query)
        seed, n = self.seed_and_n(body)
        if request.transport in self._last:
            self.taken.add(self._last.pop(request.transport))
        with self._counted():
            await asyncio.sleep(self.think_s)
            while self.peak < self._crowd:
                await asyncio.sleep(0.001)
            attempt = self.attempts[seed]
            self.attempts[seed] += 1
            self.keys.add(request.headers.get("Authorization"))
            self.bodies[seed].append(body)
            script = self.script.get(seed, [])
            trouble = script[attempt] if attempt < len(script) else self.always
        refused = self.refusal(request.path, body)
        if refused is not None:
            status, error = refused
            return web.json_response(error, status=status)
        answer = self.answer(request.path, body, seed, attempt, n)
        if trouble is not None:
            return await self._spoil(trouble, request, answer)
        response = web.json_response(answer)
        await response.prepare(request)
        # Before the last await: a client that has all of it may go away, which cancels this.
        self.answered[seed] += 1
        self._last[request.transport] = seed
        await response.write_eof()
        return response

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        """What a request is known by here, and how many responses it wants."""
        sampling = body.get("sampling_params", body)
        return sampling["seed"], sampling["n"]

    @contextmanager
    def _counted(self) -> Iterator[None]:
        # Left before a byte goes back, so that the client cannot have begun another by then.
        self._under_way += 1
        self.peak = max(self.peak, self._under_way)
        try:
            yield
        finally:
            self._under_way -= 1

    def refusal(self, path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        """The status and JSON by which it refuses a request, whatever the script says."""
        return None

    def answer(
        self, path: str, body: dict[str, Any], seed: int, attempt: int, n: int
    ) -> dict[str, Any]:
        """The JSON of a good answer."""
        choices = []
        for index in range(n):
            text, logprobs = f"{seed}:{attempt}:{index}", [-0.5, -float(index), -0.25]
            choice: dict[str, Any] = {"index": index, "finish_reason": "stop"}
            choice |= {"message": {"content": text}} if "chat" in path else {"text": text}
            if self.token_ids:
                content = {"content": [{"logprob": value} for value in logprobs]}
                plain = path == "/v1/completions"
                choice["token_ids"] = [attempt, index, 7]
                choice["logprobs"] = {"token_logprobs": logprobs} if plain else content
            if "generate" in path:
                choice["weight_versions"] = [{"version": self.version, "start": 0, "end": 3}]
            choices.append(choice)
        prompt = body.get("token_ids") or body.get("prompt") or [1, 2, 3]
        return {"choices": choices} | ({"prompt_token_ids": prompt} if self.token_ids else {})

    async def _spoil(
        self, trouble: Trouble, request: web.Request, answer: dict[str, Any]
    ) -> web.StreamResponse:
        text = json.dumps(answer)
        transport = request.transport
        assert transport is not None
        if trouble in _STATUS:
            headers = {
                Trouble.RATE_LIMIT_AFTER: {"Retry-After": self.retry_after},
                Trouble.REDIRECT: {"Location": "http://else.where/v1"},
            }.get(trouble, {})
            error = {"error": {"message": trouble.value}}
            return web.json_response(error, status=_STATUS[trouble], headers=headers)
        if trouble is Trouble.RESTART:
            task = asyncio.ensure_future(self._restart())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if trouble is Trouble.SLOW and self.slow_at_once:
            return web.Response(status=SLOW_STATUS)
        if trouble in (Trouble.SLOW, Trouble.RESTART):
            await asyncio.sleep(60)
        if trouble is Trouble.RESET_MID_BODY:
            response = web.StreamResponse(headers={"Content-Length": str(len(text))})
            await response.prepare(request)
            await response.write(text[: len(text) // 2].encode())
            await asyncio.sleep(0.005)
        if trouble in (Trouble.RESET, Trouble.RESET_MID_BODY):
            transport.abort()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return web.Response()
        if trouble is Trouble.HTML:
            return web.Response(text="<html>\n<b>Log in</b>", content_type="text/html")
        if trouble is Trouble.TOO_MUCH:
            return await self._without_end(request)
        return web.Response(text=_spoilt(trouble, answer, text), content_type="application/json")

    async def _without_end(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):  # Until the client has had enough.
            for _ in range(
                1 << 13
            ):  # 32 MiB; a client that takes all of it is to fail, not to hang.
                await response.write(b" " * 4096)
        return response


_STATUS = {
    Trouble.RATE_LIMIT: 429,
    Trouble.RATE_LIMIT_AFTER: 429,
    Trouble.ERROR_500: 500,
    Trouble.ERROR_503: 503,
    Trouble.REFUSED: 400,
    Trouble.REDIRECT: 302,
    Trouble.NO_KEY: 401,
    Trouble.NOT_FOUND: 404,
}


def _spoilt(trouble: Trouble, answer: dict[str, Any], text: str) -> str:
    if trouble is Trouble.CUT_JSON:
        return text[: len(text) // 2]
    if trouble is Trouble.ERROR_IN_200:
        return json.dumps({"error": {"message": "no provider is free", "code": 502}})
    if trouble is Trouble.STREAM:
        return f"data: {text}\n\ndata: [DONE]\n\n"
    choices = answer["choices"]
    if trouble is Trouble.WRONG_JSON:
        return json.dumps({"choices": {"0": choices[0]}})
    if trouble is Trouble.EMPTY:
        return json.dumps(answer | {"choices": []})
    if trouble is Trouble.FEWER:
        return json.dumps(answer | {"choices": choices[:-1]})
    if trouble is Trouble.TWICE:
        return json.dumps(answer | {"choices": [*choices[:-1], choices[0]]})
    if trouble is Trouble.NEW_WEIGHTS:
        choices[-1]["weight_versions"].append({"version": "4", "start": 3, "end": 3})
        return json.dumps(answer)
    if trouble in _TOKEN_LIES and "token_ids" in choices[-1]:
        _TOKEN_LIES[trouble](choices[-1])
        return json.dumps(answer)
    choices[-1]["finish_reason"] = "content_filter" if trouble is Trouble.FILTERED else "abort"
    return json.dumps(answer)


def _set_tokens(choice: dict[str, Any], ids: list[int], logprobs: list[float]) -> None:
    plain = "token_logprobs" in choice["logprobs"]
    content = {"content": [{"logprob": value} for value in logprobs]}
    choice["token_ids"] = ids
    choice["logprobs"] = {"token_logprobs": logprobs} if plain else content


_TOKEN_LIES: dict[Trouble, Callable[[dict[str, Any]], None]] = {
    Trouble.MISCOUNTED: lambda choice: _set_tokens(choice, [1, 2, 7], [-0.5] * 4),
    Trouble.OVERLONG: lambda choice: _set_tokens(choice, [1] * 5000, [-0.5] * 5000),
    Trouble.NO_TOKEN: lambda choice: _set_tokens(choice, [1, -100, 7], [-0.5] * 3),
    Trouble.UNLIKELY: lambda choice: _set_tokens(choice, [1, 2, 7], [-0.5, 0.7, -0.5]),
    Trouble.UNCOUNTED: lambda choice: _set_tokens(choice, [], []),
}
"""What a server may get wrong in the tokens of an answer that is whole otherwise."""
