"""Samples from a server with OpenAI's API, such as vLLM."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

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

from ..errors import EngineError
from .loop_thread import LoopThread
from .openai_wire import (
    Blame,
    Fault,
    Response,
    check_status,
    endpoint,
    no_such,
    read_group,
    request_body,
)
from .options import OpenAIOptions
from .protocol import Failure, Group, Prompt, Settings
from .tokenizer import NO_KWARGS, Encode, TemplateRefusedError

_Put = Callable[[tuple[int, Group | Failure]], None]
_AWAY = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_LONGEST_PAUSE_S = 30
_LONGEST_KNOCK_S = 5  # between looks whether the server is back, which cost it nothing
_LARGEST_ANSWER = 1 << 28  # bytes; 64 responses of 32,768 tokens with their log-probabilities
_PROBE = Prompt((("user", "Hi"),), (1 << 62) - 1)


class OpenAIEngine:
    """Samples by HTTP, many prompts at a time.

    A prompt has one request for all its n responses, so that it is answered whole or not at all;
    what an attempt that failed may have brought is thrown away. A prompt that has used up its
    attempts is a Failure if it is the prompt that fails: if the server has meanwhile answered
    another one, or answers a probe. Otherwise the server fails, and that ends the run.

    Args:
        model: its name on the server; the name of the policy too.
        options: which server, and how patiently.
        encode: chat to token ids; `completions` and `generate` need it, `chat` must not have it.
        version: of the weights, where the server states none; may be set between batches.
        exact: stop with an error where the server gives no token ids and log-probabilities, and
            ask again where weights changed while a group was sampled. Else nothing can be trained
            on-policy; False asks for text only, which every server has.
        chat_template_kwargs: what the chat template is told beside the chat. `chat` sends it on;
            for the others, `encode` was made with it.

    Attributes:
        faults: attempts that failed so far, by reason.

    Raises:
        EngineError: `encode` and the api do not fit, or there is no key where one is named.
    """

    def __init__(
        self,
        model: str,
        options: OpenAIOptions,
        *,
        encode: Encode | None = None,
        version: int = 0,
        exact: bool = True,
        chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
    ) -> None:
        if (encode is None) != (options.api == "chat"):
            needs = "needs a" if encode is None else "takes no"
            raise EngineError(f"api '{options.api}' {needs} tokenizer")
        _headers(options.api_key_env)  # Now, not after an hour of other steps.
        self.policy = model
        self.options, self.encode, self.version, self.exact = options, encode, version, exact
        self.chat_template_kwargs = chat_template_kwargs
        self.faults: Counter[str] = Counter()
        self._thread: LoopThread | None = None

    def sample(
        self, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        if self._thread is None:
            self._thread = LoopThread(f"engine of {self.policy}")
        try:
            yield from self._thread.stream(partial(_Batch(self, settings).sample, prompts))
        except asyncio.CancelledError:
            raise EngineError("the engine was closed while it sampled") from None

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None


class _Batch:
    """What one call of `sample` has in common: connections, and how the server has fared."""

    _session: aiohttp.ClientSession

    def __init__(self, engine: OpenAIEngine, settings: Settings) -> None:
        self._engine, self._options, self._settings = engine, engine.options, settings
        self._base = engine.options.base_url.rstrip("/")
        self._away_since: float | None = None
        self._answered = -inf  # when it last answered well

    async def sample(self, prompts: Sequence[Prompt], put: _Put) -> None:
        todo = enumerate(prompts)  # Shared: each worker takes the next prompt when it is free.

        async def work() -> None:
            for index, prompt in todo:
                put((index, await self._group_or_failure(prompt)))

        size = min(self._options.concurrency, len(prompts))
        async with aiohttp.ClientSession(
            headers=_headers(self._options.api_key_env),
            connector=aiohttp.TCPConnector(limit=size),
            timeout=aiohttp.ClientTimeout(total=self._options.timeout_s, sock_connect=30),
        ) as self._session:
            workers = [asyncio.ensure_future(work()) for _ in range(size)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _group_or_failure(self, prompt: Prompt) -> Group | Failure:
        encode, options = self._engine.encode, self._options
        try:
            ids = None if encode is None else list(encode(prompt.messages))
        except TemplateRefusedError as error:
            return Failure("template_refused", str(error))
        start = time.monotonic()
        budget = _Budget(options.attempts) | stop_before_delay(options.give_up_s)
        try:
            return await self._again(budget)(self._attempt, prompt, ids)
        except Fault as fault:
            # Who is refused at once need not wait for others to be answered again.
            since = -inf if fault.blame is Blame.PROMPT else start
            if self._answered > since or await self._answers_probe(ids):
                return Failure(fault.reason, fault.detail)
            raise EngineError(
                f"{self._base} answers no prompt: {fault.reason}, {fault.detail}"
            ) from None

    def _again(self, stop: stop_base) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(Fault),
            stop=stop,
            wait=wait_exception(_asked_to_wait) + self._back_off(_LONGEST_PAUSE_S),
            reraise=True,
        )

    def _back_off(self, longest_s: float) -> wait_random_exponential:
        # Not seeded: it decides when a request is sent, never what is sampled.
        return wait_random_exponential(self._options.back_off_s, max=longest_s)

    async def _attempt(self, prompt: Prompt, ids: list[int] | None) -> Group:
        engine, api = self._engine, self._options.api
        body = request_body(
            api,
            engine.policy,
            prompt,
            ids,
            self._settings,
            engine.exact,
            engine.chat_template_kwargs,
        )
        url = endpoint(self._base, api)
        try:
            response = await self._reach("POST", url, body)
            if response.status == 404:
                models = await self._reach("GET", f"{self._base}/models")
                raise no_such(engine.policy, url, models)
            check_status(response, self._base)
            group = read_group(
                response.body,
                prompt,
                ids,
                self._settings.n,
                policy=engine.policy,
                version=engine.version,
                exact=engine.exact,
            )
        except Fault as fault:
            engine.faults[fault.reason] += 1
            raise
        self._answered = time.monotonic()
        return group

    async def _answers_probe(self, ids: list[int] | None) -> bool:
        """Whether the server answers a short prompt, with the same settings."""
        # Of the prompt's own first tokens, because a template may refuse any chat.
        short = None if ids is None else ids[:8]
        start = time.monotonic()
        with suppress(Fault):
            await self._again(stop_after_attempt(3) | stop_before_delay(60))(
                self._attempt, _PROBE, short
            )
        return self._answered > start  # This probe, or anybody meanwhile.

    async def _reach(self, method: str, url: str, body: dict[str, Any] | None = None) -> Response:
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
            found = f"no secure connection to {self._base}: {_said(error)}"
            raise EngineError(found, "is it https, and its certificate known here?") from None
        except aiohttp.InvalidURL:
            raise EngineError(f"base_url is '{self._base}'", "which is no address") from None
        except _AWAY as error:
            found = f"{self._base} could not be reached for {patience_s:g} s: {_said(error)}"
            raise EngineError(found, "is the server up?") from None
        except asyncio.TimeoutError:
            said = f"no answer in {self._options.timeout_s:g} s"
            raise Fault("timeout", said, Blame.SERVER) from None
        except aiohttp.ClientError as error:
            raise Fault("connection_lost", _said(error), Blame.SERVER) from None

    async def _send(self, method: str, url: str, body: dict[str, Any] | None) -> Response:
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


async def _body(response: aiohttp.ClientResponse) -> bytes:
    parts, size = list[bytes](), 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > _LARGEST_ANSWER:
            said = f"an answer of more than {_LARGEST_ANSWER >> 20} MiB"
            raise Fault("bad_response", said, Blame.ANSWER)
    return b"".join(parts)


def _headers(api_key_env: str | None) -> dict[str, str]:
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env, "").strip()
    if not key:
        found = f"api_key_env names the environment variable '{api_key_env}', which is not set"
        raise EngineError(found, "set it to the server's key")
    return {"Authorization": f"Bearer {key}"}


def _is_away(error: BaseException) -> bool:
    # A certificate does not mend itself.
    return isinstance(error, _AWAY) and not isinstance(error, aiohttp.ClientSSLError)


def _said(error: Exception) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return said.replace(" ssl:default", "")  # aiohttp says so where there is no TLS at all.


class _Budget(stop_base):
    """Stops when a prompt has used up its attempts, of which some faults cost more than others."""

    def __init__(self, attempts: int) -> None:
        self._left = self._attempts = attempts

    def __call__(self, retry_state: RetryCallState) -> bool:
        fault = retry_state.outcome and retry_state.outcome.exception()
        if isinstance(fault, Fault):
            self._left -= fault.blame.cost(self._attempts)
        return self._left <= 0


def _asked_to_wait(error: BaseException) -> float:
    return error.after if isinstance(error, Fault) else 0.0
