"""The tools of an MCP server (https://modelcontextprotocol.io) as tools of the policy."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
from asyncio import TimeoutError as TooLateError
from asyncio import wait_for
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PositiveFloat, PrivateAttr, ValidationError, model_validator
from typing_extensions import Self

from ...errors import EngineError, RecipeError, needs, suggest
from ...logs import know_named, redact, redact_bytes
from ...servers.options import refuse_credentials
from ..mcp_connection import McpLink
from ..tool import Observation, Tool, ToolError, ToolFunction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool


_LARGEST = 1 << 17  # bytes of a description and a schema as JSON: both are in every prompt
_LONGEST_NAME = 128  # characters, as in the specification
_LONGEST_ERROR = 300  # characters
_MOST_PAGES = 100  # of a list of tools


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
        """Those of the server's tools that are allowed.

        Raises:
            RecipeError: an allowed tool does not exist.
            ToolError: the server does not say which tools it has.
        """
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

    def _client(self) -> AbstractAsyncContextManager[Client]:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        # The library logs tracebacks of what it gives as errors, too.
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        if self.command is None:
            return self._http_client()
        know_named({"environment": self.environment})
        program, *arguments = self.command
        server = StdioServerParameters(
            command=program,
            args=arguments,
            env={name: os.environ[name] for name in self.environment if name in os.environ},
            encoding_error_handler="replace",
        )
        # A notebook's `sys.stderr` is no file that a process could write to.
        return Client(stdio_client(server, errlog=sys.__stderr__ or sys.stderr))

    @asynccontextmanager
    async def _http_client(self) -> AsyncIterator[Client]:
        from httpx2 import AsyncClient
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        from ...servers.client import headers

        own, longest = headers(self.api_key_env), max(self.start_s, self.timeout_s)
        async with (
            AsyncClient(headers=own, timeout=longest) as http,
            Client(streamable_http_client(self.url or "", http_client=http)) as client,
        ):
            yield client

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
        described = json.dumps([text, schema], sort_keys=True)
        if len(described) > _LARGEST:
            found = f"has a description and a schema of {len(described) >> 10:,} KiB"
            raise self._bad(tool, f"{found}, more than {_LARGEST >> 10}")
        try:
            check_schema(schema)
        except ValueError as error:
            raise self._bad(tool, f"has a bad schema of its arguments: {error}") from None

        async def call(given: Mapping[str, Any], _: Mapping[str, Any]) -> Observation:
            return await self._called(link, tool.name, given)

        revision = hashlib.sha256(described.encode()).hexdigest()
        return ToolFunction(f"{self.prefix}{tool.name}", text, schema, call, revision=revision)

    async def _listed(self, link: McpLink) -> list[ServerTool]:
        """
        Raises:
            ToolError: see `functions`.
        """
        try:
            return await link.ask(lambda each: wait_for(_all_pages(each), self.start_s), again=True)
        except TooLateError:
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
            return await wait_for(client.call_tool(name, dict(given)), self.timeout_s)

        try:
            return _observation(await link.ask(called, again=self.read_only))
        except TooLateError as error:
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
    """
    Raises:
        ToolError: there is no end of them.
    """
    found: list[ServerTool] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            return found
    raise ToolError(f"it has more than {_MOST_PAGES} pages")


def check_schema(schema: Mapping[str, Any]) -> None:
    """
    Raises:
        ValueError: it is no schema of an object, or refers to something outside.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT202012

    try:
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema, format_checker=None)
    except SchemaError as error:
        where = ".".join(map(str, error.path))
        found = f"{where}: {error.message}" if where else error.message
        raise ValueError(" ".join(found.split())[:_LONGEST_ERROR]) from None
    except Exception as error:  # Such as for a `$schema` that is no text, or a great depth.
        raise ValueError(_one_line(error)) from None
    if schema.get("type", "object") != "object":
        raise ValueError(f"it is of type {schema['type']!r:.40}, not 'object'")
    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver, below = Registry().resolver_with_root(root), [root]  # It fetches nothing.
    while below:
        each = below.pop()
        below.extend(each.subresources())
        reference = each.contents.get("$ref") if isinstance(each.contents, dict) else None
        try:
            resolver.lookup(reference or "#")
        except Exception:  # The library's own, and those of what is no address.
            raise ValueError(f"$ref leads to nothing in it: {reference!r:.80}") from None


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
