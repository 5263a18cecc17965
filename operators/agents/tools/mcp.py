"""The tools of an MCP server (https://modelcontextprotocol.io) as tools of the policy."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PositiveFloat, PrivateAttr, model_validator
from typing_extensions import Self

from ...errors import EngineError, RecipeError, suggest
from ...openai.options import refuse_credentials
from ...redaction import know_named, redact, redact_bytes
from ..mcp_link import McpLink, McpLostError
from ..tool import Observation, Tool, ToolError, ToolFunction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool


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
        from ...openai.loop_thread import LoopThread

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
        from mcp import Client, StdioServerParameters

        if self.command is None:
            return self._http_client()
        know_named({"environment": self.environment})
        given = {name: os.environ[name] for name in self.environment if name in os.environ}
        program, *arguments = self.command
        server = StdioServerParameters(command=program, args=arguments, env=given)
        return Client(server, read_timeout_seconds=self.start_s)

    @asynccontextmanager
    async def _http_client(self) -> AsyncIterator[Client]:
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        from ...openai.client import headers

        own, url = headers(self.api_key_env), self.url or ""
        async with (
            httpx2.AsyncClient(headers=own, timeout=max(self.start_s, self.timeout_s)) as http,
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
        found = await _listed(link)
        names = [each.name for each in found]
        for name in self.allow or ():
            if name not in names:
                right = suggest(name, names) or f"it has {', '.join(names) or 'none'}"
                raise RecipeError(f"mcp: the server has no tool '{name}'", right)
        return [self._function(link, each) for each in found if each.name in (self.allow or names)]

    def _function(self, link: McpLink, tool: ServerTool) -> ToolFunction:
        # The policy reads both, and they are stored with its prompts.
        schema = json.loads(redact_bytes(json.dumps(tool.input_schema).encode()))
        refuse = partial(_refused, schema)

        async def call(given: Mapping[str, Any], _: Mapping[str, Any]) -> Observation:
            return refuse(given) or await self._called(link, tool.name, given)

        text = redact(" ".join((tool.description or "").split()))
        revision = hashlib.sha256(json.dumps([text, schema], sort_keys=True).encode()).hexdigest()
        return ToolFunction(f"{self.prefix}{tool.name}", text, schema, call, refuse, revision)

    async def _called(self, link: McpLink, name: str, given: Mapping[str, Any]) -> Observation:
        try:
            found = await link.ask(
                lambda client: client.call_tool(
                    name, dict(given), read_timeout_seconds=self.timeout_s
                ),
                again=self.read_only,
            )
        except McpLostError as error:
            raise ToolError(f"mcp: {name}: {error}") from error
        except Exception as error:  # Those of several libraries.
            raise ToolError(f"mcp: {name}: {error or type(error).__name__}") from error
        return _observation(found)


async def _listed(link: McpLink) -> list[ServerTool]:
    async def all_pages(client: Client) -> list[ServerTool]:
        page = await client.list_tools()
        found = list(page.tools)
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            found += page.tools
        return found

    try:
        return await link.ask(all_pages, again=True)
    except Exception as error:
        raise ToolError(f"mcp: the server gives no list of its tools: {error}") from error


def _refused(schema: Mapping[str, Any], given: Mapping[str, Any]) -> Observation | None:
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for

    error = best_match(validator_for(schema)(schema).iter_errors(dict(given)))
    if error is None:
        return None
    where = ".".join(map(str, error.path))
    return Observation(f"{where}: {error.message}" if where else error.message, "bad_arguments")


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
