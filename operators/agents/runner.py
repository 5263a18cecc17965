"""Runs flows: many trajectories at the same time, in one event loop.

A trajectory depends on its task, its seed, the policy and its tools, and on nothing that runs
beside it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..errors import EngineError, FirstFailures, RejuiceError
from ..functions.process import described
from ..json_text import as_utf8
from ..logs import logger
from ..sampling.protocol import (
    Engine,
    Failure,
    Group,
    Prompt,
    Settings,
    TokenListener,
    listening,
    token_listener,
)
from ..sampling.tokenizer import Encode, Messages
from ..servers.concurrency import LoopThread, RefillRequest, work_on_demand
from .flow import Flow
from .isolation import SHORT_S, any_at_work
from .model import ModelError
from .play import Play, TrajectoryEnd, TurnSampler
from .tool import Tool, ToolError, ToolFunction, close_all
from .toolbox import Toolbox
from .trajectory import FAILURES, SeededTask, Task, Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    from ..sampling.openai_engine import OpenAIEngine
    from ..servers.client import OpenAIClient


# --- Samplers of turns ----------------------------------------------------------------
# Each trajectory waits for one turn at a time. A server batches the requests that it gets; any
# other engine is given all turns that wait, as one wave.

_WAVE = 512
"""Turns of a wave, at most: as many as a process of `transformers` decodes at a time."""
_QUIET_PASSES = 8
"""Passes of the event loop without a new turn after which all trajectories wait for turns or tools.
From a sample to the next turn, or from a task to the first turn, there are fewer."""
_PAUSE_S = 0.001  # while flows or tools are at work in other processes

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
    """Samples turns from an engine, which stays open, while the context lasts."""
    from ..sampling.openai_engine import OpenAIEngine

    if isinstance(engine, OpenAIEngine):
        from ..servers.client import OpenAIClient

        async with OpenAIClient(engine.options) as client:
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
    """Samples each turn by a request of its own, as soon as it is due."""

    def __init__(
        self,
        engine: OpenAIEngine,
        client: OpenAIClient,
        settings: Settings,
        report: TokenListener,
    ) -> None:
        self._engine, self._client, self._report = engine, client, report
        self._settings = settings._replace(n=1)

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group | Failure:
        """See `TurnSampler`."""
        settings = self._settings._replace(max_tokens=max_tokens)
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
    Whoever waits for a tool is in a later wave. Nothing else uses the engine meanwhile; `report` is
    called from the thread.
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
            wave = list[_WaitingTurn]()
            try:
                await self._quiet()
                await self._catch_up()
                await self._quiet()  # Until those that have begun wait as well.
                # A trajectory that has ended meanwhile, such as by its time limit, waits no more.
                wave = [turn for turn in self._waiting if not turn.found.done()]
                self._waiting = []
                # The order depends on all in which prompts differ, but for `max_tokens`.
                wave.sort(key=_order)
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

    async def _quiet(self) -> None:
        """Let everything run that can, so that the wave is as full as possible."""
        size, passes, now = len(self._waiting), 0, asyncio.get_running_loop().time
        late = now() + SHORT_S
        while passes < _QUIET_PASSES:
            busy = any_at_work() and now() < late  # One that is always at work is not waited for.
            await asyncio.sleep(_PAUSE_S if busy else 0)
            passes = 0 if busy else passes + 1
            if len(self._waiting) != size:
                size, passes, late = len(self._waiting), 0, now() + SHORT_S

    def _sample_wave(self, wave: Sequence[_WaitingTurn], loop: asyncio.AbstractEventLoop) -> None:
        """Sample a wave, in the thread."""

        def deliver(turn: _WaitingTurn, found: Group | Failure) -> None:
            if not turn.found.done():
                turn.found.set_result(found)

        prompts = [turn.prompt for turn in wave]
        with listening(self._report):
            for index, found in self._engine.sample(prompts, self._settings):
                if self._closed.is_set():
                    return
                loop.call_soon_threadsafe(deliver, wave[index], found)

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


def _order(turn: _WaitingTurn) -> tuple[int, tuple[int, ...], Messages]:
    prompt = turn.prompt
    return prompt.seed, tuple(prompt.token_ids or ()), prompt.messages


# --- Trajectories ---------------------------------------------------------------------

_TaskGroup: TypeAlias = tuple[int, TrajectoryGroup | Failure]
_first_failures = FirstFailures(logger(__name__).warning)


class _Place(NamedTuple):
    """Which trajectory: the number of its task, the task, and its index in the group."""

    task: int
    seeded: SeededTask
    nth: int


async def play_trajectory(flow: Flow, play: Play) -> Trajectory:
    """A trajectory of the task of `play`; whatever goes wrong in it is its finish reason.

    An EngineError: the engine itself has failed.
    """
    running = asyncio.ensure_future(flow.run(play.task, play))

    def late() -> None:
        if running.cancel():
            play.end("time_limit", f"tools and models took longer than {flow.seconds:g} s")

    try:
        with play.limited(late):
            await asyncio.wait([running])
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # Known, even if this trajectory is cancelled at this moment.
    answer = _answer(flow, running, play)
    end = play.ended or TrajectoryEnd("stop")
    response = None if end.reason in FAILURES else as_utf8(answer or "")
    return Trajectory(
        tuple(play.turns),
        response,
        end.reason,
        end.detail,
        play.first_failure,
        play.tool_seconds,
    )


class AgentRunner:
    """Runs the trajectories of many tasks.

    During a run nothing else uses the engine, which stays open. At most `under_way` trajectories
    run at a time, None: as many as keep the engine busy; further ones begin as these end.
    """

    def __init__(
        self,
        flow: Flow,
        tools: Sequence[Tool],
        engine: Engine,
        settings: Settings,
        *,
        policy: str,
        encode: Encode | None,
        max_prompt_tokens: int | None = None,
        under_way: int | None = None,
    ) -> None:
        flow.check(encode)
        self._flow, self._tools, self._models = flow, tools, flow.models()
        self._engine, self._settings, self._policy = engine, settings, policy
        self._encode, self._under_way = encode, under_way or turns_at_a_time(engine)
        self._max_prompt_tokens = max_prompt_tokens
        self._toolbox: Toolbox | None = None
        self._thread: LoopThread | None = None

    def run(self, tasks: Iterable[SeededTask], n: int) -> Iterator[_TaskGroup]:
        """Groups as they finish, each with the index of its task; every index exactly once.

        Tasks are taken in the thread that iterates, as trajectories end: at most as many
        trajectories wait for their beginning as are under way. A Failure has the engine's reason
        why the first turn could not be sampled. Sampled tokens are reported to
        `protocol.token_listener()`.
        """
        report = token_listener()
        if self._thread is None:
            self._thread = LoopThread(f"agents of {self._policy}")
        size, unfinished = self._under_way, dict[int, dict[int, Trajectory]]()
        # As many again wait, so that they begin while the thread that iterates is busy.
        places = (_Place(*task, k) for task in enumerate(tasks) for k in range(n))
        results: Iterator[int | tuple[_Place, Trajectory]] = work_on_demand(
            self._thread, places, self._open_work, size, 2 * size
        )
        try:
            for found in results:
                if isinstance(found, int):
                    report(found)
                    continue
                (task, seeded, nth), trajectory = found
                group = unfinished.setdefault(task, {})
                group[nth] = trajectory
                if len(group) == n:
                    del unfinished[task]
                    yield task, self._group([group[k] for k in range(n)], seeded.seed)
        except asyncio.CancelledError:
            raise EngineError("the runner was closed while trajectories were under way") from None

    def close(self) -> None:
        """Close the tools, the frozen models and the flow. Closing twice is no error."""
        if self._thread is not None:
            try:
                self._thread.run(close_all(*self._tools, *self._models.values(), self._flow))
            finally:
                self._thread.close()
                self._thread = self._toolbox = None
        _first_failures.clear()

    @asynccontextmanager
    async def _open_work(
        self, put: Callable[[int | tuple[_Place, Trajectory] | RefillRequest], None]
    ) -> AsyncIterator[Callable[[_Place], Awaitable[None]]]:
        if self._toolbox is None:
            try:
                self._toolbox = await Toolbox.of(self._tools)
            except ToolError as error:
                raise EngineError("the tools cannot be used", str(error)) from error
        toolbox = self._toolbox

        async def catch_up() -> None:
            refill = RefillRequest()
            put(refill)
            await refill.wait()

        async with turn_sampler(self._engine, self._settings, put, catch_up) as sampler:

            async def play(place: _Place) -> None:
                put((place, await self._trajectory(place, sampler, toolbox)))

            yield play

    async def _trajectory(
        self, place: _Place, sampler: TurnSampler, toolbox: Toolbox
    ) -> Trajectory:
        task, seed = place.seeded
        play = Play(
            task, self._flow, sampler=sampler, encode=self._encode, toolbox=toolbox,
            models=self._models, max_tokens=self._settings.max_tokens,
            max_prompt_tokens=self._max_prompt_tokens, seed=seed, index=place.nth,
        )  # fmt: skip
        found = await play_trajectory(self._flow, play)
        if found.finish_reason in FAILURES and found.first_failure is None:
            message = f"a trajectory failed with {found.finish_reason}: {found.detail}"
            _first_failures.report(found.finish_reason, message)
        return found

    def _group(self, trajectories: Sequence[Trajectory], seed: int) -> TrajectoryGroup | Failure:
        failures = [each.first_failure for each in trajectories]
        if failures[0] is not None and None not in failures:
            return failures[0]
        turns = [turn for trajectory in trajectories for turn in trajectory.actions]
        versions = [turn.policy_version for turn in turns if turn.policy_version is not None]
        # A server may take no seed; then that of the prompt has decided nothing.
        unseeded = turns and all(turn.seed is None for turn in turns)
        return TrajectoryGroup(
            self._policy, min(versions, default=0), None if unseeded else seed, tuple(trajectories)
        )


def _answer(flow: Flow, done: asyncio.Future[str | None], play: Play) -> str | None:
    """What a flow returned, None where it was ended or failed.

    Raised is an error of the engine, whatever the flow made of it.
    """
    if play.broken is not None:
        raise play.broken
    if done.cancelled():
        if play.ended is None:
            play.end("flow_failed", f"{flow.name()}: it cancelled itself")
        return None
    error = done.exception()
    if error is None:
        answer = done.result()
        if answer is None or isinstance(answer, str):
            return answer
        returned = f"{flow.name()}: it returned {type(answer).__name__}, not text or None"
        play.end("flow_failed", returned)
    elif isinstance(error, TrajectoryEnd):
        play.end(error.reason, error.detail)
    elif isinstance(error, RejuiceError):
        raise error
    else:
        own = getattr(sys.modules.get(type(flow).__module__), "__file__", None)
        play.end("flow_failed", f"{flow.name()}: {described(error, own)}")
    return None


# --- What a flow and its tools show to the policy, for `rejuice explain` --------------


def functions_of(tools: Sequence[Tool]) -> list[ToolFunction]:
    """What tools give the policy to call."""

    async def functions() -> list[ToolFunction]:
        try:
            return [each for tool in tools for each in await tool.functions()]
        finally:
            await close_all(*tools)

    with closing(LoopThread("descriptions of tools")) as loop:
        return loop.run(functions())


class _Seen:
    """Samples nothing, and keeps the first prompt; as a frozen model, it gives no answer."""

    messages: Messages | None = None

    async def sample(self, prompt: Prompt, max_tokens: int) -> Failure:
        self.messages = self.messages or prompt.messages
        return Failure("not_sampled", "")

    async def ask(self, messages: Messages) -> str:
        raise ModelError("it is not asked")

    async def close(self) -> None:
        pass


def first_prompt(
    flow: Flow, functions: Sequence[ToolFunction], prompt: Messages
) -> Messages | None:
    """What the policy sees first; None where frozen models, which are not asked, come before it.

    A ToolError: the flow fails before it asks the policy.
    """
    seen = _Seen()

    async def played() -> Trajectory:
        try:
            play = Play(
                Task("", prompt, dict.fromkeys(flow.reads())), flow, sampler=seen, encode=None,
                toolbox=Toolbox(functions), models=dict.fromkeys(flow.models(), seen),
                max_tokens=1, seed=0, index=0,
            )  # fmt: skip
            return await play_trajectory(flow, play)
        finally:
            await flow.close()

    with closing(LoopThread("a first prompt")) as loop:
        found = loop.run(played())
    if seen.messages is None and found.finish_reason in ("flow_failed", "time_limit"):
        raise ToolError(found.detail)
    return seen.messages
