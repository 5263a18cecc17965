"""Samples from a server with OpenAI's API, such as vLLM."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from itertools import chain
from typing import Any

from ..errors import EngineError
from ..servers.advice import advice
from ..servers.client import OpenAIClient, Request, headers
from ..servers.concurrently import capacity_for, run_concurrently, work_on_demand
from ..servers.loop_thread import LoopThread
from ..servers.wire import AttemptError, endpoint
from .openai_wire import PLACE, read_group, request_body
from .options import OpenAIOptions
from .protocol import Failure, Group, Prompt, Settings
from .token_count import token_listener
from .tokenizer import NO_KWARGS, Encode, TemplateRefusedError, prompt_ids

_PutGroup = Callable[[tuple[int, Group | Failure]], None]
_SamplePrompt = Callable[[int, Prompt], Awaitable[None]]
_PROBE = Prompt((("user", "Hi"),), (1 << 62) - 1)


class OpenAIEngine:
    """Samples by HTTP, many prompts at a time.

    One request asks for all n responses to a prompt, or n requests for one each where the server
    knows no `n`. A group is complete or absent; partial results of failed attempts are discarded. A
    prompt that has used up its attempts becomes a Failure if the server has meanwhile answered
    another prompt or answers a probe. Otherwise the server has failed, which ends the run.

    Args:
        model: its name on the server; also the name of the policy.
        options: which server, and how to retry.
        encode: chat to token ids; needed by `completions` and `generate`, refused by `chat`.
        version: of the weights, if the server reports none; may be set between batches.
        exact: raise an error if the server gives no token ids or log-probabilities, and retry if
            the weights changed while a group was sampled: on-policy training needs both. False
            requests only text, which every server can give.
        chat_template_kwargs: further arguments of the chat template. `chat` sends them to the
            server; for the other APIs, `encode` has them already.

    Attributes:
        failed_attempts: counts of failed attempts so far, by reason.

    Raises:
        EngineError: `encode` and the API do not fit, or the variable named for the key is not set.
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
        headers(options.api_key_env)  # Fails now rather than after an hour of other steps.
        self.policy = model
        self.options, self.encode, self.version, self.exact = options, encode, version, exact
        self.chat_template_kwargs = chat_template_kwargs
        self.failed_attempts: Counter[str] = Counter()
        self._thread: LoopThread | None = None

    def sample(
        self, prompts: Iterable[Prompt | None], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        report = token_listener()
        if self._thread is None:
            self._thread = LoopThread(f"engine of {self.policy}")
        open_work = partial(self._open_work, settings)
        size, capacity = self.options.concurrency, self.capacity(settings)
        try:
            for index, found in work_on_demand(self._thread, prompts, open_work, size, capacity):
                if isinstance(found, Group):
                    report(found.sampled_tokens())
                yield index, found
        except asyncio.CancelledError:
            raise EngineError("the engine was closed while it sampled") from None

    def capacity(self, settings: Settings) -> int:
        return capacity_for(self.options.concurrency)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    @asynccontextmanager
    async def _open_work(self, settings: Settings, put: _PutGroup) -> AsyncIterator[_SamplePrompt]:
        free = asyncio.Semaphore(self.options.concurrency)
        async with OpenAIClient(self.options, self.options.concurrency) as client:

            async def sample(index: int, prompt: Prompt) -> None:
                put((index, await self.sample_one(client, prompt, settings, free)))

            yield sample

    async def sample_one(
        self,
        client: OpenAIClient,
        prompt: Prompt,
        settings: Settings,
        free: asyncio.Semaphore | None = None,
    ) -> Group | Failure:
        """The samples of one prompt, for asynchronous code with a client of its own.

        Args:
            client: of the running event loop.
            prompt: what to answer.
            settings: how to sample.
            free: taken for the time of each request, where there is one for each response; None:
                whoever calls bounds the requests.

        Raises:
            EngineError: the server has failed, or it cannot sample from token ids.
        """
        if self.encode is None and prompt.token_ids is not None:
            refused = f"api '{self.options.api}' cannot sample from token ids"
            raise EngineError(refused, "choose api: completions or generate")
        try:
            ids = None if self.encode is None else prompt_ids(prompt, self.encode)
        except TemplateRefusedError as error:
            return Failure("template_refused", str(error))
        if settings.n > 1 and self.options.server.one_sample_per_request:
            return await self._sample_apart(client, prompt, ids, settings, free)
        return await self._answer(client, prompt, ids, settings)

    async def _sample_apart(
        self,
        client: OpenAIClient,
        prompt: Prompt,
        ids: list[int] | None,
        settings: Settings,
        free: asyncio.Semaphore | None,
    ) -> Group | Failure:
        """The samples of one prompt by a request for each; the first that fails ends the others."""
        groups = dict[int, Group]()

        async def sample(index: int) -> None:
            # The seeds that vLLM gives the responses of one request: they are the same samples.
            alone = prompt._replace(seed=prompt.seed + index)
            async with free or nullcontext():
                found = await self._answer(client, alone, ids, settings._replace(n=1))
            if isinstance(found, Failure):
                raise _OneFailedError(found)
            groups[index] = found

        try:
            await run_concurrently(sample, range(settings.n), settings.n)
        except _OneFailedError as error:
            return error.failure
        return self._joined([groups[index] for index in range(settings.n)])

    def _joined(self, groups: Sequence[Group]) -> Group | Failure:
        """One group of all samples; a failure where on-policy training could not use it."""
        oldest, newest = (pick(group.version for group in groups) for pick in (min, max))
        if self.exact and oldest != newest:
            detail = f"weights changed from {oldest} to {newest} while it was sampled"
            return Failure("bad_response", detail)
        samples = tuple(chain.from_iterable(group.samples for group in groups))
        return groups[0]._replace(version=oldest, samples=samples)

    async def _answer(
        self, client: OpenAIClient, prompt: Prompt, ids: list[int] | None, settings: Settings
    ) -> Group | Failure:
        """What one request gives."""
        # The probe has the first tokens of the prompt itself: a template may refuse any other chat.
        short = None if ids is None else ids[:8]
        request, probe = (
            self._request(*each, settings) for each in ((prompt, ids), (_PROBE, short))
        )
        found = await client.answer(request, probe, self.failed_attempts)
        return Failure(found.reason, found.line) if isinstance(found, AttemptError) else found

    def _request(self, prompt: Prompt, ids: list[int] | None, settings: Settings) -> Request[Group]:
        api, exact, kwargs = self.options.api, self.exact, self.chat_template_kwargs
        dialect, settings = self.options.server, settings.of(prompt)
        body = request_body(api, self.policy, prompt, ids, settings, exact, kwargs, dialect)
        read = partial(
            read_group,
            prompt=prompt,
            ids=ids,
            settings=settings,
            policy=self.policy,
            version=self.version,
            exact=exact,
            dialect=dialect,
        )
        return Request(
            partial(endpoint, api=api),
            body,
            read,
            "choose another api; vLLM has 'generate' with --enable-scale-out",
            partial(advice, sent=body, dialect=dialect, place=PLACE),
        )


class _OneFailedError(Exception):
    """One of the requests for the samples of a prompt has failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure
