"""A client of servers with OpenAI's API that retries: what, how often, and for how long.

Sampling, judges, frozen models and search share it; each brings its own requests, and its own
parser of the answers. A request passes `OpenAIClient.answer`, then for each attempt a free address
and the limits of rates (`endpoints.py`); `wire.py` has what is sent and what an answer means.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential
from typing_extensions import Self

from ..errors import EngineError
from ..logs import know, logger, redact, redact_bytes
from .concurrency import LoopThread
from .endpoints import LONGEST_PAUSE_S, Admission, Endpoint, Endpoints, Rates, ServerDownError
from .options import Dialect, DialectServer, ServerOptions, dialect_of
from .wire import (
    AttemptError,
    HttpResponse,
    RetryClass,
    advice,
    bad_response,
    check_status,
    endpoint,
    error_in_answer,
    served_models,
)

_log = logger(__name__)
_named: dict[tuple[str, str], str] = {}
"""By server and model asked for, the one that its first answer named; empty once it changed."""
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]+)"')  # In a text, the quotes are escaped.
T = TypeVar("T")
LARGEST = 1 << 28
"""Bytes of one answer: 64 responses of 32,768 tokens with their log-probabilities."""
_MAY_BE_A_FIELD = ("request_refused", "server_error")
_MAY_BE_AN_ERROR = ("bad_response", "too_few_samples")
_MAY_PASS = (RetryClass.OVERLOADED, RetryClass.SERVER_FAILED)
_CONNECT_S = 30.0  # seconds that a connection may take
_LIST_S = 10.0  # seconds that a list of models may take, which takes milliseconds
_PROBE_S = 60.0  # seconds after which no probe begins
_TRIAL_S = 10.0  # as well, where the server has answered nobody before
_TRIALS = 3  # which requests wait for, one after the other
_NO_TRIAL_S = 60.0  # seconds in which there is none at most
_SHORTEST_S = 1.0  # seconds that any answer may take
_PAUSED = "the server asked for a pause after other requests, and again"
_UNREACHABLE = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_NOT_READY = frozenset({502, 503, 504})
"""What a server answers, or a proxy before it, while a model is being loaded."""


class _UnreachableError(Exception):
    """An address cannot be reached."""


@dataclass(frozen=True)
class Request(Generic[T]):
    url: Callable[[str], str]  # address to send it to, from that of the server
    # the JSON, with the name of the `model` where there is one; None: it gets, and posts nothing
    body: Mapping[str, Any] | None
    # parses the body of an answer; raises AttemptError if it is unusable
    read: Callable[[bytes], T]
    # what to try if the server has the model, but nothing at this address
    hint: str = "is it a server with OpenAI's API?"
    # what to set, from the body of a refusal; empty: no field helps
    advise: Callable[[bytes], str] = lambda _: ""


def chat_request(
    body: Mapping[str, Any], dialect: Dialect, read: Callable[[bytes], T]
) -> Request[T]:
    """A request of a chat completion; `body` is as for a server without peculiarities."""
    sent = dialect.sent(body)
    return Request(
        partial(endpoint, api="chat"),
        sent,
        read,
        advise=partial(advice, sent=sent, dialect=dialect),
    )


class OpenAIClient:
    """Connections to one server, or to several alike, and their recent state; for one event loop.

    No more than `concurrency` requests are under way at a time. `key` is that of the server where
    no environment variable has it.
    """

    _session: aiohttp.ClientSession

    def __init__(
        self, options: ServerOptions, *, clock: Callable[[], float] = time.monotonic, key: str = ""
    ) -> None:
        self._options, self._clock = options, clock
        self._lists_models = dialect_of(options).models
        self._headers = headers(options.api_key_env, key)
        self._slots = asyncio.Semaphore(options.concurrency)
        self._failing_since: float | None = None  # no usable answer since
        self._answered = -inf  # when there was a usable answer last
        self._down: ServerDownError | None = None  # It has answered nobody, and no trial since.
        self._trial, self._trial_at = asyncio.Lock(), -inf  # when the next one may begin
        self._failed_trials = 0  # in a row
        self._rates = Rates(options)
        self._endpoints = Endpoints(options, clock, self._why_down)
        self.name = self._endpoints.name

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._options.concurrency)
        self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._endpoints.stop_looking()
        await self._session.close()

    async def answer(
        self,
        request: Request[T],
        probe: Request[Any] | None = None,
        failed_attempts: Counter[str] | None = None,
    ) -> T:
        """The server's answer, after as many attempts as it needs, each where least is in flight.

        Once its attempts are used up, the request has failed (an AttemptError) if it has no
        `probe`, a short request of the same kind, or if the server has meanwhile answered another
        request or answers the probe. Otherwise the server has failed: a ServerDownError, or an
        EngineError if it refuses all requests. Then one probe of the next requests is its trial,
        for which the others wait: they pass, or fail as it does; after a few failed trials they
        fail at once for a while. `failed_attempts` counts by reason.
        """
        failed = Counter[str]() if failed_attempts is None else failed_attempts
        async with self._slots:
            if probe is not None:
                await self._pass_trial(probe, failed)
            start = self._clock()
            call = _RetriedRequest(request, self._options, self._clock, failed)
            try:
                return await self._attempts(call)
            except AttemptError as error:
                # A refusal comes at once: no request need have been answered since this one began.
                refused = error.retry_class is RetryClass.REFUSED
                if probe is None or self._answered > (-inf if refused else start):
                    raise
                if await self._answers_probe(probe, failed, _PROBE_S):
                    raise
                # A server that refuses every request will not change its mind.
                answers = "answers no prompt" if self._endpoints.only_one else "answer no prompt"
                found = f"{self.name} {answers}: {error.reason}, {error.line}"
                if refused:
                    raise EngineError(found) from None
                self._down = ServerDownError(found)
                raise self._down from None

    async def _pass_trial(self, probe: Request[Any], failed: Counter[str]) -> None:
        if (down := self._down) is None:
            return
        async with self._trial:
            start = self._clock()
            is_next = self._down is down and self._trial_at <= start
            if is_next and not await self._answers_probe(probe, failed, _TRIAL_S):
                self._down = ServerDownError(down.found)  # For those who wait for this trial.
                self._failed_trials, end = self._failed_trials + 1, self._clock()
                if self._failed_trials >= _TRIALS:
                    self._trial_at = end + min(2 * (end - start), _NO_TRIAL_S)
        if self._down is not None:
            raise ServerDownError(self._down.found)

    async def check(self, model: str | None) -> None:
        await asyncio.gather(*map(self._endpoints.look, self._endpoints.all))
        await self._endpoints.usable(inf)
        for at in self._endpoints.all:
            if model is not None and at.models and model not in at.models:
                await self._check_model(at, model)

    async def _attempts(self, call: _RetriedRequest[T]) -> T:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(AttemptError),
            stop=call.is_over,
            wait=self._pause_s,
            reraise=True,
        )
        return await retrying(self._attempt, call)

    def _pause_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, AttemptError)
        # Not seeded: it affects when a request is sent, never the answer.
        own = wait_random_exponential(self._options.back_off_s, max=LONGEST_PAUSE_S)(state)
        if self._endpoints.only_one:
            return own + error.after
        # Of several servers, only the one that asks for it waits; see `Endpoints`.
        return 0.0 if error.retry_class is RetryClass.OVERLOADED else own

    async def _attempt(self, call: _RetriedRequest[T]) -> T:
        while True:
            at, admission = await self._admitted(call)
            try:
                found = await self._exchange(at, call, admission)
            except _UnreachableError as error:
                admission.tokens = 0
                self._endpoints.not_reached(at, str(error))
                continue
            except AttemptError as error:
                if error.retry_class is RetryClass.OVERLOADED:
                    admission.tokens = 0
                call.note(at, error)
                self._endpoints.failed(at, error)
                if error.retry_class in _MAY_PASS:
                    now, give_up_s = self._clock(), self._options.give_up_s
                    self._failing_since = self._failing_since or now
                    waited_s = now - self._failing_since
                    self._endpoints.report_wait(error.detail, waited_s, give_up_s)
                raise
            finally:
                at.in_flight -= 1
            self._endpoints.works(at)
            self._answered, self._failing_since = self._clock(), None
            self._down, self._failed_trials = None, 0
            return found

    async def _admitted(self, call: _RetriedRequest[T]) -> tuple[Endpoint, Admission]:
        """Where a request is sent at once, which the limits of rates allow."""
        while True:
            if not await self._endpoints.usable(call.deadline):
                never_sent = AttemptError("rate_limited", _PAUSED, RetryClass.OVERLOADED)
                raise call.last or never_sent
            asked = self._clock()
            admission = await self._rates.admit(call.request.body or {})
            call.deadline += self._clock() - asked  # The limits take as long as they take.
            at = self._endpoints.take(call.failed_at)
            if at is not None:
                return at, admission
            # They all rest by now, or are down. If it waited with its admission, as others would,
            # all of them would be sent at the same time after that.
            admission.tokens = 0

    async def _exchange(self, at: Endpoint, call: _RetriedRequest[T], admission: Admission) -> T:
        request, body = call.request, call.request.body
        url, method = request.url(at.base), "GET" if body is None else "POST"
        response = await self._send(at, method, url, body, call.timeout_s())
        model = None if body is None else body.get("model")
        if response.status == 404 and model is not None:
            if self._lists_models and (why := await self._why_down(at)):
                detail = f"{url} does not exist, and its list of models: {why}"
                raise AttemptError("server_error", detail, RetryClass.SERVER_FAILED)
            raise self._model_not_found(at, str(model), url, request.hint)
        try:
            check_status(response, at.base)
            answer = request.read(response.body)
        except AttemptError as error:
            raise _explained(error, response, at.base, request.advise) from None
        self._rates.correct(admission, response.body)
        if model is not None:
            _note_model(at.base, str(model), response.body)
        return answer

    async def _answers_probe(self, probe: Request[Any], failed: Counter[str], for_s: float) -> bool:
        start, give_up_s = self._clock(), min(for_s, self._options.give_up_s)
        options = self._options.model_copy(update={"attempts": 3, "give_up_s": give_up_s})
        call = _RetriedRequest(probe, options, self._clock, failed, is_probe=True)
        with suppress(AttemptError):
            await self._attempts(call)
        return self._answered > start  # This probe or another request.

    async def _send(
        self, at: Endpoint, method: str, url: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> HttpResponse:
        """The response of one address; an _UnreachableError, or an AttemptError where it does not
        answer or breaks the connection, or an EngineError where the address is wrong."""
        try:
            return await self._exchange_http(method, url, body, timeout_s)
        except aiohttp.ClientSSLError as error:
            found = f"no secure connection to {at.base}: {_message(error)}"
            raise EngineError(found, "is it https, and is its certificate trusted here?") from None
        except aiohttp.InvalidURL:
            raise EngineError(f"base_url is '{at.base}'", "which is not an address") from None
        except _UNREACHABLE as error:
            raise _UnreachableError(_message(error)) from None
        except asyncio.TimeoutError:
            detail = f"no answer in {timeout_s:.3g} s"
            raise AttemptError("timeout", detail, RetryClass.SERVER_FAILED) from None
        except aiohttp.ClientError as error:
            detail = _message(error)
            raise AttemptError("connection_lost", detail, RetryClass.SERVER_FAILED) from None

    async def _exchange_http(
        self, method: str, url: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> HttpResponse:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S)
        async with self._session.request(
            method, url, json=body, allow_redirects=False, timeout=timeout
        ) as got:
            parts, size = list[bytes](), 0
            async for part in got.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > LARGEST:
                    raise bad_response(f"an answer of more than {LARGEST >> 20} MiB")
            # Whatever the server repeats of the request, its key goes no further.
            return HttpResponse(
                got.status,
                redact_bytes(b"".join(parts)),
                got.headers.get("Retry-After", ""),
                redact(got.headers.get("Location", "")),
            )

    async def _why_down(self, at: Endpoint) -> str:
        try:
            url = f"{at.base}/models" if self._lists_models else at.base
            found = await self._send(at, "GET", url, None, _LIST_S)
            if self._lists_models:
                if found.status in _NOT_READY or found.status == 401:
                    check_status(found, at.base)
                at.models = served_models(found)
        except _UnreachableError as error:
            return str(error)
        except AttemptError as error:
            return error.detail
        return ""

    async def _check_model(self, at: Endpoint, model: str) -> None:
        # It may know the model by another name, as llama.cpp does by any: only a request tells.
        url = endpoint(at.base, "chat")
        chat = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        body = dialect_of(self._options).sent(chat)
        with suppress(AttemptError, _UnreachableError):  # It may refuse such a chat.
            if (await self._send(at, "POST", url, body, _LIST_S)).status == 404:
                raise self._model_not_found(at, model, url, "")

    def _model_not_found(self, at: Endpoint, model: str, url: str, hint: str) -> EngineError:
        server = "the server" if self._endpoints.only_one else f"the server {at.base}"
        if not at.models:
            return EngineError(f"{url} does not exist", "is base_url right? it usually ends in /v1")
        if model not in at.models:
            listed = ", ".join(at.models[:9])
            return EngineError(f"{server} has no model '{model}'", f"it has {listed}")
        return EngineError(f"{server} has the model '{model}' but no {url}", hint)


@dataclass
class _RetriedRequest(Generic[T]):
    """The attempts for a request; of a probe even the first may take no longer than is left."""

    request: Request[T]
    options: ServerOptions
    clock: Callable[[], float]
    failed: Counter[str]
    is_probe: bool = False

    def __post_init__(self) -> None:
        self.deadline = self.clock() + self.options.give_up_s  # No attempt begins after it.
        self.failed_at: Counter[Endpoint] = Counter()
        self.last: AttemptError | None = None  # the error of the last one that failed
        self.left = self.options.attempts

    def note(self, at: Endpoint, error: AttemptError) -> None:
        self.failed_at[at] += 1
        self.failed[error.reason] += 1
        self.left -= error.retry_class.cost(self.options.attempts)
        self.last = error

    def is_over(self, state: RetryCallState) -> bool:
        return self.left <= 0 or self.clock() + state.upcoming_sleep >= self.deadline

    def timeout_s(self) -> float:
        """How long the next one may take: the first one as long as an answer may."""
        longest_s = self.options.timeout_s
        if self.last is None and not self.is_probe:
            return longest_s
        return min(longest_s, max(self.deadline - self.clock(), _SHORTEST_S))


def _note_model(server: str, asked: str, answer: bytes) -> None:
    """Say once that the answers of a server about one model begin to name another one."""
    if found := _MODEL.search(answer):
        name = found[1].decode(errors="replace")
        first = _named.setdefault((server, asked), name)
        if first and name != first:
            _named[server, asked] = ""
            one = f"{server} answers as model '{name}', and as '{first}' before"
            _log.warning("%s: the answers of '%s' are of more than one model", one, asked)


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


def _message(error: Exception) -> str:
    # Where a host has several addresses, the number is only in the text.
    if f"[Errno {errno.ECONNREFUSED}]" in str(getattr(error, "os_error", "")):
        return "connection refused"
    message = " ".join(str(error).split()) or type(error).__name__
    return message.replace(" ssl:default", "")  # aiohttp adds it even without TLS.


def headers(api_key_env: str | None, key: str = "") -> dict[str, str]:
    """The headers of every request: the key, if one is needed; an EngineError misses it."""
    if not key and api_key_env is None:
        return {}
    key = key or os.environ.get(str(api_key_env), "").strip()
    if not key:
        found = f"api_key_env names the environment variable '{api_key_env}', which is not set"
        raise EngineError(found, "set it to the server's key")
    know(key)
    return {"Authorization": f"Bearer {key}"}


# --- Clients that all who ask the same server in the same event loop share ------------

_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ServerOptions, OpenAIClient]]
_open = WeakKeyDictionary()


async def shared_client(options: ServerOptions) -> OpenAIClient:
    own, options = _open.setdefault(asyncio.get_running_loop(), {}), _plain(options)
    if options not in own:
        # Kept before it is open, which takes no time: nobody else can open another meanwhile.
        own[options] = OpenAIClient(options)
        await own[options].__aenter__()
    return own[options]


async def close_shared_client(options: ServerOptions) -> None:
    found = _open.get(asyncio.get_running_loop(), {}).pop(_plain(options), None)
    if found:
        await found.__aexit__()


def _plain(options: ServerOptions) -> ServerOptions:
    """The server alone: its options without those of whoever asks it, so that they can be a key."""
    kind = DialectServer if isinstance(options, DialectServer) else ServerOptions
    return kind.model_validate({name: getattr(options, name) for name in kind.model_fields})


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

    async def check() -> None:
        async with OpenAIClient(options, clock=clock, key=key) as client:
            await client.check(model)

    # A thread of its own, because a notebook already runs an event loop in this one.
    thread = LoopThread(f"check of {options.addresses[0]}")
    try:
        thread.run(check())
    finally:
        thread.close()
