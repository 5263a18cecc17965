"""A connection to an MCP server that is made again when it is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..logs import logger

if TYPE_CHECKING:
    import httpx2
    from mcp import Client


# --- Messages of a server, within bounds ----------------------------------------------

_log = logger(__name__)
LARGEST = 1 << 24
"""Bytes of one message: a list of tools, or the result of a call."""
TOO_LARGE = f"a message of more than {LARGEST >> 20} MiB"
_POLL_S = 0.01
_GRACE_S = 2.0
"""How long a program may take to end once its input has ended; and once more when asked to."""


@asynccontextmanager
async def stdio_transport(
    command: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[tuple[Any, Any]]:
    """Messages to and from a program, a line each, as long as the context lasts.

    The library's own has no bound for a line, and logs a traceback for each line that is none. Here
    a line that is no message is passed over, and one that is too long ends the connection.

    Raises:
        OSError: it cannot be started.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    program = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,  # A group of its own, so that what it starts ends with it.
        limit=LARGEST,
    )
    put, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, take = anyio.create_memory_object_stream[SessionMessage](0)
    assert program.stdin is not None
    assert program.stdout is not None
    tasks = [
        asyncio.ensure_future(_receive(program.stdout, put)),
        asyncio.ensure_future(_send(program.stdin, take)),
    ]
    try:
        yield received, sent
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # What it still writes is read, or it might wait for that and not see the end of its input.
        rest = asyncio.ensure_future(_discard(program.stdout))
        try:
            await _end(program)
            await asyncio.wait({rest}, timeout=_GRACE_S)
        finally:
            rest.cancel()
        for stream in (put, received, sent, take):
            stream.close()


async def _receive(lines: asyncio.StreamReader, put: Any) -> None:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    async with put:  # Its end is that of the connection.
        while line := await _line(lines):
            with suppress(ValueError):
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                await put.send(SessionMessage(message))


async def _line(lines: asyncio.StreamReader) -> bytes:
    """Return the next line; empty: there is none, or it is too long."""
    try:
        return await lines.readuntil()
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError:
        _log.warning("an MCP server sends %s: its connection is ended", TOO_LARGE)
    except ConnectionError:
        pass
    return b""


async def _send(to: asyncio.StreamWriter, take: Any) -> None:
    with suppress(ConnectionError):
        async for each in take:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            to.write(text.encode() + b"\n")
            await to.drain()


async def _discard(lines: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await lines.read(1 << 16):
            pass


async def _end(program: asyncio.subprocess.Process) -> None:
    """End a program, and what it has started: at once if this is cancelled."""
    assert program.stdin is not None
    program.stdin.close()
    try:
        if not await _ends(program):
            _signal(program, signal.SIGTERM)
            await _ends(program)
    finally:
        if program.returncode is None:
            _signal(program, signal.SIGKILL)
    await _ends(program)


async def _ends(program: asyncio.subprocess.Process) -> bool:
    """Return whether a program ends soon."""
    # Not by its `wait`, which waits for the end of pipes, too: what it has started may hold them.
    for _ in range(round(_GRACE_S / _POLL_S)):
        if program.returncode is not None:
            return True
        await asyncio.sleep(_POLL_S)
    return False


def _signal(program: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, number)


def http_client(own_headers: Mapping[str, str], timeout_s: float) -> httpx2.AsyncClient:
    """Yield a client of HTTP whose answers are bounded."""
    import httpx2

    class Bounded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                await response.aclose()
                raise httpx2.DecodingError("a compressed answer, which was not asked for")
            # Of a stream of events the library bounds each one.
            if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                response.stream = BoundedStream(response.stream)
            return response

    class BoundedStream(httpx2.AsyncByteStream):
        def __init__(self, parts: Any) -> None:
            self._parts = parts

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._parts:
                size += len(part)
                if size > LARGEST:
                    raise httpx2.StreamError(TOO_LARGE)
                yield part

        async def aclose(self) -> None:
            await self._parts.aclose()

    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **own_headers},
        timeout=timeout_s,
        transport=Bounded(),
    )


# --- Connections ----------------------------------------------------------------------

T = TypeVar("T")
OpenClient = Callable[[], AbstractAsyncContextManager["Client"]]

_LONGEST_END_S = 10.0
"""How long ending a connection may take, and once more where that has to be cancelled."""


class McpLostError(Exception):
    """There is no connection to the server."""


class McpLink:
    """For one event loop; calls may come from any of its tasks.

    Args:
        open_client: a client that is not connected yet.
        timeout_s: longest time that connecting takes.
    """

    def __init__(self, open_client: OpenClient, timeout_s: float) -> None:
        self._open_client, self._timeout_s = open_client, timeout_s
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, work: Callable[[Client], Awaitable[T]], *, again: bool) -> T:
        """Return what `work` returns.

        Args:
            work: with a client that is connected.
            again: whether to do it once more where the connection is lost meanwhile. Whether the
                server has done it already is not known then.

        Raises:
            McpLostError: the server is gone, or does not answer.
        """
        try:
            return await self._ask_once(work)
        except McpLostError:
            if not again:
                raise
        return await self._ask_once(work)

    async def close(self) -> None:
        """End the connection, and the server if it is a process of ours."""
        if self._connection is not None:
            await self._forget(self._connection)

    async def _ask_once(self, work: Callable[[Client], Awaitable[T]]) -> T:
        connection = await self._connected()
        try:
            return await connection.ask(work)
        except McpLostError:
            await self._forget(connection)
            raise

    async def _connected(self) -> _Connection:
        async with self._connecting:  # Not once for each call that waits.
            if self._connection is None:
                connection = _Connection(self._open_client)
                await connection.opened(self._timeout_s)
                self._connection = connection
            return self._connection

    async def _forget(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection = None
        await connection.close()


class _Connection:
    """A client in a task of its own: the library wants it opened and closed by the same one."""

    def __init__(self, open_client: OpenClient) -> None:
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(open_client))

    async def _run(self, open_client: OpenClient) -> None:
        async with open_client() as client:
            self._ready.set_result(client)
            await self._stop.wait()

    async def opened(self, timeout_s: float) -> None:
        both: set[asyncio.Future[Any]] = {self._task, self._ready}
        try:
            await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()  # Nobody else would end it.
            raise
        if not self._ready.done():
            ended = self._task.done()
            self._task.cancel()
            await asyncio.wait({self._task})
            raise self._lost() if ended else McpLostError(f"no answer in {timeout_s:g} s")

    async def ask(self, work: Callable[[Client], Awaitable[T]]) -> T:
        from mcp import MCPError

        if self._task.done():
            raise self._lost()
        asking = asyncio.ensure_future(work(self._ready.result()))
        both: set[asyncio.Future[Any]] = {asking, self._task}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
        if asking.cancelled():
            raise self._lost()
        try:
            return asking.result()
        except MCPError as error:
            if error.code == _connection_closed():
                raise McpLostError("Connection closed") from error
            raise
        except Exception:
            if self._task.done():
                raise self._lost() from None
            raise

    async def close(self) -> None:
        self._stop.set()
        await asyncio.wait({self._task}, timeout=_LONGEST_END_S)  # Whoever waits may be cancelled.
        if not self._task.done():  # Such as for a server that does not answer to a farewell.
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_LONGEST_END_S)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()

    def _lost(self) -> McpLostError:
        error = None if self._task.cancelled() else self._task.exception()
        while group := getattr(error, "exceptions", None):  # Of task groups; 3.10 has no type.
            error = group[0]
        shown = str(error) if error else ""
        return McpLostError(shown or "Connection closed")


def _connection_closed() -> int:
    from mcp_types import CONNECTION_CLOSED

    return int(CONNECTION_CLOSED)
