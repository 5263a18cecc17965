"""The tools of a recipe: found by name, called with what the policy wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..errors import RecipeError
from .json_text import json_value
from .tool import Observation, Tool, ToolFunction


class Toolbox:
    """The functions of tools, by name.

    Args:
        functions: of all tools.

    Raises:
        RecipeError: two of them have the same name.
    """

    def __init__(self, functions: Sequence[ToolFunction]) -> None:
        self.functions = functions
        self._by_name = {each.name: each for each in functions}
        names = [each.name for each in functions]
        for name in names:
            if names.count(name) > 1:
                right = "leave one of them out, or give those of an MCP server a `prefix`"
                raise RecipeError(f"two tools are called '{name}'", right, where="tools")

    @classmethod
    async def of(cls, tools: Sequence[Tool]) -> Toolbox:
        """The functions of all tools.

        Raises:
            RecipeError: two of them have the same name.
            ToolError: a tool cannot say what it has.
        """
        return cls([each for tool in tools for each in await tool.functions()])

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str, task: Mapping[str, Any]
    ) -> Observation:
        """What a call gives; what the policy did wrong is an observation, too.

        Raises:
            ToolError: the tool cannot be used.
        """
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

    async def call_text(self, name: str, text: str, task: Mapping[str, Any]) -> Observation:
        """What a call with plain text gives: `call` for a policy that writes no JSON.

        The text of a JSON object is that object. Any other text is the value of the only argument
        that is required, or else of the first one.

        Raises:
            ToolError: the tool cannot be used.
        """
        return await self.call(name, self._arguments(name, text), task)

    def _arguments(self, name: str, text: str) -> Mapping[str, Any] | str:
        with suppress(ValueError):
            if isinstance(found := json_value(text), dict):
                return found
        schema = self._by_name[name].parameters if name in self._by_name else {}
        required, known = schema.get("required", []), list(schema.get("properties", {}))
        if len(required) == 1:
            return {required[0]: text}
        return {known[0]: text} if known else text
