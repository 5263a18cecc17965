"""Flows and tools that rejuice does not ship run in processes of their own.

A thread cannot be ended, and what blocks an event loop takes it from all trajectories. So a
process works on one trajectory of a flow, or on one call of a tool, at a time. It is killed when
that is cancelled, such as by the time limit of its trajectory, and serves the next one otherwise:
what a part keeps in `self`, each process keeps.

    IsolatedFlow.run(task, play)  <── act, call, ... ──>  Flow.run(task, RemotePlay)
    IsolatedTool.functions()      ───── arguments ────>   Tool.call(...)

The processes of a part are forks of one that has imported its code and done nothing else, so that
another one costs milliseconds. `isolated_process.py` is what runs in them.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import pickle
import resource
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakSet

from ..errors import RejuiceError
from ..functions.process import described
from ..process_pool import SIZE, STARTUP_SECONDS, ForkingProcess, python_path
from ..registry import registered
from ..workers import usable_cores
from .flow import Flow
from .isolated_process import PartSetup, passable
from .play import Play, TrajectoryEnd
from .tool import Tool, ToolError, ToolFunction
from .trajectory import Task

_PER_CORE, _MOST = 32, 512  # processes of a part
_AT_ONCE = 64  # processes that start; a socket holds the orders for some more
SHORT_S = 0.2
"""How long the others wait for one that is at work, see `any_at_work`."""
_ENDED = "its process ended (a crash, an exit, or out of memory)"
_P = TypeVar("_P", Flow, Tool)


def isolated(part: _P, entry: Mapping[str, Any]) -> _P:
    """A flow or a tool that runs in processes of its own, or the part itself if it is ours.

    `entry` is its name with its fields, as in the recipe.
    """
    if type(part).__module__.partition(".")[0] == __name__.partition(".")[0]:
        return part
    apart: Any = IsolatedFlow if isinstance(part, Flow) else IsolatedTool
    return cast(_P, apart(part, entry))


# --- Processes ------------------------------------------------------------------------


class _OfThread(threading.local):
    """The processes of the event loop of a thread."""

    def __init__(self) -> None:
        self.processes: WeakSet[PartProcess] = WeakSet()


_here = _OfThread()


def any_at_work() -> bool:
    """Whether a process of this loop was asked something a moment ago and has not answered."""
    now = asyncio.get_running_loop().time()
    return any(now - each.asked < SHORT_S for each in _here.processes)


async def _nothing(*_: Any) -> Any:
    raise AssertionError("a tool asks for nothing")


class PartProcess:
    """A process at work on one thing at a time. Its messages are (kind, number, value)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.pid = 0
        self.asked = -math.inf
        """When it last got something to do, until it answers."""
        _here.processes.add(self)

    async def work(
        self, *work: Any, answer: Callable[..., Awaitable[Any]] = _nothing
    ) -> tuple[str, Any]:
        """What becomes of a piece of work: `result`, `end` or `failed`, and its value.

        `answer` is what the process asks for meanwhile. An EOFError: the process has ended.
        """
        under_way = dict[int, asyncio.Task[None]]()
        self._tell("work", 0, work)
        try:
            while True:
                kind, number, value = await self.next()
                if kind == "ask":
                    under_way[number] = asyncio.ensure_future(self._answer(number, answer, value))
                elif kind == "cancel":
                    under_way.pop(number).cancel()
                else:
                    return kind, value
        finally:
            for task in under_way.values():
                task.cancel()

    async def next(self) -> tuple[str, int, Any]:
        """The next message; an EOFError if the process has ended."""
        try:
            (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
            body = await self._reader.readexactly(size)
        except (EOFError, OSError):
            raise EOFError(_ENDED) from None
        self.asked = -math.inf
        return pickle.loads(body)  # type: ignore[no-any-return]

    @property
    def has_ended(self) -> bool:
        return self._reader.at_eof()

    def close(self) -> None:
        """Let it end when it is done."""
        self._writer.close()
        _here.processes.discard(self)

    async def _answer(
        self, number: int, answer: Callable[..., Awaitable[Any]], asked: Sequence[Any]
    ) -> None:
        try:
            kind, value = "answer", await answer(*asked)
        except TrajectoryEnd as end:
            kind, value = "raise", end
        except BaseException as error:  # It may be of a type that is known here only.
            kind, value = "raise", RuntimeError(described(error))
        self._tell(kind, number, value)

    def _tell(self, kind: str, number: int, value: Any) -> None:
        body = pickle.dumps((kind, number, value))
        self._writer.write(SIZE.pack(len(body)) + body)
        self.asked = asyncio.get_running_loop().time()


class PartProcesses:
    """The processes of a part, for one event loop; the first one is started when it is needed."""

    def __init__(self, part: Flow | Tool, entry: Mapping[str, Any]) -> None:
        kind = type(part)
        installed = kind.name() in registered(f"rejuice.{kind.noun}s")
        files = [] if installed else [inspect.getfile(kind)]
        self._setup = pickle.dumps(PartSetup(kind.noun, entry, files, kind.__module__))
        self._forking: ForkingProcess | None = None
        self._idle = list[PartProcess]()
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = min(_PER_CORE * usable_cores(), _MOST, descriptors // 8)
        self._free, self._starting = asyncio.Semaphore(most), asyncio.Semaphore(_AT_ONCE)

    @asynccontextmanager
    async def process(
        self, waiting: AbstractContextManager[None] | None = None
    ) -> AsyncIterator[PartProcess]:
        """A process for one piece of work; whatever is raised meanwhile ends it.

        `waiting` is entered until there is one. An EOFError: its code does not import there, or its
        process has ended.
        """
        with waiting or nullcontext():
            await self._free.acquire()
            try:
                process = await self._taken()
            except BaseException:
                self._free.release()
                raise
        try:
            yield process
            self._idle.append(process)
        except BaseException:
            self._kill(process)
            raise
        finally:
            self._free.release()

    async def close(self) -> None:
        """Let all processes close their part and end; the next use starts others."""
        for each in self._idle:
            each.close()
        self._idle.clear()
        if self._forking is not None:
            forking, self._forking = self._forking, None
            await asyncio.to_thread(forking.close)

    async def _taken(self) -> PartProcess:
        while self._idle:
            process = self._idle.pop()
            if not process.has_ended:
                return process
            self._kill(process)
        async with self._starting:
            return await self._new()

    async def _new(self) -> PartProcess:
        try:
            link = self._started().fork()
        except OSError:  # The one that forks has ended; the next use starts another.
            await self.close()
            raise EOFError(_ENDED) from None
        process = PartProcess(*await asyncio.open_connection(sock=link))
        process.asked = math.inf
        try:
            kind, _, value = await asyncio.wait_for(process.next(), STARTUP_SECONDS)
            if kind == "failed":
                raise EOFError(f"its code does not import in a process of its own: {value}")
        except asyncio.TimeoutError:
            process.close()
            raise EOFError(f"its code is not imported after {STARTUP_SECONDS:g} s") from None
        except BaseException:
            process.close()
            raise
        process.pid = value
        return process

    def _started(self) -> ForkingProcess:
        if self._forking is None:
            self._forking = ForkingProcess(
                "agents.isolated_process",
                self._setup,
                path=python_path(),
                command=(sys.executable, "-u"),
                stdout=None,
                # A file that looks for a GPU when it is imported leaves it to the forks.
                env={**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
            )
        return self._forking

    def _kill(self, process: PartProcess) -> None:
        process.close()
        if self._forking is not None and process.pid:
            self._forking.end(process.pid)


# --- Flows and tools ------------------------------------------------------------------


class _Isolated:
    """What is not done in its processes is done by the part itself."""

    def __init__(self, part: Flow | Tool, entry: Mapping[str, Any]) -> None:
        self.part, self._processes = part, PartProcesses(part, entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)

    async def close(self) -> None:
        await self._processes.close()


class IsolatedFlow(_Isolated):
    """A flow of a user's, which runs in processes of its own, under the same budgets."""

    async def run(self, task: Task, play: Play) -> str | None:
        errors = list[RejuiceError]()

        async def answer(name: str, *arguments: Any) -> Any:
            try:
                found = getattr(play, name)
                found = found(*arguments) if callable(found) else found
                found = await found if inspect.isawaitable(found) else found
            except RejuiceError as error:
                errors.append(error)
                raise
            return [passable(each) for each in found] if name == "tools" else found

        try:
            async with self._processes.process(play.waiting()) as process:
                kind, value = await process.work("run", task, answer=answer)
        except EOFError as error:
            kind, value = "failed", str(error)
        if errors:  # Whatever the flow made of it.
            raise errors[0]
        if kind == "failed":
            raise TrajectoryEnd("flow_failed", f"{self.part.name()}: {value}")
        if kind == "end":
            raise TrajectoryEnd(*value)
        answered: str | None = value
        return answered


class IsolatedTool(_Isolated):
    """A tool of a user's, whose calls run in processes of its own."""

    part: Tool

    async def functions(self) -> Sequence[ToolFunction]:
        try:
            known = await asyncio.wait_for(self._asked("functions", {}), STARTUP_SECONDS)
        except asyncio.TimeoutError:
            found = f"'{self.part.name()}' does not say what it has after {STARTUP_SECONDS:g} s"
            raise ToolError(found) from None
        if type(self.part).functions is Tool.functions:
            known = await self.part.functions()  # The same, and they know what they refuse.
        return [each._replace(call=partial(self._asked, each.name)) for each in known]

    async def _asked(self, name: str, arguments: Any, task: Any = None) -> Any:
        try:
            async with self._processes.process() as process:
                kind, value = await process.work(name, arguments, task)
        except EOFError as error:
            raise ToolError(str(error)) from None
        if kind == "failed":
            raise ToolError(value)
        return value
