"""A connection to an MCP server that is made again when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mcp import Client

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
        """What `work` returns.

        Args:
            work: with a client that is connected.
            again: whether to do it once more where the connection is lost meanwhile. Whether the
                server has done it already is not known then.

        Raises:
            McpLostError: the server is gone, or does not answer.
        """
        for is_last in (not again, True):
            connection = await self._connected()
            try:
                return await connection.ask(work)
            except McpLostError:
                await self._forget(connection)
                if is_last:
                    raise
        raise AssertionError

    async def close(self) -> None:
        """End the connection, and the server if it is a process of ours."""
        if self._connection is not None:
            await self._forget(self._connection)

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
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(open_client))

    async def _run(self, open_client: OpenClient) -> None:
        async with open_client() as client:
            self._client.set_result(client)
            await self._stop.wait()

    async def opened(self, timeout_s: float) -> None:
        both: set[asyncio.Future[Any]] = {self._client, self._task}
        try:
            await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self._client.done():
                self._task.cancel()  # Nobody else would end it.
        if self._task.done():
            raise self._lost()
        if not self._client.done():
            raise McpLostError(f"no answer in {timeout_s:g} s")

    async def ask(self, work: Callable[[Client], Awaitable[T]]) -> T:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        asking = asyncio.ensure_future(work(self._client.result()))
        both: set[asyncio.Future[Any]] = {asking, self._task}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()
        if self._task.done():
            raise self._lost()
        try:
            return asking.result()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise McpLostError(error.message) from error
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
        return McpLostError(str(error) if error else "Connection closed")
