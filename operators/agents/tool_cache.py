"""The observations of tools, kept in a folder: no call that costs something is made twice.

    tool_cache: read_write      call what is not known, and keep what it gives
    tool_cache: read_only       call nothing: what is not known is missing

With `read_only`, training depends on nothing outside, and costs no API calls. Only an MCP server is
still asked which tools it has.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, PrivateAttr

from ..change import Columns
from ..errors import RecipeError
from ..servers.answer_cache import AnswerCache, has_answers
from ..servers.in_flight import InFlight
from ..user_cache import in_user_cache
from .tool import Observation, Tool, ToolError, ToolFunction, close_all

CODE = 1
"""Version of the stored observations: part of keys."""
_RIGHT = "set `tool_cache_path` to another path, or `tool_cache` to off"

ToolCacheMode: TypeAlias = Annotated[
    Literal["off", "read_write", "read_only"],
    # `off` without quotation marks is a truth value in YAML.
    BeforeValidator(lambda value: "off" if value is False else value),
]


def user_cache() -> Path:
    """The cache in the user's cache folder."""
    return in_user_cache("tools.answers")


def cached(tools: Sequence[Tool], mode: ToolCacheMode, path: Path) -> tuple[Tool, ...]:
    """The tools, with those whose calls cost something behind a cache.

    Args:
        tools: those of a recipe.
        mode: see above.
        path: of the cache, see `AnswerCache`; `read_write` creates it.

    Raises:
        RecipeError: with `read_only`, there is no cache, or a tool whose calls may change
            something.
    """
    if mode == "off":
        return tuple(tools)
    if mode == "read_only":
        _check_read_only(tools, path)
    return tuple(
        CachedTool(tool=tool, path=path, asks=mode == "read_write")
        if tool.is_read_only() and not tool.is_local
        else tool
        for tool in tools
    )


def _check_read_only(tools: Sequence[Tool], path: Path) -> None:
    for tool in tools:
        if not tool.is_read_only():
            found = f"`tool_cache: read_only`, but calls of the tool '{tool.name()}' may change"
            raise RecipeError(f"{found} something, so they are not kept", "leave one of them out")
    if not has_answers(path) and not all(tool.is_local for tool in tools):
        found = f"`tool_cache: read_only`, but there is no tool cache {path}"
        raise RecipeError(found, "fill it with `tool_cache: read_write`")


class CachedTool(Tool):
    """A tool whose observations are kept.

    An observation with status `error` is kept, as the same call would give it again; a ToolError is
    not.
    """

    tool: Tool
    """The tool itself."""
    path: Path
    """The cache."""
    asks: bool
    """Whether the tool is called for what is not in the cache."""

    _cache: AnswerCache | None = PrivateAttr(None)
    _in_flight: InFlight[Observation] = PrivateAttr(default_factory=InFlight)

    async def call(self, *args: Any, **kwargs: Any) -> str | Observation:
        return await self.tool.call(*args, **kwargs)

    async def functions(self) -> Sequence[ToolFunction]:
        if self._cache is None:
            self._cache = AnswerCache(self.path, "observations", _RIGHT, writes=self.asks)
        return [
            function._replace(call=partial(self._observed, function))
            for function in await self.tool.functions()
        ]

    def reads(self) -> Columns:
        return self.tool.reads()

    def check(self) -> None:
        self.tool.check()

    def preflight(self) -> None:
        if self.asks:  # Otherwise its server need not be there.
            self.tool.preflight()

    def cache_key_fields(self) -> Mapping[str, Any]:
        return self.tool.cache_key_fields()

    def is_read_only(self) -> bool:
        return True

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
        key = self._key(function, arguments, task)
        # The trajectories of a prompt often begin with the same call at the same time.
        work = partial(self._kept_or_called, key, function, arguments, task)
        found, _ = await self._in_flight.result(key, work)
        return found

    async def _kept_or_called(
        self,
        key: bytes,
        function: ToolFunction,
        arguments: Mapping[str, Any],
        task: Mapping[str, Any],
    ) -> Observation:
        assert self._cache is not None, "functions() has opened it"
        stored = self._cache.get(key)
        if stored is not None:
            return Observation(*json.loads(stored))
        if not self.asks:
            call = f"{function.name}({_json(arguments)[:200]})"
            raise ToolError(f"the tool cache is read-only and has no observation of {call}")
        found = (await function.call(arguments, task)).redacted()
        await asyncio.to_thread(self._cache.put, key, json.dumps(found))
        return found

    def _key(
        self, function: ToolFunction, arguments: Mapping[str, Any], task: Mapping[str, Any]
    ) -> bytes:
        """SHA-256 of everything that determines the observation."""
        tool = [self.tool.name(), self.tool.cache_key_fields()]
        called = [function.name, function.revision, arguments]
        columns = {name: task[name] for name in self.reads()}
        return hashlib.sha256(_json([CODE, tool, called, columns]).encode()).digest()


def _json(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)
