"""A client of servers with OpenAI's API that retries: what, how often, and for how long.

Sampling and scoring share it; each brings its own requests, and its own parser of the answers.
A request passes `OpenAIClient.answer`, then for each attempt a free address and the limits of rates
(`endpoints.py`); `wire.py` has what is sent and what an answer means.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import aiohttp
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)
from tenacity.stop import stop_base
from typing_extensions import Self

from ..errors import EngineError
from ..logs import know, logger, redact, redact_bytes
from .concurrency import LoopThread
from .endpoints import (
    LONGEST_PAUSE_S,
    LONGEST_POLL_INTERVAL_S,
    Admission,
    Endpoint,
    Endpoints,
    HeldTooLongError,
    Rates,
    ServerDownError,
)
from .options import Dialect, DialectServer, ServerOptions, dialect_of, probed_url
from .wire import (
    AttemptError,
    HttpResponse,
    RetryClass,
    bad_response,
    check_status,
    endpoint,
    error_in_answer,
    model_not_found,
    served_models,
)

_log = logger(__name__)
_named: dict[tuple[str, str], str] = {}
"""By server and model asked for, the one that its first answer named; empty once it changed."""
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]+)"')  # In a text, the quotes are escaped.
T = TypeVar("T")
_MAY_BE_A_FIELD = ("request_refused", "server_error")
_MAY_BE_AN_ERROR = ("bad_response", "too_few_samples")
_MAY_PASS = (RetryClass.OVERLOADED, RetryClass.SERVER_FAILED)
_NO_ANSWER_S = 10.0  # seconds that a list of models may take
_CONNECT_S = 30.0  # seconds that a connection may take
_PROBE_S = 60.0  # seconds after which no probe begins
_SHORTEST_S = 1.0  # seconds that any answer may take
_PAUSED = "the server asked for a pause after other requests, and again"


class _UnreachableError(Exception):
    """An address cannot be reached."""


@dataclass(frozen=True)
class Request(Generic[T]):
    """One request to a server."""

    url: Callable[[str], str]  # address to send it to, from that of the server
    # the JSON, with the name of the `model` where there is one; None: it gets, and posts nothing
    body: Mapping[str, Any] | None
    # parses the body of an answer; raises AttemptError if it is unusable
    read: Callable[[bytes], T]
    # what to try if the server has the model, but nothing at this address
    hint: str = "is it a server with OpenAI's API?"
    # what to set, from the body of a refusal; empty: no field helps
    advise: Callable[[bytes], str] = lambda _: ""


class OpenAIClient:
    """Connections to one server, or to several alike, and their recent state; for one event loop.

    `key` is that of the server where no environment variable has it; empty: none is sent.

    Raises:
        EngineError: the environment variable named for the key is not set.
    """

    _session: aiohttp.ClientSession

    def __init__(
        self,
        options: ServerOptions,
        connections: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        key: str = "",
    ) -> None:
        self._options, self._connections, self._clock = options, connections, clock
        self._lists_models = dialect_of(options).models
        self._headers = _authorization(key) if key else headers(options.api_key_env)
        self._failing_since: float | None = None  # no usable answer since
        self._answered = -inf  # when there was a usable answer last
        self._rates, self._bodies = Rates(options), Bodies(connections)
        self._endpoints = Endpoints(options, clock, self._is_there)
        self.name, self.waits = self._endpoints.name, self._endpoints.waits

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=self._connections),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._endpoints.close()
        await self._session.close()

    async def answer(
        self, request: Request[T], probe: Request[Any], failed_attempts: Counter[str]
    ) -> T | AttemptError:
        """The server's answer, after as many attempts as it needs, each where least is in flight.

        Once its attempts are used up, the request has failed, and its last AttemptError is
        returned, if the server has meanwhile answered another request or answers the probe.
        Otherwise the server has failed.

        Raises:
            ServerDownError: the server answers no request.
            EngineError: the server would never answer: the address, the model, the key or
                something that all requests have in common is wrong.
        """
        start = self._clock()
        try:
            return await self.answer_without_probe(request, failed_attempts)
        except AttemptError as error:
            # A refusal comes at once: no request need have been answered since this one began.
            since = -inf if error.retry_class is RetryClass.REFUSED else start
            if self._answered > since or await self._answers_probe(probe, failed_attempts):
                return error
            # A server that refuses every request will not change its mind.
            kind = EngineError if error.retry_class is RetryClass.REFUSED else ServerDownError
            answers = "answers no prompt" if self._endpoints.only_one else "answer no prompt"
            raise kind(f"{self.name} {answers}: {error.reason}, {error.line}") from None

    async def answer_without_probe(self, request: Request[T], failed_attempts: Counter[str]) -> T:
        """The server's answer, after as many attempts as it needs, each where least is in flight.

        Raises:
            AttemptError: that of the last attempt.
            ServerDownError, EngineError: see `answer`.
        """
        stop = GiveUp(self._options.give_up_s, self._clock)
        retrying = self._retrying(AttemptBudget(self._options.attempts) | stop)
        return await retrying(self._attempt, _Attempt(request, failed_attempts), stop)

    def _retrying(self, stop: stop_base) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(AttemptError),
            stop=stop,
            wait=self._pause_s,
            reraise=True,
        )

    def _pause_s(self, state: RetryCallState) -> float:
        """Return how long a request waits before its next attempt."""
        error = state.outcome.exception() if state.outcome else None
        own = self.back_off(LONGEST_PAUSE_S)(state)
        if self._endpoints.only_one:
            return own + (error.after if isinstance(error, AttemptError) else 0.0)
        # Of several servers, only the one that asks for it waits; see `Endpoints`.
        overloaded = isinstance(error, AttemptError) and error.retry_class is RetryClass.OVERLOADED
        return 0.0 if overloaded else own

    def back_off(self, longest_s: float = LONGEST_POLL_INTERVAL_S) -> wait_random_exponential:
        """Return the pauses between attempts."""
        # Not seeded: it affects when a request is sent, never the answer.
        return wait_random_exponential(self._options.back_off_s, max=longest_s)

    async def _attempt(self, attempt: _Attempt[T], stop: GiveUp) -> T:
        request = attempt.request
        tried = False
        while True:
            at, admission = await self._admitted(attempt, stop, tried=tried)
            tried = True
            sent = self._clock()
            timeout_s = attempt.timeout_s(self._options.timeout_s, stop.left_s())
            try:
                found = await self._exchange(at, request, admission, timeout_s)
            except _UnreachableError:
                self._rates.give_back(admission, sent=False)
                continue
            except AttemptError as error:
                if error.retry_class is RetryClass.OVERLOADED:
                    self._rates.give_back(admission, sent=True)
                attempt.note(at, error)
                self._endpoints.failed(at, error, sent)
                if error.retry_class in _MAY_PASS:
                    self._failing_since = self._failing_since or self._clock()
                    waited_s = self._clock() - self._failing_since
                    self.waits.report(error.detail, waited_s, self._options.give_up_s)
                raise
            finally:
                self._endpoints.release(at)
            self._endpoints.answered(at)
            self._answered, self._failing_since = self._clock(), None
            return found

    async def _admitted(
        self, attempt: _Attempt[T], stop: GiveUp, *, tried: bool
    ) -> tuple[Endpoint, Admission]:
        """Return where a request is sent at once, which the limits of rates allow."""
        while True:
            try:
                await self._endpoints.usable(tried=tried, left_s=stop.left_s)
            except HeldTooLongError:
                never_sent = AttemptError("rate_limited", _PAUSED, RetryClass.OVERLOADED)
                raise attempt.last or never_sent from None
            asked = self._clock()
            admission = await self._rates.admit(attempt.request.body or {})
            stop.excuse(self._clock() - asked)  # The limits take as long as they take.
            at = None
            try:
                at = self._endpoints.take(attempt.failed_at, tried=tried)
            finally:
                # They are all on hold by now, or down. If it waited with its admission, as others
                # would, all of them would be sent at the same time after that.
                if at is None:
                    self._rates.give_back(admission, sent=False)
            if at is not None:
                return at, admission

    async def _exchange(
        self, at: Endpoint, request: Request[T], admission: Admission, timeout_s: float
    ) -> T:
        """Send a request to an address, and read the answer."""
        url, body = request.url(at.base), request.body
        method = "GET" if body is None else "POST"
        response = await self._send(at, method, url, body, timeout_s)
        if response.status == 404 and body is not None and "model" in body:
            models = await self._models(at)
            place = "" if self._endpoints.only_one else at.base
            raise model_not_found(str(body["model"]), url, models, request.hint, place)
        try:
            check_status(response, at.base)
            found = request.read(response.body)
        except AttemptError as error:
            raise _explained(error, response, at.base, request.advise) from None
        self._rates.correct(admission, response.body, at.base)
        if body is not None and "model" in body:
            _note_model(at.base, str(body["model"]), response.body)
        return found

    async def _models(self, at: Endpoint) -> HttpResponse:
        """Return the list of models of one address, empty if it has none."""
        if not self._lists_models:
            return HttpResponse(404, b"")
        return await self._send(at, "GET", f"{at.base}/models", None, self._options.timeout_s)

    async def _answers_probe(self, probe: Request[Any], failed_attempts: Counter[str]) -> bool:
        """Return whether the server answers a probe."""
        start = self._clock()
        stop = GiveUp(min(_PROBE_S, self._options.give_up_s), self._clock)
        with suppress(AttemptError):
            await self._retrying(stop_after_attempt(3) | stop)(
                self._attempt, _Attempt(probe, failed_attempts, is_probe=True), stop
            )
        return self._answered > start  # This probe or another request.

    async def send_when_reachable(
        self,
        method: str,
        url: Callable[[str], str],
        body: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> HttpResponse:
        """Return the response, after waiting for the server if it cannot be reached.

        Raises:
            ServerDownError: it could not be reached for `patience_s`.
            AttemptError: it did not answer, or broke the connection.
            EngineError: the address is wrong.
        """
        tried = False
        while True:
            while (at := self._endpoints.take(tried=tried)) is None:
                await self._endpoints.usable(tried=tried)
            tried = True
            try:
                timeout_s = timeout_s or self._options.timeout_s
                return await self._send(at, method, url(at.base), body, timeout_s)
            except _UnreachableError:
                continue
            finally:
                self._endpoints.release(at)

    async def _send(
        self, at: Endpoint, method: str, url: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> HttpResponse:
        """Return the response of one address.

        Raises:
            _UnreachableError: it cannot be reached, which is noted.
            AttemptError, EngineError: see `send_when_reachable`.
        """
        try:
            response = await self._exchange_http(method, url, body, timeout_s)
        except aiohttp.ClientSSLError as error:
            found = f"no secure connection to {at.base}: {_message(error)}"
            raise EngineError(found, "is it https, and is its certificate trusted here?") from None
        except aiohttp.InvalidURL:
            raise EngineError(f"base_url is '{at.base}'", "which is not an address") from None
        except _UNREACHABLE as error:
            self._endpoints.unreachable(at, _why(error), _message(error))
            raise _UnreachableError from None
        except asyncio.TimeoutError:
            detail = f"no answer in {timeout_s:.3g} s"
            raise AttemptError("timeout", detail, RetryClass.SERVER_FAILED) from None
        except aiohttp.ClientError as error:
            detail = _message(error)
            raise AttemptError("connection_lost", detail, RetryClass.SERVER_FAILED) from None
        self._endpoints.responded(at)
        return response

    async def _exchange_http(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        timeout_s: float,
        connect_s: float = _CONNECT_S,
    ) -> HttpResponse:
        """Return one request and its response, without any handling of errors."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_s)
        async with self._session.request(
            method, url, json=body, allow_redirects=False, timeout=timeout
        ) as got:
            # Whatever the server repeats of the request, its key goes no further.
            return HttpResponse(
                got.status,
                redact_bytes(await self._bodies.read(got)),
                got.headers.get("Retry-After", ""),
                redact(got.headers.get("Location", "")),
            )

    async def _is_there(self, at: Endpoint) -> bool:
        """Return whether an address can be reached, whatever it answers."""
        try:
            # Less than for all of it: a host that drops packets is not taken for a slow one.
            url, connect_s = probed_url(at.base, self._options), _NO_ANSWER_S / 2
            await self._exchange_http("GET", url, None, _NO_ANSWER_S, connect_s)
        except aiohttp.ClientSSLError:
            return True  # The next request reports what is wrong with its certificate.
        except _UNREACHABLE as error:
            self._endpoints.unreachable(at, _why(error), _message(error))
            return False
        except (aiohttp.ClientError, asyncio.TimeoutError, AttemptError):
            return True
        return True


def _note_model(server: str, asked: str, answer: bytes) -> None:
    """Say once that the answers of a server about one model begin to name another one."""
    if found := _MODEL.search(answer):
        name = found[1].decode(errors="replace")
        first = _named.setdefault((server, asked), name)
        if first and name != first:
            _named[server, asked] = ""
            one = f"{server} answers as model '{name}', and as '{first}' before"
            _log.warning("%s: the answers of '%s' are of more than one model", one, asked)


class _Attempt(Generic[T]):
    """The attempts for a request; of a probe even the first may take no longer than is left."""

    def __init__(
        self, request: Request[T], failed: Counter[str], *, is_probe: bool = False
    ) -> None:
        self.request, self._failed, self._is_probe = request, failed, is_probe
        self.failed_at: Counter[Endpoint] = Counter()  # `failed` counts them by reason
        self.last: AttemptError | None = None  # the error of the last one that failed

    def note(self, at: Endpoint, error: AttemptError) -> None:
        """Note an attempt that failed."""
        self.failed_at[at] += 1
        self._failed[error.reason] += 1
        self.last = error

    def timeout_s(self, longest_s: float, left_s: float) -> float:
        """Return how long the next one may take: the first one as long as an answer may."""
        if self.last is None and not self._is_probe:
            return longest_s
        return min(longest_s, max(left_s, _SHORTEST_S))


def _explained(
    error: AttemptError, response: HttpResponse, base: str, advise: Callable[[bytes], str]
) -> AttemptError:
    """An error of an answer, with what to set, or as the error that the answer itself contains."""
    if error.reason in _MAY_BE_AN_ERROR:
        error = error_in_answer(response.body, base) or error
    if error.reason not in _MAY_BE_A_FIELD or not (right := advise(response.body)):
        return error
    # A field that the server never takes, whatever status it gives for that.
    return AttemptError("request_refused", error.detail, RetryClass.REFUSED, right=right)


def headers(api_key_env: str | None) -> dict[str, str]:
    """Return the headers of every request: the key, if the server needs one.

    Raises:
        EngineError: the environment variable that should contain it is not set.
    """
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env, "").strip()
    if not key:
        found = f"api_key_env names the environment variable '{api_key_env}', which is not set"
        raise EngineError(found, "set it to the server's key")
    return _authorization(key)


def _authorization(key: str) -> dict[str, str]:
    know(key)
    return {"Authorization": f"Bearer {key}"}


# --- When a request that fails is tried no more ---------------------------------------


class AttemptBudget(stop_base):
    """Stops once a request has used up its attempts; `RetryClass.cost` is how many each takes."""

    def __init__(self, attempts: int) -> None:
        self._left = self._attempts = attempts

    def __call__(self, retry_state: RetryCallState) -> bool:
        error = retry_state.outcome and retry_state.outcome.exception()
        if isinstance(error, AttemptError):
            self._left -= error.retry_class.cost(self._attempts)
        return self._left <= 0


class GiveUp(stop_base):
    """Stops where the next attempt would begin later than `give_up_s` after this was created."""

    def __init__(self, give_up_s: float, clock: Callable[[], float]) -> None:
        self._give_up_s, self._clock = give_up_s, clock
        self._began = clock()

    def left_s(self) -> float:
        """Return seconds until no attempt may begin any more."""
        return self._began + self._give_up_s - self._clock()

    def excuse(self, waited_s: float) -> None:
        """Leave seconds of waiting out of account."""
        self._began += waited_s

    def __call__(self, retry_state: RetryCallState) -> bool:
        return retry_state.upcoming_sleep >= self.left_s()


# --- Bodies of answers: each of them, and all that are being read, are bounded --------

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
        """Return the body of an answer.

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


# --- Errors of aiohttp, in words ------------------------------------------------------

_UNREACHABLE = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


def _why(error: Exception) -> str:
    """Return the reason in a few words, for the log."""
    cause = getattr(error, "os_error", None) or error
    # Where a host has several addresses, the number is only in the text.
    refused = f"[Errno {errno.ECONNREFUSED}]" in str(cause)
    return "connection refused" if refused else _message(error)


def _message(error: Exception) -> str:
    """Return the message of an error in one line."""
    message = " ".join(str(error).split()) or type(error).__name__
    return message.replace(" ssl:default", "")  # aiohttp adds it even without TLS.


# --- Clients that all who ask the same server in the same event loop share ------------
# They share its connections and one limit of concurrent requests.


class SharedClient:
    """An open client; its users take one of `slots` for the time of a request."""

    def __init__(self, options: ServerOptions) -> None:
        self.client = OpenAIClient(options, options.concurrency)
        self.slots = asyncio.Semaphore(options.concurrency)


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ServerOptions, SharedClient]]
_open = WeakKeyDictionary()


async def shared_client(options: ServerOptions) -> SharedClient:
    """Return the client of this event loop for a server, which is opened if it is not open.

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


# --- Check a server before anything depends on it -------------------------------------

_TIMEOUT_S = 10  # A list of models takes milliseconds.
_NOT_READY = frozenset({502, 503, 504})
"""What a server answers, or a proxy before it, while a model is being loaded."""


def check_server(
    options: ServerOptions,
    model: str | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    key: str = "",
) -> None:
    """Wait until a server is up, `patience_s` at most, and check that it has a model.

    A server that does not list its models only has to be up, and so has one that may have any; with
    `models: false` it is asked for no list, and is up if it answers anything. Of several addresses
    one must be up, and all that are up must have the model; a line in the log names those that are
    down.

    Raises:
        ServerDownError: it is not up.
        EngineError: it lacks the model or refuses the key, or its address is wrong.
    """

    several = len(options.addresses) > 1

    async def check(address: str) -> None:
        patience_s = 0.0 if several else options.patience_s
        one = options.model_copy(update={"base_url": address, "patience_s": patience_s})
        place = address if several else ""
        async with OpenAIClient(one, 1, clock=clock, key=key) as client:
            first = await _answer_when_ready(client, one, clock)
            if dialect_of(options).models:
                await _check_model(client, dialect_of(options), model, first, place)

    # A thread of its own, because a notebook already runs an event loop in this one.
    thread = LoopThread(f"check of {options.addresses[0]}")
    try:
        each = _check_all(options, check, clock) if several else check(options.addresses[0])
        thread.run(each)
    finally:
        thread.close()


async def _check_all(
    options: ServerOptions,
    check: Callable[[str], Coroutine[Any, Any, None]],
    clock: Callable[[], float],
) -> None:
    """Check each address; those that are not up are waited for only if none is."""
    addresses = options.addresses
    # Once, without waiting; then until one of them is up.
    start, down = clock(), await _down(addresses, check)
    while len(down) == len(addresses) and clock() - start < options.patience_s:
        await asyncio.sleep(options.back_off_s)
        down = await _down(addresses, check)
    if len(down) == len(addresses):
        waited = f" for {options.patience_s:g} s" if options.patience_s else ""
        reasons = ", ".join(error.found for error in down)
        found = f"none of {len(addresses)} servers was ready{waited}: {reasons}"
        raise ServerDownError(found, "are they up?")
    for error in down:
        _log.warning("%s: the run begins without it", error.found)


async def _down(
    addresses: Sequence[str], check: Callable[[str], Coroutine[Any, Any, None]]
) -> list[ServerDownError]:
    """Return why addresses are not up, of each that is not.

    Raises:
        EngineError: that of the first address that is up and lacks something.
    """
    found = await asyncio.gather(*map(check, addresses), return_exceptions=True)
    for each in found:
        if each is not None and not isinstance(each, ServerDownError):
            raise each
    return [each for each in found if isinstance(each, ServerDownError)]


async def _answer_when_ready(
    client: OpenAIClient, options: ServerOptions, clock: Callable[[], float]
) -> HttpResponse:
    """Return what a server answers first: its list of models, if it has one."""
    start, patience_s = clock(), options.patience_s
    lists_models = dialect_of(options).models

    async def answer() -> HttpResponse:
        try:
            url = partial(probed_url, options=options)
            found = await client.send_when_reachable("GET", url, timeout_s=_TIMEOUT_S)
            if found.status in _NOT_READY and lists_models:
                check_status(found, client.name)
        except AttemptError as error:
            client.waits.report(error.detail, clock() - start, patience_s)
            raise
        return found

    ready = AsyncRetrying(
        retry=retry_if_exception_type(AttemptError),
        stop=lambda _: clock() - start >= patience_s,
        wait=client.back_off(),
        reraise=True,
    )
    try:
        return await ready(answer)
    except AttemptError as error:
        waited = f" for {patience_s:g} s" if patience_s else ""
        found = f"{client.name} was not ready{waited}: {error.detail}"
        raise ServerDownError(found, "is the server up?") from None


async def _check_model(
    client: OpenAIClient, dialect: Dialect, model: str | None, models: HttpResponse, place: str
) -> None:
    if models.status == 401:
        check_status(models, client.name)
    known = served_models(models)
    if model is None or not known or model in known:
        return
    # It may know the model by another name, as llama.cpp does by any: only a request tells.
    url = partial(endpoint, api="chat")
    chat = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    body = dialect.sent(chat)
    with suppress(AttemptError):  # A server that is up may refuse such a chat.
        found = await client.send_when_reachable("POST", url, body, timeout_s=_TIMEOUT_S)
        if found.status == 404:
            raise model_not_found(model, url(client.name), models, "", place)
