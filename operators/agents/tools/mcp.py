"""The tools of an MCP server (https://modelcontextprotocol.io) as tools of the policy."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import PositiveFloat, PrivateAttr, ValidationError, model_validator
from typing_extensions import Self

from ...errors import EngineError, RecipeError, needs, suggest
from ...logs import know_named, redact, redact_bytes
from ...servers.options import refuse_credentials
from ..tool import Observation, Tool, ToolError, ToolFunction

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool

_LARGEST = 1 << 17  # bytes of a description and a schema as JSON: both are in every prompt
_LONGEST_NAME = 128  # characters, as in the specification
_LONGEST_ERROR = 300  # characters
_MOST_PAGES = 100  # of a list of tools
_LONGEST_END_S = 10.0
"""How long ending a connection may take, and once more where that has to be cancelled."""

# --- A connection that is made again when it is lost ----------------------------------

_T = TypeVar("_T")


class McpLostError(Exception):
    """There is no connection to the server."""


class McpLink:
    """For one event loop; calls may come from any of its tasks.

    `open_client` gives a client that is not connected yet; connecting takes `timeout_s` at most.
    """

    def __init__(
        self, open_client: Callable[[], AbstractAsyncContextManager[Client]], timeout_s: float
    ) -> None:
        self._open_client, self._timeout_s = open_client, timeout_s
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, work: Callable[[Client], Awaitable[_T]], *, again: bool) -> _T:
        """What `work` returns; a McpLostError where the server is gone, or does not answer.

        With `again` it is done once more where the connection is lost meanwhile: whether the server
        has done it already is not known then.
        """
        for is_last in (not again, True):
            async with self._connecting:  # Not once for each call that waits.
                if self._connection is None:
                    connection = _Connection(self._open_client)
                    await connection.opened(self._timeout_s)
                    self._connection = connection
                connection = self._connection
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

    async def _forget(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection = None
        await connection.close()


class _Connection:
    """A client in a task of its own: the library wants it opened and closed by the same one."""

    def __init__(self, open_client: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(open_client))

    async def _run(self, open_client: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
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

    async def ask(self, work: Callable[[Client], Awaitable[_T]]) -> _T:
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


# --- The tools ------------------------------------------------------------------------


class Mcp(Tool):
    """Call the tools of an MCP server."""

    command: tuple[str, ...] | None = None
    """Program that is the server, with its arguments: it is started, and spoken with over stdio. Of
    the environment it sees PATH, HOME and the like, and `environment`."""
    environment: tuple[str, ...] = ()
    """Further environment variables that the program sees, such as those with keys."""
    url: str | None = None
    """Address of a server that runs (streamable HTTP), instead of a program."""
    api_key_env: str | None = None
    """Environment variable with the key of the server at `url`. Null: no key is sent."""
    allow: tuple[str, ...] | None = None
    """Names of the tools that the policy may call. Null: all."""
    prefix: str = ""
    """Put before the names of the tools, where two servers have tools of the same name."""
    read_only: bool = False
    """Whether calls change nothing and give the same again, so that the tool cache may keep
    observations, and a call is made again when the server was lost meanwhile."""
    revision: str = ""
    """Identifies what the server can do. Change it when that changes, and trajectories are sampled
    again."""
    start_s: PositiveFloat = 60
    """Longest time until the server is ready, in seconds: some load packages first."""
    timeout_s: PositiveFloat = 60
    """Longest wait for the answer to a call, in seconds."""

    code: ClassVar[str | None] = "1"
    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset(
        {"environment", "api_key_env", "start_s", "timeout_s"}
    )

    _link: McpLink | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _has_server(self) -> Self:
        if (not self.command) == (self.url is None):
            raise ValueError("mcp needs either `command`, a program, or `url`, an address")
        refuse_credentials("url", self.url or "")
        return self

    async def call(self) -> str:
        raise NotImplementedError("the functions are those of the server")

    def is_read_only(self) -> bool:
        return self.read_only

    def check(self) -> None:
        needs("the tool 'mcp'", "rejuice[mcp]", "mcp")
        if self.command is not None and shutil.which(self.command[0]) is None:
            found = f"the program '{self.command[0]}' of `command` is not found"
            raise RecipeError(found, "install it, or give its path")

    def preflight(self) -> None:
        from ..runner import functions_of

        try:
            functions_of([self])
        except ToolError as error:
            raise EngineError(str(error), "is the server right?") from None

    async def functions(self) -> Sequence[ToolFunction]:
        """Those of the server's tools that are allowed."""
        if self._link is None:
            self._link = McpLink(self._client, self.start_s)
        found = await self._listed(self._link)
        names = [each.name for each in found]
        for name in self.allow or ():
            if name not in names:
                right = suggest(name, names) or f"it has {', '.join(names) or 'none'}"
                raise RecipeError(f"mcp: the server has no tool '{name}'", right)
        allowed = [each for each in found if self.allow is None or each.name in self.allow]
        for each in allowed:
            if names.count(each.name) > 1:
                raise self._bad(each, "is there twice")
        return [self._function(self._link, each) for each in allowed]

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        from httpx2 import AsyncClient
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client

        from ...servers.client import headers

        # The library logs tracebacks of what it gives as errors, too.
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        if self.command is None:
            own, longest = headers(self.api_key_env), max(self.start_s, self.timeout_s)
            async with (
                AsyncClient(headers=own, timeout=longest) as http,
                Client(streamable_http_client(self.url or "", http_client=http)) as client,
            ):
                yield client
            return
        know_named({"environment": self.environment})
        program, *arguments = self.command
        server = StdioServerParameters(
            command=program,
            args=arguments,
            env={name: os.environ[name] for name in self.environment if name in os.environ},
            encoding_error_handler="replace",
        )
        # A notebook's `sys.stderr` is no file that a process could write to.
        async with Client(stdio_client(server, errlog=sys.__stderr__ or sys.stderr)) as client:
            yield client

    def _function(self, link: McpLink, tool: ServerTool) -> ToolFunction:
        # The policy reads both, and they are stored with its prompts.
        text = redact(" ".join((tool.description or "").split()))
        schema = json.loads(redact_bytes(json.dumps(tool.input_schema).encode()))
        if not tool.name.isprintable() or not tool.name.strip() or len(tool.name) > _LONGEST_NAME:
            raise self._bad(tool, f"has a name that is not 1 to {_LONGEST_NAME} printable letters")
        described = json.dumps([text, schema], sort_keys=True)
        if len(described) > _LARGEST:
            found = f"has a description and a schema of {len(described) >> 10:,} KiB"
            raise self._bad(tool, f"{found}, more than {_LARGEST >> 10}")
        required = schema.get("required", [])
        are_names = isinstance(required, list) and all(isinstance(each, str) for each in required)
        is_object = schema.get("type", "object") == "object"
        if not (is_object and are_names and isinstance(schema.get("properties", {}), dict)):
            found = "has a schema that is not of an object with `properties` and names `required`"
            raise self._bad(tool, found)

        async def call(given: Mapping[str, Any], _: Mapping[str, Any]) -> Observation:
            return await self._called(link, tool.name, given)

        revision = hashlib.sha256(described.encode()).hexdigest()
        return ToolFunction(f"{self.prefix}{tool.name}", text, schema, call, revision=revision)

    async def _listed(self, link: McpLink) -> list[ServerTool]:
        try:
            return await link.ask(
                lambda each: asyncio.wait_for(_all_pages(each), self.start_s), again=True
            )
        except asyncio.TimeoutError:
            found = f"no answer in {self.start_s:g} s"
        except Exception as error:  # Those of several libraries.
            found = _one_line(error)
        raise ToolError(f"mcp: the server gives no list of its tools: {found}")

    async def _called(self, link: McpLink, name: str, given: Mapping[str, Any]) -> Observation:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS

        async def called(client: Client) -> CallToolResult:
            # The policy reads text: structured content that breaks its own schema is no failure.
            setattr(client.session, "validate_tool_result", _accepted)  # noqa: B010 - for mypy
            return await asyncio.wait_for(client.call_tool(name, dict(given)), self.timeout_s)

        try:
            return _observation(await link.ask(called, again=self.read_only))
        except asyncio.TimeoutError as error:
            raise ToolError(f"mcp: {name}: no answer in {self.timeout_s:g} s") from error
        except Exception as error:  # Those of several libraries.
            if isinstance(error, MCPError) and error.code == INVALID_PARAMS:
                return Observation(_one_line(error), "bad_arguments")
            raise ToolError(f"mcp: {name}: {_one_line(error)}") from error

    def _bad(self, tool: ServerTool, found: str) -> RecipeError:
        server = (self.url or " ".join(self.command or ()))[:_LONGEST_NAME]
        name = repr(tool.name[:_LONGEST_NAME])
        right = "leave it out by `allow`, or correct the server"
        return RecipeError(f"mcp: {server}: the tool {name} {found}", right)


async def _accepted(*_: Any) -> None:
    """Instead of a check of a result against the schema that the server gives for it."""


async def _all_pages(client: Client) -> list[ServerTool]:
    found: list[ServerTool] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            return found
    raise ToolError(f"it has more than {_MOST_PAGES} pages")


def _one_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        text = f"{where}: {first['msg']}"
    else:
        text = str(error)
    return " ".join(text.split())[:_LONGEST_ERROR] or type(error).__name__


def _observation(result: CallToolResult) -> Observation:
    """What a policy that reads only text sees of a result."""
    parts = [_text_of(block.model_dump(mode="json")) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts) or "the tool gave nothing"
    return Observation(text, "error" if result.is_error else "ok")


def _text_of(block: Mapping[str, Any]) -> str:
    kind = block["type"]
    if kind == "text":
        return str(block["text"])
    if kind == "resource" and "text" in block["resource"]:
        return str(block["resource"]["text"])
    what = block.get("mime_type") or block.get("uri") or block.get("resource", {}).get("uri", "")
    return f"[{kind}: {what}]"
