"""Turns of trajectories as engines sample them: by HTTP one at a time, otherwise in waves.

Each trajectory waits for one turn at a time. A server batches the requests that it gets; any other
engine is given all turns that wait, as one wave.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..errors import EngineError, RejuiceError
from ..sampling.protocol import Engine, Failure, Group, Prompt, Settings
from ..sampling.token_count import TokenListener, listening
from ..sampling.tokenizer import Messages
from .play import TurnSampler

if TYPE_CHECKING:
    from ..sampling.openai_engine import OpenAIEngine
    from ..servers.client import OpenAIClient

_WAVE = 512
"""Turns of a wave, at most: as many as a process of `transformers` decodes at a time."""
_QUIET_PASSES = 8
"""Passes of the event loop without a new turn after which all trajectories wait for turns or tools.
From a sample to the next turn, or from a task to the first turn, there are fewer."""

CatchUp: TypeAlias = Callable[[], Awaitable[None]]
"""Returns once trajectories have been begun in place of all that have ended."""


async def _nobody_to_wait_for() -> None:
    """How a sampler catches up where no trajectory begins later."""


@asynccontextmanager
async def turn_sampler(
    engine: Engine,
    settings: Settings,
    report: TokenListener,
    catch_up: CatchUp = _nobody_to_wait_for,
) -> AsyncIterator[TurnSampler]:
    """Samples turns from an engine, which stays open, while the context lasts.

    Args:
        engine: nothing else uses it meanwhile.
        settings: of every turn; n is 1, whatever it says.
        report: called with numbers of sampled tokens, from any thread.
        catch_up: awaited before each wave.

    Raises:
        EngineError: there is no key for the server.
    """
    from ..sampling.openai_engine import OpenAIEngine

    if isinstance(engine, OpenAIEngine):
        from ..servers.client import OpenAIClient

        async with OpenAIClient(engine.options, engine.options.concurrency) as client:
            yield ServerSampler(engine, client, settings, report)
        return
    waves = EngineSampler(engine, settings, report, catch_up)
    try:
        yield waves
    finally:
        await waves.close()


def turns_at_a_time(engine: Engine) -> int:
    """How many trajectories keep an engine busy."""
    from ..sampling.openai_engine import OpenAIEngine

    return engine.options.concurrency if isinstance(engine, OpenAIEngine) else _WAVE


class ServerSampler:
    """Samples each turn by a request of its own, as soon as it is due.

    Args:
        engine: whose requests, retries and probes are used.
        client: of the running event loop.
        settings: of every turn.
        report: called with the number of sampled tokens.
    """

    def __init__(
        self,
        engine: OpenAIEngine,
        client: OpenAIClient,
        settings: Settings,
        report: TokenListener,
    ) -> None:
        self._engine, self._client, self._report = engine, client, report
        self._settings = settings._replace(n=1)
        # Not left to the client's connections: waiting for one would count as the server's time.
        self._free = asyncio.Semaphore(engine.options.concurrency)

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group | Failure:
        """See `TurnSampler`."""
        settings = self._settings._replace(max_tokens=max_tokens)
        async with self._free:
            found = await self._engine.sample_one(self._client, prompt, settings)
        if isinstance(found, Group):
            self._report(found.sampled_tokens())
        return found


class _WaitingTurn(NamedTuple):
    prompt: Prompt
    found: asyncio.Future[Group | Failure]


class EngineSampler:
    """Samples turns in waves, one after the other, in a thread of its own.

    A wave is sent when the engine is idle, the event loop has nothing more to do, and further
    trajectories have begun in place of those that have ended. It has all turns that wait then, in
    the order of their seeds. So the waves of two runs are the same where no tool takes time, and
    with an engine in one process the last bits of log-probabilities, which depend on the batch.
    Whoever waits for a tool is in a later wave.

    Args:
        engine: nothing else uses it meanwhile.
        settings: of every turn.
        report: called with numbers of sampled tokens, from the thread.
        catch_up: awaited before each wave.
    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        report: TokenListener,
        catch_up: CatchUp = _nobody_to_wait_for,
    ) -> None:
        self._engine, self._settings = engine, settings._replace(n=1)
        self._report, self._catch_up = report, catch_up
        self._waiting: list[_WaitingTurn] = []
        self._waves: asyncio.Task[None] | None = None
        self._under_way: Future[None] | None = None
        self._broken: EngineError | None = None
        self._closed = threading.Event()
        # Not the pool of the event loop: there, tools that hang could take all the threads.
        self._thread = ThreadPoolExecutor(1, "waves of turns")

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group | Failure:
        """See `TurnSampler`."""
        if self._broken is not None:
            raise self._broken
        loop = asyncio.get_running_loop()
        turn = _WaitingTurn(prompt._replace(max_tokens=max_tokens), loop.create_future())
        self._waiting.append(turn)
        if self._waves is None or self._waves.done():
            self._waves = loop.create_task(self._sample_waves())
        return await turn.found

    async def close(self) -> None:
        """Leave the wave under way at its next response."""
        self._closed.set()
        if self._waves is not None:
            self._waves.cancel()
        if self._under_way is not None:
            await asyncio.wait([asyncio.wrap_future(self._under_way)])
        self._thread.shutdown(wait=False)

    async def _sample_waves(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            wave: Sequence[_WaitingTurn] = ()
            try:
                await self._quiet()
                await self._catch_up()
                await self._quiet()  # Until those that have begun wait as well.
                wave = self._next_wave()
                self._under_way = self._thread.submit(self._sample_wave, wave, loop)
                await asyncio.shield(asyncio.wrap_future(self._under_way))
                left = sum(not turn.found.done() for turn in wave)
                if left:
                    raise EngineError(f"the engine left out {left} of {len(wave)} prompts")
            except BaseException as error:  # One that is not passed on leaves all waiting for ever.
                if self._closed.is_set():
                    raise
                self._break(error, [*wave, *self._waiting])
                return

    def _next_wave(self) -> Sequence[_WaitingTurn]:
        """The turns that wait, in an order that does not depend on which came first."""
        # A trajectory that has ended meanwhile, such as by its time limit, waits no more.
        wave = [turn for turn in self._waiting if not turn.found.done()]
        wave.sort(key=lambda turn: _order(turn.prompt))
        self._waiting = []
        return wave

    async def _quiet(self) -> None:
        """Let everything run that can, so that the wave is as full as possible."""
        size, passes = len(self._waiting), 0
        while passes < _QUIET_PASSES:
            await asyncio.sleep(0)
            passes = passes + 1 if len(self._waiting) == size else 0
            size = len(self._waiting)

    def _sample_wave(self, wave: Sequence[_WaitingTurn], loop: asyncio.AbstractEventLoop) -> None:
        """Sample a wave, in the thread."""
        prompts = [turn.prompt for turn in wave]
        with listening(self._report):
            for index, found in self._engine.sample(prompts, self._settings):
                if self._closed.is_set():
                    return
                loop.call_soon_threadsafe(_deliver, wave[index], found)

    def _break(self, error: BaseException, turns: Sequence[_WaitingTurn]) -> None:
        """Pass on the engine's error to all that wait, and to whoever comes later."""
        if isinstance(error, EngineError):
            self._broken = error
        else:
            named = str(error) if isinstance(error, RejuiceError) else repr(error)
            self._broken = EngineError("the engine has failed", named)
            self._broken.__cause__ = error
        for turn in turns:
            if not turn.found.done():
                turn.found.set_exception(self._broken)


def _order(prompt: Prompt) -> tuple[int, tuple[int, ...], Messages]:
    """Differs for prompts that differ, but for `max_tokens`."""
    return prompt.seed, tuple(prompt.token_ids or ()), prompt.messages


def _deliver(turn: _WaitingTurn, found: Group | Failure) -> None:
    if not turn.found.done():
        turn.found.set_result(found)
