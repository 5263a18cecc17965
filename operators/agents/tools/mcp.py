"""The tools of an MCP server (https://modelcontextprotocol.io) as tools of the policy."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from asyncio import TimeoutError as TooLateError
from asyncio import wait_for
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PositiveFloat, PrivateAttr, ValidationError, model_validator
from pydantic_core import SchemaError, SchemaValidator, core_schema
from typing_extensions import Self

from ...errors import EngineError, RecipeError, needs, suggest
from ...logs import know_named, redact, redact_bytes
from ...servers.options import refuse_credentials
from ..mcp_connection import McpLink, http_client, stdio_transport
from ..tool import Observation, Tool, ToolError, ToolFunction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ServerTool


# --- Arguments of a tool checked against a JSON schema that a server has written ------
# Neither the schema nor the arguments are trusted. No reference is fetched; regular expressions are
# matched by an engine that takes linear time; and what would take long is not checked here: a
# server checks its arguments itself.

_LARGEST = 1 << 17  # bytes of a schema as JSON; it is in every prompt of the policy
_DEEPEST = 64  # objects and lists within each other
_MOST_PATTERNS = 10  # that are compiled, of one schema
_LONGEST_TEXT = 1 << 12  # characters that a pattern is matched with
_MOST_STEPS = 200_000  # of one check: less than a second
_STEPS_OF_A_REFERENCE = 20
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_LEFT_OUT = ("patternProperties", "unevaluatedItems", "unevaluatedProperties", "uniqueItems")
"""Keywords that match patterns with Python's `re`, or take quadratic time."""
_OF_EACH = frozenset({"items", "additionalItems", "additionalProperties", "contains"})
"""Keywords whose value is a schema for each of many values."""

_Check = Callable[[Any, Any, Any, Mapping[str, Any]], "Iterator[Any] | None"]


class _TooMuchError(Exception):
    """A check takes too many steps."""


class ArgumentSchema:
    """The schema of a tool's arguments.

    Args:
        schema: an object of JSON.

    Raises:
        ValueError: it is no schema of an object, is too large, or refers to something outside.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for

        _check_size(schema)
        if not isinstance(schema.get("$schema", ""), str):
            raise ValueError("$schema is no text")
        kind = validator_for(schema, default=Draft202012Validator)
        _check_form(kind, schema)
        self._patterns: dict[str, SchemaValidator | None] = {}
        for each in _subschemas(schema):
            self._compile(each.get("pattern"))
            for pattern in each.get("patternProperties") or ():
                self._compile(pattern)
        self._steps = self._error_steps = 0
        self._validator = self._bounded(kind, schema)

    def problem(self, given: Mapping[str, Any]) -> str | None:
        """Return what is wrong with arguments; None: nothing, or the server has to say."""
        from jsonschema.exceptions import best_match

        try:
            # The message of an error has the value in it, which may be all of the arguments.
            self._steps, self._error_steps = 0, len(json.dumps(given, default=str)) >> 6
            error = best_match(self._validator.iter_errors(dict(given)))
        except Exception:  # Too many steps, or a number or a depth that the library cannot do.
            return None
        if error is None:
            return None
        where = ".".join(map(str, error.path))
        return f"{where}: {error.message}" if where else str(error.message)

    def _compile(self, pattern: Any) -> None:
        """Prepare a pattern, or leave it to the server.

        Raises:
            ValueError: it is no regular expression.
        """
        if not isinstance(pattern, str) or pattern in self._patterns:
            return
        if len(self._patterns) >= _MOST_PATTERNS or len(pattern) > _LONGEST_TEXT:
            return
        # The engine of the crate `regex` does not backtrack.
        text = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        try:
            self._patterns[pattern] = SchemaValidator(text)
        except SchemaError:
            # It does not know all that others do, such as looking ahead.
            self._patterns[pattern] = None
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                found = f"the pattern {pattern!r:.60} is no regular expression: {error!s:.60}"
                raise ValueError(found) from None

    def _bounded(self, kind: Any, schema: Mapping[str, Any]) -> Any:
        """Return a validator that fetches nothing and ends after so many steps."""
        from jsonschema.validators import extend
        from referencing import Registry

        own = dict(kind.VALIDATORS)
        own.update(dict.fromkeys(_LEFT_OUT, _unchecked), pattern=self._pattern)
        own["additionalProperties"] = partial(_additional, own["additionalProperties"])
        counted = {name: partial(self._counted, name, check) for name, check in own.items()}
        return extend(kind, counted)(schema, registry=Registry())

    def _counted(
        self,
        name: str,
        check: _Check,
        validator: Any,
        value: Any,
        instance: Any,
        schema: Mapping[str, Any],
    ) -> Iterator[Any]:
        self._spend(_STEPS_OF_A_REFERENCE if name in _REFERENCES else 1)
        self._spend(_size(value) + _size(instance))
        if name in _OF_EACH:
            self._spend(_size(value) * _size(instance))
        for error in check(validator, value, instance, schema) or ():
            self._spend(self._error_steps)
            yield error

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise _TooMuchError

    def _pattern(
        self, validator: Any, pattern: str, instance: Any, schema: Mapping[str, Any]
    ) -> Iterator[Any]:
        from jsonschema import ValidationError

        compiled = self._patterns.get(pattern)
        if compiled is None or not isinstance(instance, str) or len(instance) > _LONGEST_TEXT:
            return
        if not compiled.isinstance_python(instance):
            yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_size(schema: Mapping[str, Any]) -> None:
    """
    Raises:
        ValueError: it is too large, or nested too deeply.
    """
    below: list[tuple[Any, int]] = [(schema, 1)]
    while below:
        value, depth = below.pop()
        if isinstance(value, (dict, list)):
            if depth > _DEEPEST:
                raise ValueError(f"it is nested more than {_DEEPEST} deep")
            inner = value.values() if isinstance(value, dict) else value
            below.extend((each, depth + 1) for each in inner)
    size = len(json.dumps(schema))
    if size > _LARGEST:
        raise ValueError(f"it has {size >> 10:,} KiB, more than {_LARGEST >> 10}")


def _check_form(kind: Any, schema: Mapping[str, Any]) -> None:
    """
    Raises:
        ValueError: it is no schema of an object.
    """
    from jsonschema import SchemaError as NoSchemaError

    try:
        kind.check_schema(schema, format_checker=None)
    except NoSchemaError as error:
        where = ".".join(map(str, error.path))
        found = f"{where}: {error.message}" if where else error.message
        raise ValueError(" ".join(found.split())[:200]) from None
    if schema.get("type", "object") != "object":
        raise ValueError(f"it is of type {schema['type']!r:.40}, not 'object'")


def _subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas in a schema, and those that its references lead to.

    Raises:
        ValueError: a reference leads to something outside, or to nothing.
    """
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(root)
    below, seen = [root], set[int]()
    while below:
        each = below.pop()
        if not isinstance(each.contents, dict) or id(each.contents) in seen:
            continue
        seen.add(id(each.contents))
        yield each.contents
        below.extend(each.subresources())
        for name in _REFERENCES:
            reference = each.contents.get(name, "#")
            if not isinstance(reference, str) or not reference.startswith("#"):
                raise ValueError(f"{name} leads outside the schema: {reference!r:.80}")
            try:
                found = resolver.lookup(reference).contents
            except (Unresolvable, ValueError):
                raise ValueError(f"{name} leads to nothing: {reference!r:.80}") from None
            below.append(DRAFT202012.create_resource(found))


def _unchecked(*_: Any) -> None:
    """A keyword that is left to the server."""


def _additional(
    check: _Check, validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Any] | None:
    """Return which properties are additional depends on the patterns, if there are any."""
    return None if "patternProperties" in schema else check(validator, value, instance, schema)


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) >> 6
    return len(value) if isinstance(value, (list, dict)) else 0


# --- Mcp ------------------------------------------------------------------------------

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
        needs("the tool 'mcp'", "rejuice[mcp]", "mcp")
        if self.command is not None and shutil.which(self.command[0]) is None:
            found = f"the program '{self.command[0]}' of `command` is not found"
            raise RecipeError(found, "install it, or give its path")

    def preflight(self) -> None:
        from ...servers.concurrency import LoopThread

        thread = LoopThread("check of an MCP server")
        try:
            thread.run(self._checked())
        finally:
            thread.close()

    async def functions(self) -> Sequence[ToolFunction]:
        """Return those of the server's tools that are allowed.

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
    """Return what a policy that reads only text sees of a result."""
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
