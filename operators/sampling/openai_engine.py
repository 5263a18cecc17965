"""Samples from a server with OpenAI's API, such as vLLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import Annotated, Any

from pydantic import BaseModel, Field, FiniteFloat

from ..errors import EngineError
from ..servers.client import OpenAIClient, Request
from ..servers.concurrency import LoopThread, capacity_for, results_of, run_concurrently
from ..servers.options import Dialect
from ..servers.wire import (
    ENDINGS,
    Api,
    AttemptError,
    ChatMessage,
    LogProb,
    RetryClass,
    advice,
    bad_response,
    check_not_refused,
    endpoint,
    in_server,
    parse_body,
    unknown_ending,
)
from .protocol import Failure, Group, OpenAIOptions, Prompt, Sample, Settings, token_listener
from .tokenizer import NO_KWARGS, Encode, TemplateRefusedError, prompt_ids

# --- The request for the samples of a prompt, and the samples in a server's answer ----

PLACE = "openai"
"""Where a recipe says how the server differs from others."""
_CALLED = ("tool_calls", "function_call")
"""Finish reasons of a response that ended with a tool call, which the server takes out."""
_WITHOUT_PARSER = "start it without --reasoning-parser, or set on_policy: false"
_PLAIN = Dialect()


def request_body(
    api: Api,
    model: str,
    prompt: Prompt,
    ids: list[int] | None,
    settings: Settings,
    exact: bool,
    chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
    dialect: Dialect = _PLAIN,
) -> dict[str, Any]:
    """The JSON of one request for all n responses of a prompt, of which `chat` has no `ids`.

    If it is `exact`, it asks for token ids and log-probabilities, and switches off defaults of the
    server that change the distribution (Qwen's own `generation_config.json` sets top_k 20 and a
    repetition penalty). Not every server supports these fields.
    """
    sampling = dialect.sent({**settings._asdict(), "seed": prompt.seed}, chat=api == "chat")
    if exact:
        sampling |= {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        sampling["logprobs"] = True if api == "chat" else 0
    extra: dict[str, Any] = {"return_token_ids": True} if exact else {}
    if api == "generate":
        body = {"token_ids": ids, "sampling_params": sampling, "output_mode": "text"}
        return {"model": model, **body, **extra}
    if api == "chat":
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        if chat_template_kwargs:
            extra["chat_template_kwargs"] = dict(chat_template_kwargs)
        return {"model": model, "messages": messages, **sampling, **extra}
    return {"model": model, "prompt": ids, **sampling, **extra}


_ROUNDED_LOGPROB = 0.01
"""What a log-probability of 0 may become in low precision."""


_TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
"""No vocabulary is larger, and tables keep token ids in 32 bits."""


class _SampleLogProbs(BaseModel):
    """`token_logprobs` of `completions`, `content` of the other two APIs."""

    token_logprobs: list[FiniteFloat] | None = None
    content: list[LogProb] | None = None


class _WeightSpan(BaseModel):
    version: str


class _SampleChoice(BaseModel):
    index: int | None = None
    finish_reason: str | None = None
    text: str | None = None
    message: ChatMessage = ChatMessage()
    token_ids: list[_TokenId] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _SampleLogProbs | None = None
    weight_versions: list[_WeightSpan] | None = None


class _SampleCompletion(BaseModel):
    choices: list[_SampleChoice]
    prompt_token_ids: list[int] | None = None


def read_group(
    body: bytes,
    prompt: Prompt,
    ids: list[int] | None,
    settings: Settings,
    *,
    policy: str,
    version: int,
    exact: bool,
    dialect: Dialect = _PLAIN,
) -> Group:
    """The group in the server's answer to a request with this prompt and these settings.

    `version` is that of the weights, if the server reports none. If they changed while the group
    was sampled, it gets the oldest version; `exact` requires one version, token ids and
    log-probabilities, and raises an EngineError where the server cannot give them.
    """
    answer = parse_body(_SampleCompletion, body)
    choices = _in_order(answer.choices, settings.n, dialect)
    seen = answer.prompt_token_ids or choices[0].prompt_token_ids
    if exact:
        _check_exact(choices, seen, ids)
    prompt_ids = seen if ids is None else ids
    labels = {span.version for choice in choices for span in choice.weight_versions or ()}
    versions = {_number(label, version) for label in labels} or {version}
    if exact:
        _check_one_version(versions)
    return Group(
        policy=policy,
        version=min(versions),
        seed=dialect.seed_of(prompt.seed),
        prompt_token_ids=None if prompt_ids is None else tuple(prompt_ids),
        samples=tuple(
            _sample(choice, f"choice {number}", settings.max_tokens, dialect, exact=exact)
            for number, choice in enumerate(choices)
        ),
    )


def _check_one_version(versions: Collection[int]) -> None:
    oldest, newest = min(versions), max(versions)
    if oldest != newest:
        raise bad_response(f"weights changed from {oldest} to {newest} while it was sampled")


def _in_order(choices: list[_SampleChoice], n: int, dialect: Dialect) -> list[_SampleChoice]:
    for choice in choices:
        check_not_refused(choice.message.refusal, choice.finish_reason)
    if len(choices) < n:
        # A server that does not know `n` gives one response, whatever it is.
        ignored = in_server(PLACE, "one_sample_per_request: true") if len(choices) == 1 else ""
        raise AttemptError(
            "too_few_samples",
            f"{len(choices)} of {n} responses",
            RetryClass.BAD_ANSWER,
            right=f"set {ignored}" if ignored else "",
        )
    numbers = [choice.index for choice in choices]
    is_clear = dialect.index == "by_order" or numbers == [None]
    if is_clear and len(choices) == n:
        return choices
    known = sorted(number for number in numbers if number is not None)
    if known != list(range(n)) or len(known) < len(choices):
        equal = len(set(numbers)) == 1 and len(numbers) == n > 1
        from_one = len(numbers) == n and known == list(range(1, n + 1))
        right = f"set {in_server(PLACE, 'index: by_order')}" if equal or from_one else ""
        found = f"choices {known}, not 0 to {n - 1}" if known else f"{n} choices without index"
        raise bad_response(found, right)
    return sorted(choices, key=lambda choice: choice.index or 0)


def _check_exact(
    choices: list[_SampleChoice], seen: list[int] | None, ids: list[int] | None
) -> None:
    lacks = [
        name
        for name, missing in {
            "prompt token ids": ids is None and seen is None,
            "token ids": any(choice.token_ids is None for choice in choices),
            "log-probabilities": any(_logprobs(choice) is None for choice in choices),
        }.items()
        if missing
    ]
    if lacks:
        raise EngineError(
            f"the server gives no {' and no '.join(lacks)}, which on-policy training needs",
            _WITHOUT_PARSER
            if any(choice.message.thought for choice in choices)
            else "sample from one that does, such as vLLM, or set on_policy: false",
        )
    if ids is not None and seen is not None and seen != ids:
        raise EngineError("the server samples from other prompt token ids than those it was sent")


def _sample(
    choice: _SampleChoice, name: str, max_tokens: int, dialect: Dialect, *, exact: bool
) -> Sample:
    message, ending = choice.message, dialect.ending(choice.finish_reason)
    if ending in _CALLED and message.calls:
        ending = "stop"
    text = message.whole_text() if choice.text is None else choice.text
    if text is None and ending == "length":
        text = ""  # Cut off in a thought that the server does not show.
    if text is None:
        raise bad_response(f"{name} has no text")
    if ending not in ENDINGS:
        raise unknown_ending(name, choice.finish_reason, PLACE)
    ids = None if choice.token_ids is None else tuple(choice.token_ids)
    logprobs = _logprobs(choice)
    if fault := _token_fault(text, ids, logprobs, max_tokens):
        if exact and message.thought and len(ids or ()) != len(logprobs or ()):
            found = f"the server gives {fault} of a response whose thought it takes out"
            raise EngineError(found, _WITHOUT_PARSER)
        raise bad_response(f"{name} has {fault}")
    return Sample(text, ids, logprobs, ending)


def _token_fault(
    text: str, ids: tuple[int, ...] | None, logprobs: tuple[float, ...] | None, max_tokens: int
) -> str:
    """Why a response cannot have these tokens, which nothing later would find; empty: it can."""
    if logprobs and max(logprobs) > _ROUNDED_LOGPROB:
        return f"a log-probability of {max(logprobs)}, above 0"
    if ids is None:
        return ""
    if logprobs is not None and len(ids) != len(logprobs):
        return f"{len(ids)} token ids, {len(logprobs)} logprobs"
    if len(ids) > max_tokens:
        return f"{len(ids)} token ids, more than max_tokens {max_tokens}"
    return "text, but no token ids" if text and not ids else ""


def _logprobs(choice: _SampleChoice) -> tuple[float, ...] | None:
    if choice.logprobs is None:
        return None
    if choice.logprobs.token_logprobs is not None:
        return tuple(choice.logprobs.token_logprobs)
    content = choice.logprobs.content
    return None if content is None else tuple(token.logprob for token in content)


def _number(label: str, version: int) -> int:
    """The version in a weight label of the server; vLLM's initial label has none."""
    if label == "default":
        return version
    if not label.isdecimal():
        raise EngineError(f"the server calls its weights '{label}'", "label them with a number")
    return int(label)


# --- The engine -----------------------------------------------------------------------

_PROBE = Prompt((("user", "Hi"),), (1 << 62) - 1)


class OpenAIEngine:
    """Samples by HTTP, many prompts at a time.

    A group is complete or absent: a prompt that has used up its attempts becomes a Failure, and a
    server that answers no prompt ends the run. `encode` is for `completions` and `generate`;
    `chat` has the server apply the template. `version` is that of the weights where the server
    reports none, and may be set between batches. `exact` requires token ids and log-probabilities
    of one version; without it only text is asked for, which every server can give.
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
        self.policy = model
        self.options, self.encode, self.version, self.exact = options, encode, version, exact
        self.chat_template_kwargs = chat_template_kwargs
        self.failed_attempts: Counter[str] = Counter()
        self._thread: LoopThread | None = None

    def sample(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        report = token_listener()
        if self._thread is None:
            self._thread = LoopThread(f"engine of {self.policy}")

        @asynccontextmanager
        async def opened() -> AsyncIterator[Callable[[Prompt], Awaitable[Group | Failure]]]:
            async with OpenAIClient(self.options) as client:
                yield lambda prompt: self.sample_one(client, prompt, settings)

        size = self.options.concurrency
        for index, found in results_of(self._thread, prompts, opened(), size, "the engine"):
            if isinstance(found, Group):
                report(found.sampled_tokens())
            yield index, found

    def capacity(self, settings: Settings) -> int:
        return capacity_for(self.options.concurrency)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def sample_one(
        self, client: OpenAIClient, prompt: Prompt, settings: Settings
    ) -> Group | Failure:
        if self.encode is None and prompt.token_ids is not None:
            refused = f"api '{self.options.api}' cannot sample from token ids"
            raise EngineError(refused, "choose api: completions or generate")
        try:
            ids = None if self.encode is None else prompt_ids(prompt, self.encode)
            if settings.n > 1 and self.options.server.one_sample_per_request:
                return await self._sample_apart(client, prompt, ids, settings)
            return await self._answer(client, prompt, ids, settings)
        except TemplateRefusedError as error:
            return Failure("template_refused", str(error))
        except AttemptError as error:
            return Failure(error.reason, error.line)

    async def _sample_apart(
        self, client: OpenAIClient, prompt: Prompt, ids: list[int] | None, settings: Settings
    ) -> Group:
        """The samples of one prompt by a request for each; the first that fails ends the others."""
        groups = dict[int, Group]()

        async def sample(index: int) -> None:
            # The seeds that vLLM gives the responses of one request: they are the same samples.
            alone = prompt._replace(seed=prompt.seed + index)
            groups[index] = await self._answer(client, alone, ids, settings._replace(n=1))

        await run_concurrently(sample, range(settings.n), settings.n)
        versions = [group.version for group in groups.values()]
        if self.exact:  # On-policy training could not use a group of several versions.
            _check_one_version(versions)
        samples = chain.from_iterable(groups[index].samples for index in range(settings.n))
        return groups[0]._replace(version=min(versions), samples=tuple(samples))

    async def _answer(
        self, client: OpenAIClient, prompt: Prompt, ids: list[int] | None, settings: Settings
    ) -> Group:
        # The probe has the first tokens of the prompt itself: a template may refuse any other chat.
        short = None if ids is None else ids[:8]
        request, probe = (
            self._request(*each, settings) for each in ((prompt, ids), (_PROBE, short))
        )
        return await client.answer(request, probe, self.failed_attempts)

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
