"""The tools of an MCP server (https://modelcontextprotocol.io) as tools of the policy."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from asyncio import TimeoutError as TooLateError
from asyncio import wait_for
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PositiveFloat, PrivateAttr, ValidationError, model_validator
from typing_extensions import Self

from ...errors import EngineError, RecipeError, suggest
from ...redaction import know_named, redact, redact_bytes
from ...servers.options import refuse_credentials
from ..argument_schema import ArgumentSchema
from ..mcp_link import McpLink
from ..mcp_transport import http_client, stdio_transport
from ..tool import Observation, Tool, ToolError, ToolFunction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool

_MOST_PAGES = 100  # of a list of tools
_MOST_TOOLS = 1000
_LONGEST_NAME = 128  # characters, as in the specification
_LONGEST_DESCRIPTION = 1 << 16  # characters
_LONGEST_ERROR = 300  # characters


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
        if find_spec("mcp") is None:
            raise RecipeError("the tool 'mcp' needs a package", "pip install 'rejuice[mcp]'")
        if self.command is not None and shutil.which(self.command[0]) is None:
            found = f"the program '{self.command[0]}' of `command` is not found"
            raise RecipeError(found, "install it, or give its path")

    def preflight(self) -> None:
        from ...servers.loop_thread import LoopThread

        thread = LoopThread("check of an MCP server")
        try:
            thread.run(self._checked())
        finally:
            thread.close()

    async def functions(self) -> Sequence[ToolFunction]:
        """Those of the server's tools that are allowed.

        Raises:
            RecipeError: an allowed tool does not exist.
            ToolError: the server does not say which tools it has.
        """
        if self._link is None:
            self._link = McpLink(self._client, self.start_s)
        return await self._functions_of(self._link)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None

    def _client(self) -> AbstractAsyncContextManager[Client]:
        from mcp import Client
        from mcp.client.stdio import get_default_environment

        # The library logs tracebacks of what it gives as errors, too.
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        if self.command is None:
            return self._http_client()
        know_named({"environment": self.environment})
        given = {name: os.environ[name] for name in self.environment if name in os.environ}
        messages = stdio_transport(self.command, {**get_default_environment(), **given})
        return Client(messages, read_timeout_seconds=self.start_s)

    @asynccontextmanager
    async def _http_client(self) -> AsyncIterator[Client]:
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        from ...servers.client import headers

        own, url = headers(self.api_key_env), self.url or ""
        async with (
            http_client(own, max(self.start_s, self.timeout_s)) as http,
            Client(
                streamable_http_client(url, http_client=http), read_timeout_seconds=self.start_s
            ) as client,
        ):
            yield client

    async def _checked(self) -> None:
        link = McpLink(self._client, self.start_s)
        try:
            await self._functions_of(link)
        except ToolError as error:
            raise EngineError(str(error), "is the server right?") from None
        finally:
            await link.close()

    async def _functions_of(self, link: McpLink) -> Sequence[ToolFunction]:
        found = await self._listed(link)
        names = [each.name for each in found]
        for name in self.allow or ():
            if name not in names:
                right = suggest(name, names) or f"it has {', '.join(names) or 'none'}"
                raise RecipeError(f"mcp: the server has no tool '{name}'", right)
        allowed = [each for each in found if self.allow is None or each.name in self.allow]
        for number, each in enumerate(allowed):
            if each.name in names[:number]:
                raise self._bad(each, "is there twice")
        return [self._function(link, each) for each in allowed]

    def _function(self, link: McpLink, tool: ServerTool) -> ToolFunction:
        """
        Raises:
            RecipeError: the server describes it so that it cannot be called.
        """
        # The policy reads both, and they are stored with its prompts.
        text = redact(" ".join((tool.description or "").split()))
        schema = json.loads(redact_bytes(json.dumps(tool.input_schema).encode()))
        if not tool.name.isprintable() or not tool.name.strip() or len(tool.name) > _LONGEST_NAME:
            raise self._bad(tool, f"has a name that is not 1 to {_LONGEST_NAME} printable letters")
        if len(text) > _LONGEST_DESCRIPTION:
            found = f"has a description of {len(text):,} characters, more than "
            raise self._bad(tool, f"{found}{_LONGEST_DESCRIPTION:,}")
        try:
            arguments = ArgumentSchema(schema)
        except ValueError as error:
            raise self._bad(tool, f"has a bad schema of its arguments: {error}") from None

        def refuse(given: Mapping[str, Any]) -> Observation | None:
            problem = arguments.problem(given)
            return None if problem is None else Observation(problem, "bad_arguments")

        async def call(given: Mapping[str, Any], _: Mapping[str, Any]) -> Observation:
            return refuse(given) or await self._called(link, tool.name, given)

        revision = hashlib.sha256(json.dumps([text, schema], sort_keys=True).encode()).hexdigest()
        return ToolFunction(f"{self.prefix}{tool.name}", text, schema, call, refuse, revision)

    async def _listed(self, link: McpLink) -> list[ServerTool]:
        """
        Raises:
            RecipeError: it has too many.
            ToolError: see `functions`.
        """

        async def all_pages(client: Client) -> list[ServerTool]:
            return await wait_for(_all_pages(client), self.start_s)

        try:
            return await link.ask(all_pages, again=True)
        except TooLateError:
            found = f"no answer in {self.start_s:g} s"
        except Exception as error:  # Those of several libraries.
            found = _one_line(error)
        raise ToolError(f"mcp: the server gives no list of its tools: {found}")

    async def _called(self, link: McpLink, name: str, given: Mapping[str, Any]) -> Observation:
        async def called(client: Client) -> CallToolResult:
            # One limit for all: a call may be of several requests.
            call = client.call_tool(name, dict(given), read_timeout_seconds=2 * self.timeout_s)
            # The library would match the patterns of the server by backtracking.
            setattr(client.session, "validate_tool_result", _accepted)  # noqa: B010 - for mypy
            return await wait_for(call, self.timeout_s)

        try:
            return _observation(await link.ask(called, again=self.read_only))
        except TooLateError as error:
            raise ToolError(f"mcp: {name}: no answer in {self.timeout_s:g} s") from error
        except Exception as error:  # Those of several libraries.
            raise ToolError(f"mcp: {name}: {_one_line(error)}") from error

    def _bad(self, tool: ServerTool, found: str) -> RecipeError:
        server = (self.url or " ".join(self.command or ()))[:_LONGEST_NAME]
        name = repr(tool.name[:_LONGEST_NAME])
        right = "leave it out by `allow`, or correct the server"
        return RecipeError(f"mcp: {server}: the tool {name} {found}", right)


async def _accepted(*_: Any) -> None:
    """Instead of a check of a result against the schema that the server gives for it."""


async def _all_pages(client: Client) -> list[ServerTool]:
    """
    Raises:
        ToolError: there is no end of them.
    """
    found: list[ServerTool] = []
    cursors, cursor = set[str](), None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if len(found) > _MOST_TOOLS or len(cursors) >= _MOST_PAGES:
            raise ToolError(f"it has more than {_MOST_TOOLS:,} tools or {_MOST_PAGES} pages")
        if not cursor:
            return found
        if cursor in cursors:
            raise ToolError(f"its pages have no end: the cursor {cursor!r:.40} comes twice")
        cursors.add(cursor)


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
