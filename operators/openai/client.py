"""A patient client of a server with OpenAI's API: what is asked again, how often, and for how long.

What samples and what scores ask through it; each says what it asks and how an answer is read.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

import aiohttp
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_exception,
    wait_random_exponential,
)
from tenacity.stop import stop_base
from typing_extensions import Self

from ..errors import EngineError
from .options import ServerOptions
from .wire import Blame, Fault, Response, check_status, no_such

T = TypeVar("T")
_AWAY = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_LONGEST_PAUSE_S = 30
_LONGEST_KNOCK_S = 5  # between looks whether the server is back, which cost it nothing
_LARGEST_ANSWER = 1 << 28  # bytes; 64 responses of 32,768 tokens with their log-probabilities


class ServerDownError(EngineError):
    """The server cannot be reached, or answers nobody; it may be well another time."""


@dataclass(frozen=True)
class Request(Generic[T]):
    """One thing to ask a server for.

    Attributes:
        url: address to post to.
        body: the JSON, with the name of the `model`.
        read: what to make of the body of an answer; raises Fault where it is none.
        elsewhere: what to try if the server has the model, but nothing at `url`.
    """

    url: str
    body: Mapping[str, Any]
    read: Callable[[bytes], T]
    elsewhere: str = "is it a server with OpenAI's API?"


class OpenAIClient:
    """Connections to one server, and how it has fared; for one event loop.

    Args:
        options: which server, and how patiently.
        connections: most at a time.

    Raises:
        EngineError: there is no key where one is named.
    """

    _session: aiohttp.ClientSession

    def __init__(self, options: ServerOptions, connections: int) -> None:
        self._options, self._connections = options, connections
        self._headers = headers(options.api_key_env)
        self._away_since: float | None = None
        self._answered = -inf  # when it last answered well
        self.base = options.base_url.rstrip("/")

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=self._connections),
            timeout=aiohttp.ClientTimeout(total=self._options.timeout_s, sock_connect=30),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def answer(
        self, request: Request[T], probe: Request[Any], faults: Counter[str]
    ) -> T | Fault:
        """What the server answers, however often it must be asked.

        A request that has used up its attempts is a Fault if it is the request that fails: if the
        server has meanwhile answered another one, or answers the probe. Otherwise the server
        fails.

        Args:
            request: what to ask for.
            probe: a short one like it.
            faults: attempts that failed are counted here, by reason.

        Raises:
            ServerDownError: the server answers nobody.
            EngineError: nor would it ever: the address, the model, the key or what all requests
                have in common is wrong.
        """
        start = time.monotonic()
        budget = _Budget(self._options.attempts) | stop_before_delay(self._options.give_up_s)
        try:
            return await self._again(budget)(self._attempt, request, faults)
        except Fault as fault:
            # Who is refused at once need not wait for others to be answered again.
            since = -inf if fault.blame is Blame.PROMPT else start
            if self._answered > since or await self._answers(probe, faults):
                return fault
            # What it refuses to all it will refuse another time.
            kind = EngineError if fault.blame is Blame.PROMPT else ServerDownError
            raise kind(f"{self.base} answers no prompt: {fault.reason}, {fault.detail}") from None

    def _again(self, stop: stop_base) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(Fault),
            stop=stop,
            wait=wait_exception(_asked_to_wait) + self._back_off(_LONGEST_PAUSE_S),
            reraise=True,
        )

    def _back_off(self, longest_s: float) -> wait_random_exponential:
        # Not seeded: it decides when a request is sent, never what is answered.
        return wait_random_exponential(self._options.back_off_s, max=longest_s)

    async def _attempt(self, request: Request[T], faults: Counter[str]) -> T:
        try:
            response = await self._reach("POST", request.url, request.body)
            if response.status == 404:
                models = await self._reach("GET", f"{self.base}/models")
                raise no_such(str(request.body["model"]), request.url, models, request.elsewhere)
            check_status(response, self.base)
            found = request.read(response.body)
        except Fault as fault:
            faults[fault.reason] += 1
            raise
        self._answered = time.monotonic()
        return found

    async def _answers(self, probe: Request[Any], faults: Counter[str]) -> bool:
        """Whether the server answers a probe."""
        start = time.monotonic()
        with suppress(Fault):
            await self._again(stop_after_attempt(3) | stop_before_delay(60))(
                self._attempt, probe, faults
            )
        return self._answered > start  # This probe, or anybody meanwhile.

    async def _reach(
        self, method: str, url: str, body: Mapping[str, Any] | None = None
    ) -> Response:
        """The response, after waiting for the server where it is away."""
        patience_s = self._options.patience_s
        again = AsyncRetrying(
            retry=retry_if_exception(_is_away),
            stop=lambda _: time.monotonic() - (self._away_since or inf) >= patience_s,
            wait=self._back_off(_LONGEST_KNOCK_S),
            reraise=True,
        )
        try:
            return await again(self._send, method, url, body)
        except aiohttp.ClientSSLError as error:
            found = f"no secure connection to {self.base}: {_said(error)}"
            raise EngineError(found, "is it https, and its certificate known here?") from None
        except aiohttp.InvalidURL:
            raise EngineError(f"base_url is '{self.base}'", "which is no address") from None
        except _AWAY as error:
            found = f"{self.base} could not be reached for {patience_s:g} s: {_said(error)}"
            raise ServerDownError(found, "is the server up?") from None
        except asyncio.TimeoutError:
            said = f"no answer in {self._options.timeout_s:g} s"
            raise Fault("timeout", said, Blame.SERVER) from None
        except aiohttp.ClientError as error:
            raise Fault("connection_lost", _said(error), Blame.SERVER) from None

    async def _send(self, method: str, url: str, body: Mapping[str, Any] | None) -> Response:
        try:
            async with self._session.request(method, url, json=body, allow_redirects=False) as got:
                self._away_since = None
                return Response(
                    got.status,
                    await _body(got),
                    got.headers.get("Retry-After", ""),
                    got.headers.get("Location", ""),
                )
        except _AWAY:
            self._away_since = self._away_since or time.monotonic()
            raise
        except (asyncio.TimeoutError, aiohttp.ClientError):
            self._away_since = None  # It was reached.
            raise


async def share_out(work: Callable[[T], Awaitable[None]], items: Iterable[T], size: int) -> None:
    """`work` on each of `items`, `size` of them at a time; the first error ends all."""
    todo = iter(items)  # Shared: each worker takes the next item when it is free.

    async def worker() -> None:
        for item in todo:
            await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(size)]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def headers(api_key_env: str | None) -> dict[str, str]:
    """What goes with each request: the key, where the server wants one.

    Raises:
        EngineError: the environment variable that is to hold it is not set.
    """
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env, "").strip()
    if not key:
        found = f"api_key_env names the environment variable '{api_key_env}', which is not set"
        raise EngineError(found, "set it to the server's key")
    return {"Authorization": f"Bearer {key}"}


async def _body(response: aiohttp.ClientResponse) -> bytes:
    parts, size = list[bytes](), 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > _LARGEST_ANSWER:
            said = f"an answer of more than {_LARGEST_ANSWER >> 20} MiB"
            raise Fault("bad_response", said, Blame.ANSWER)
    return b"".join(parts)


def _is_away(error: BaseException) -> bool:
    # A certificate does not mend itself.
    return isinstance(error, _AWAY) and not isinstance(error, aiohttp.ClientSSLError)


def _said(error: Exception) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return said.replace(" ssl:default", "")  # aiohttp says so where there is no TLS at all.


class _Budget(stop_base):
    """Stops when a request has used up its attempts, of which some faults cost more than others."""

    def __init__(self, attempts: int) -> None:
        self._left = self._attempts = attempts

    def __call__(self, retry_state: RetryCallState) -> bool:
        fault = retry_state.outcome and retry_state.outcome.exception()
        if isinstance(fault, Fault):
            self._left -= fault.blame.cost(self._attempts)
        return self._left <= 0


def _asked_to_wait(error: BaseException) -> float:
    return error.after if isinstance(error, Fault) else 0.0
