"""Samples from a server with OpenAI's API, such as vLLM."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import EngineError
from ..openai.client import OpenAIClient, Request, headers, share_out
from ..openai.loop_thread import LoopThread
from ..openai.wire import Fault, endpoint
from .openai_wire import read_group, request_body
from .options import OpenAIOptions
from .protocol import Failure, Group, Prompt, Settings
from .tokenizer import NO_KWARGS, Encode, TemplateRefusedError

_Put = Callable[[tuple[int, Group | Failure]], None]
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
        headers(options.api_key_env)  # Now, not after an hour of other steps.
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
            yield from self._thread.stream(partial(self._sample, prompts, settings))
        except asyncio.CancelledError:
            raise EngineError("the engine was closed while it sampled") from None

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def _sample(self, prompts: Sequence[Prompt], settings: Settings, put: _Put) -> None:
        size = min(self.options.concurrency, len(prompts))
        async with OpenAIClient(self.options, size) as client:

            async def work(place: tuple[int, Prompt]) -> None:
                index, prompt = place
                put((index, await self._group_or_failure(client, prompt, settings)))

            await share_out(work, enumerate(prompts), size)

    async def _group_or_failure(
        self, client: OpenAIClient, prompt: Prompt, settings: Settings
    ) -> Group | Failure:
        try:
            ids = None if self.encode is None else list(self.encode(prompt.messages))
        except TemplateRefusedError as error:
            return Failure("template_refused", str(error))
        # Of the prompt's own first tokens, because a template may refuse any chat.
        short = None if ids is None else ids[:8]
        request, probe = (
            self._request(client.base, *asked, settings)
            for asked in ((prompt, ids), (_PROBE, short))
        )
        found = await client.answer(request, probe, self.faults)
        return Failure(found.reason, found.detail) if isinstance(found, Fault) else found

    def _request(
        self, base: str, prompt: Prompt, ids: list[int] | None, settings: Settings
    ) -> Request[Group]:
        api, exact, kwargs = self.options.api, self.exact, self.chat_template_kwargs
        read = partial(
            read_group,
            prompt=prompt,
            ids=ids,
            n=settings.n,
            policy=self.policy,
            version=self.version,
            exact=exact,
        )
        return Request(
            endpoint(base, api),
            request_body(api, self.policy, prompt, ids, settings, exact, kwargs),
            read,
            "choose another api; vLLM has 'generate' with --enable-scale-out",
        )
