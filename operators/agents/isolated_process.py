"""What runs in the processes of a flow or a tool: see `isolation.py`.

They are forks of one that has imported the code. Each serves one piece of work after the other, in
one event loop, until its socket is closed.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import select
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast

from ..functions.process import described
from ..process_pool import receive, send, serve_forks
from ..sampling.tokenizer import Messages
from ..workers import end_group, exit_with_parent
from .flow import Flow, build_flow, build_tools
from .play import Play, TrajectoryEnd
from .tool import Observation, Tool, ToolError, ToolFunction
from .trajectory import Task

_CLOSE_SECONDS = 2.0


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


class RemotePlay:
    """`Play`, for a flow that runs in another process: what it has, this one asks for."""

    def __init__(self, worker: _PartServer) -> None:
        self._server, self._work = worker, worker.done
        self.memory: dict[str, Any] = {}

    async def act(self, messages: Messages) -> Any:
        return await self._current().ask("act", tuple(messages))

    async def reply(self, text: str) -> Any:
        return await self._current().ask("reply", text)

    async def ask(self, role: str, messages: Messages) -> Any:
        return await self._current().ask("ask", role, tuple(messages))

    async def call(self, tool: str, arguments: Mapping[str, Any] | str) -> Any:
        return await self._current().ask("call", tool, arguments)

    async def call_text(self, tool: str, text: str) -> Any:
        return await self._current().ask("call_text", tool, text)

    def refuse(self, text: str) -> Any:
        return self._current().ask_now("refuse", text)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Such as what `copy` looks for.
            raise AttributeError(name)
        return self._current().ask_now(name)

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
        self._tell("ready", 0, os.getpid())
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
    exit_with_parent(parent, group=True)
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
