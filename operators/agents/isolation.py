"""Flows and tools that rejuice does not ship run in processes of their own.

A thread cannot be ended, and what blocks an event loop takes it from all trajectories. So a
process works on one trajectory of a flow, or on one call of a tool, at a time. It is killed when
that is cancelled, such as by the time limit of its trajectory, and serves the next one otherwise:
what a part keeps in `self`, each process keeps.

    IsolatedFlow.run(task, play)  <── act, call, ... ──>  Flow.run(task, RemotePlay)
    IsolatedTool.functions()      ───── arguments ────>   Tool.call(...)

The processes of a part are forks of one that has imported its code and done nothing else, so that
another one costs milliseconds.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import pickle
import resource
import select
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

from ..errors import RejuiceError
from ..functions.process import described
from ..process_pool import (
    SERVER_ENDS_S,
    SIZE,
    STARTUP_SECONDS,
    ForkingProcess,
    python_path,
    receive,
    send,
    serve_forks,
)
from ..registry import registered
from ..workers import end_group, exit_with_parent, usable_cores
from .flow import Flow, build_flow, build_tools
from .play import Play, TrajectoryEnd
from .tool import Observation, Tool, ToolError, ToolFunction
from .trajectory import Task

_PER_CORE, _MOST = 32, 512  # processes of a part
_AT_ONCE = 64  # processes that start; a socket holds the orders for some more
SHORT_S = 0.2
"""How long the others wait for one that is at work, see `any_at_work`."""
_CLOSE_SECONDS = 2.0
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


# --- Processes, as this one sees them -------------------------------------------------


_of_loop = WeakKeyDictionary[asyncio.AbstractEventLoop, "WeakSet[PartProcess]"]()


def any_at_work() -> bool:
    """Whether a process of this loop was asked something a moment ago and has not answered."""
    loop = asyncio.get_running_loop()
    return any(loop.time() - each.asked < SHORT_S for each in _of_loop.get(loop, ()))


async def _nothing(*_: Any) -> Any:
    raise AssertionError("a tool asks for nothing")


class PartProcess:
    """A process at work on one thing at a time. Its messages are (kind, number, value)."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        end: Callable[[], socket.socket],
    ) -> None:
        self._reader, self._writer, self._end = reader, writer, end
        self.asked = -math.inf
        """When it last got something to do, until it answers."""
        _of_loop.setdefault(asyncio.get_running_loop(), WeakSet()).add(self)

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
        self.asked = -math.inf

    def kill(self) -> None:
        """End it now, with what it has started."""
        self.close()
        with suppress(OSError):  # The one that has forked it has ended, and so has it.
            self._end().close()

    async def _answer(
        self, number: int, answer: Callable[..., Awaitable[Any]], asked: Sequence[Any]
    ) -> None:
        try:
            self._tell("answer", number, await answer(*asked))
        except TrajectoryEnd as end:
            self._tell("raise", number, end)
        except BaseException as error:  # It may be of a type that is known here only.
            self._tell("raise", number, RuntimeError(described(error)))

    def _tell(self, kind: str, number: int, value: Any) -> None:
        body = pickle.dumps((kind, number, value))
        self._writer.write(SIZE.pack(len(body)) + body)
        self.asked = asyncio.get_running_loop().time()


class PartSetup(NamedTuple):
    """Which flow or tool it is. The name of the module of a file changes with its content."""

    noun: str
    entry: Mapping[str, Any]
    files: Sequence[str]
    module: str

    def build(self) -> Flow | Tool:
        files = [Path(each) for each in self.files]
        is_flow = self.noun == "flow"
        part = build_flow(self.entry, files) if is_flow else build_tools([self.entry], files)[0]
        if type(part).__module__ != self.module:
            raise RuntimeError(f"{files[0]} was edited since the run began; start it again")
        return part


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
            process.kill()
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
            process.kill()
        async with self._starting:
            return await self._new()

    async def _new(self) -> PartProcess:
        try:
            link, end = self._started().fork()
        except ConnectionError:  # The one that forks has ended; the next use starts another.
            await self.close()
            raise EOFError(_ENDED) from None
        except OSError as error:  # Such as too many open files.
            raise EOFError(f"no process can be started for it: {error}") from None
        process = PartProcess(*await asyncio.open_connection(sock=link), end)
        process.asked = math.inf
        try:
            kind, _, value = await asyncio.wait_for(process.next(), STARTUP_SECONDS)
            if kind == "failed":
                raise EOFError(f"its code does not import in a process of its own: {value}")
        except BaseException as error:
            process.kill()
            if isinstance(error, asyncio.TimeoutError):
                found = f"its code is not imported after {STARTUP_SECONDS:g} s"
                raise EOFError(found) from None
            raise
        return process

    def _started(self) -> ForkingProcess:
        if self._forking is None:
            self._forking = ForkingProcess(
                "agents.isolation",
                self._setup,
                path=python_path(),
                command=(sys.executable, "-u"),
                stdout=None,
                # A file that looks for a GPU when it is imported leaves it to the forks.
                env={**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
            )
        return self._forking


# --- Flows and tools ------------------------------------------------------------------


class _Isolated:
    """What is not done in its processes is done by the part itself."""

    def __init__(self, part: Flow | Tool, entry: Mapping[str, Any]) -> None:
        self.part, self._processes = part, PartProcesses(part, entry)

    def __getattr__(self, name: str) -> Any:
        if name == "part" or name.startswith("__"):  # Such as what `copy` looks for.
            raise AttributeError(name)
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


# --- What runs in the processes -------------------------------------------------------
# Each is a fork of one that has imported the code. It serves one piece of work after the other, in
# one event loop, until its socket is closed.


class RemotePlay:
    """`Play`, for a flow that runs in another process: what it has, this one asks for."""

    def __init__(self, server: _PartServer) -> None:
        self._server, self._work = server, server.done
        self.memory: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Such as what `copy` looks for.
            raise AttributeError(name)
        method = getattr(Play, name, None)
        if not inspect.isfunction(method):
            return self._current().ask_now(name)

        def ask(*arguments: Any, **named: Any) -> Any:
            bound = inspect.signature(method).bind(self, *arguments, **named)
            if "messages" in bound.arguments:  # They may come from a generator.
                bound.arguments["messages"] = tuple(bound.arguments["messages"])
            server, is_async = self._current(), inspect.iscoroutinefunction(method)
            return (server.ask if is_async else server.ask_now)(name, *bound.args[1:])

        return ask

    def _current(self) -> _PartServer:
        # A task that a flow has left behind must not act in the next trajectory.
        if self._server.done != self._work:
            raise asyncio.CancelledError("the trajectory is over")
        return self._server


class _PartServer:
    """Serves pieces of work, each of which may ask the other side for something meanwhile."""

    def __init__(self, link: socket.socket, part: Flow | Tool) -> None:
        self._link, self._part = link, part
        self._file = inspect.getfile(type(part))
        self._functions: dict[str, ToolFunction] | None = None
        self._todo = asyncio.Queue[tuple[Any, ...] | None]()
        self._asked = dict[int, asyncio.Future[Any]]()
        self._numbers, self._busy = count(), False
        self.done = 0
        """Pieces of work."""

    async def serve(self) -> None:
        """Work until the other side closes the connection."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._link, self._take_if_there)
        self._tell("ready", 0, None)
        while (work := await self._todo.get()) is not None:
            kind, value = await self._outcome(*work)
            self._busy, self.done = False, self.done + 1
            self._asked.clear()
            if isinstance(self._part, Flow):  # A tool's client may have tasks that last.
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                await asyncio.sleep(0)
            try:
                self._tell(kind, 0, value)
            except Exception as error:  # It cannot be passed on.
                self._tell("failed", 0, described(error))
        loop.remove_reader(self._link)
        with suppress(BaseException):
            await asyncio.wait_for(self._part.close(), _CLOSE_SECONDS)

    async def ask(self, *asked: Any) -> Any:
        """What the other side answers to a name and arguments; what it raises, is raised."""
        number, answer = self._send_question(asked)
        try:
            return await answer
        except asyncio.CancelledError:
            if self._asked.pop(number, None) is not None:  # Else the work has ended.
                self._tell("cancel", number, None)
            raise

    def ask_now(self, *asked: Any) -> Any:
        """The same for code that cannot wait: nothing else runs meanwhile."""
        _, answer = self._send_question(asked)
        while not answer.done():
            self._take()
        return answer.result()

    def _send_question(self, asked: tuple[Any, ...]) -> tuple[int, asyncio.Future[Any]]:
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._tell("ask", number, asked)
        return number, answer

    def _tell(self, kind: str, number: int, value: Any) -> None:
        send(self._link, pickle.dumps((kind, number, value)))

    def _take_if_there(self) -> None:
        # What has made the link readable may be taken already, by `ask_now`.
        if select.select([self._link], [], [], 0)[0]:
            self._take()

    def _take(self) -> None:
        try:
            kind, number, value = pickle.loads(receive(self._link))
        except (EOFError, OSError):
            if self._busy:  # Nobody waits for the result any more.
                end_group()
            self._todo.put_nowait(None)
            return
        if kind == "work":
            self._busy = True
            self._todo.put_nowait(value)
            return
        answer = self._asked.pop(number, None)
        if answer is None or answer.done():  # It was cancelled.
            return
        if kind == "answer":
            answer.set_result(value)
        else:
            answer.set_exception(value)

    async def _outcome(self, name: str, *arguments: Any) -> tuple[str, Any]:
        try:
            if isinstance(self._part, Tool):
                return "result", await self._called(self._part, name, *arguments)
            (task,) = arguments
            return "result", await self._part.run(Task(*task), cast(Play, RemotePlay(self)))
        except TrajectoryEnd as end:
            return "end", (end.reason, end.detail)
        except ToolError as error:
            return "failed", str(error)
        except BaseException as error:  # SystemExit, too, is a failure of this work alone.
            return "failed", described(error, self._file)

    async def _called(self, tool: Tool, name: str, arguments: Any, task: Any) -> Any:
        """What a function of the tool gives, or without a task, which functions it has."""
        if self._functions is None:
            self._functions = {each.name: each for each in await tool.functions()}
        if task is not None:
            return await self._functions[name].call(arguments, task)
        return [passable(each) for each in self._functions.values()]


def passable(function: ToolFunction) -> ToolFunction:
    """What another process may know of a function: all but how it is called."""
    return ToolFunction(*function[:3], _elsewhere, revision=function.revision)


async def _elsewhere(*_: Any) -> Observation:
    raise RuntimeError("a flow calls tools by `play.call`")


def main(descriptor: int, parent: int) -> None:
    """Serve by forks; each builds its own part."""
    # Once it serves, it sees that end itself, and ends what its forks have started.
    exit_with_parent(parent, group=True, grace_s=SERVER_ENDS_S)
    with socket.socket(fileno=descriptor) as control:
        setup: PartSetup = pickle.loads(receive(control))
        failure = ""
        try:
            setup.build()  # For its imports.
        except BaseException as error:
            failure = described(error)
        serve_forks(control, partial(_serve, setup, failure))


def _serve(setup: PartSetup, failure: str, link: socket.socket) -> None:
    if failure:
        send(link, pickle.dumps(("failed", 0, failure)))
        return
    if "numpy" in sys.modules:  # `random` does so itself.
        sys.modules["numpy"].random.seed()
    server = _PartServer(link, setup.build())
    asyncio.new_event_loop().run_until_complete(server.serve())
