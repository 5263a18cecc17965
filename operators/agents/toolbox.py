"""The tools of a recipe: found by name, called with what the policy wrote."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import BeforeValidator

from ..errors import RecipeError
from ..json_text import json_value
from ..servers.answer_cache import AnswerCache, has_answers
from ..servers.concurrency import InFlight
from .tool import Observation, Tool, ToolError, ToolFunction, close_all

# --- Cache of observations ------------------------------------------------------------
#     tool_cache: read_write      call what is not known, and keep what it gives
#     tool_cache: read_only       call nothing: what is not known is missing
#
# With `read_only`, training depends on nothing outside, and costs no API calls. Only an MCP server
# is still asked which tools it has.

CODE = 1
"""Version of the stored observations: part of keys."""
_RIGHT = "set `tool_cache_path` to another path, or `tool_cache` to off"

ToolCacheMode: TypeAlias = Annotated[
    Literal["off", "read_write", "read_only"],
    # `off` without quotation marks is a truth value in YAML.
    BeforeValidator(lambda value: "off" if value is False else value),
]


def cached(tools: Sequence[Tool], mode: ToolCacheMode, path: Path) -> tuple[Tool, ...]:
    """The tools, with those whose calls cost something behind a cache."""
    if mode == "off":
        return tuple(tools)
    changing = [tool.name() for tool in tools if not tool.is_read_only()]
    if mode == "read_only" and changing:
        found = f"`tool_cache: read_only`, but calls of the tool '{changing[0]}' may change"
        raise RecipeError(f"{found} something, so they are not kept", "leave one of them out")
    if mode == "read_only" and not (has_answers(path) or all(tool.is_local for tool in tools)):
        found = f"`tool_cache: read_only`, but there is no tool cache {path}"
        raise RecipeError(found, "fill it with `tool_cache: read_write`")
    return tuple(
        cast(Tool, CachedTool(tool, path, asks=mode == "read_write"))
        if tool.is_read_only() and not tool.is_local
        else tool
        for tool in tools
    )


class CachedTool:
    """A tool whose observations are kept: also an error of the call, but no ToolError.

    Without `asks`, what is not in the cache is missing: the tool is not called.
    """

    def __init__(self, tool: Tool, path: Path, *, asks: bool) -> None:
        self.tool, self._path, self._asks = tool, path, asks
        self._cache: AnswerCache | None = None
        self._in_flight = InFlight[Observation]()

    def __getattr__(self, name: str) -> Any:
        if name == "tool" or name.startswith("__"):  # Such as what `copy` looks for.
            raise AttributeError(name)
        return getattr(self.tool, name)

    async def functions(self) -> Sequence[ToolFunction]:
        if self._cache is None:
            self._cache = AnswerCache(self._path, "observations", _RIGHT, writes=self._asks)
        return [
            function._replace(call=partial(self._observed, function))
            for function in await self.tool.functions()
        ]

    def preflight(self) -> None:
        if self._asks:  # Otherwise its server need not be there.
            self.tool.preflight()

    async def close(self) -> None:
        try:
            await close_all(self.tool, self._in_flight)
        finally:
            if self._cache is not None:
                self._cache.close()
                self._cache = None

    async def _observed(
        self, function: ToolFunction, arguments: Mapping[str, Any], task: Mapping[str, Any]
    ) -> Observation:
        if (refused := function.refuse(arguments)) is not None:
            return refused
        assert self._cache is not None, "functions() has opened it"
        cache, key = self._cache, self._key(function, arguments, task)

        async def kept_or_called() -> Observation:
            stored = cache.get(key)
            if stored is not None:
                return Observation(*json.loads(stored))
            if not self._asks:
                call = f"{function.name}({_json(arguments)[:200]})"
                raise ToolError(f"the tool cache is read-only and has no observation of {call}")
            found = (await function.call(arguments, task)).redacted()
            await asyncio.to_thread(cache.put, key, json.dumps(found))
            return found

        # The trajectories of a prompt often begin with the same call at the same time.
        found, _ = await self._in_flight.result(key, kept_or_called)
        return found

    def _key(
        self, function: ToolFunction, arguments: Mapping[str, Any], task: Mapping[str, Any]
    ) -> bytes:
        """SHA-256 of everything that determines the observation."""
        tool = [self.tool.name(), self.tool.cache_key_fields()]
        called = [function.name, function.revision, arguments]
        columns = {name: task[name] for name in self.tool.reads()}
        return hashlib.sha256(_json([CODE, tool, called, columns]).encode()).digest()


def _json(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)


# --- Calls ----------------------------------------------------------------------------


class Toolbox:
    """The functions of all tools, by name."""

    def __init__(self, functions: Sequence[ToolFunction]) -> None:
        self.functions = functions
        self._by_name = {each.name: each for each in functions}
        for each in functions:
            if self._by_name[each.name] is not each:
                right = "leave one of them out, or give those of an MCP server a `prefix`"
                raise RecipeError(f"two tools are called '{each.name}'", right, where="tools")

    @classmethod
    async def of(cls, tools: Sequence[Tool]) -> Toolbox:
        return cls([each for tool in tools for each in await tool.functions()])

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str, task: Mapping[str, Any]
    ) -> Observation:
        """What a call gives; what the policy did wrong is an observation, too."""
        function = self._by_name.get(name)
        if function is None:
            known = ", ".join(self._by_name) or "none"
            return Observation(f"there is no tool '{name}'; the tools are: {known}", "unknown_tool")
        if isinstance(arguments, str):
            try:
                arguments = json_value(arguments)
            except ValueError as error:
                return Observation(f"the arguments are no JSON: {error}", "bad_arguments")
        if not isinstance(arguments, Mapping):
            return Observation("the arguments must be a JSON object", "bad_arguments")
        return (await function.call(arguments, task)).redacted()

    def arguments_of(self, name: str, text: str) -> Mapping[str, Any] | str:
        """What a policy means that writes no JSON.

        The text of a JSON object is that object. Any other text is the value of the only argument
        that is required, or else of the first one.
        """
        with suppress(ValueError):
            if isinstance(found := json_value(text), dict):
                return found
        schema = self._by_name[name].parameters if name in self._by_name else {}
        required, known = schema.get("required", []), list(schema.get("properties", {}))
        if len(required) == 1:
            return {required[0]: text}
        return {known[0]: text} if known else text
