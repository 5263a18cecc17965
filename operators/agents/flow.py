"""What a flow is: how a policy works on a task, turn by turn; flows and tools of recipes.

    class Guess(Flow):
        \"""Ask until the policy says that it is done.\"""

        async def run(self, task: Task, play: Play) -> str | None:
            action = await play.act(task.messages)
            ...

A flow holds no state of a trajectory: everything is in local variables or in `play.memory`, so
nothing leaks from one task to the next. A recipe's flow runs in processes of its own, each with one
trajectory at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ..cache_key import code_version
from ..config import Named, deciding_fields
from ..errors import RecipeError
from ..registry import Registry, build
from ..sampling.tokenizer import Encode
from .play import Model, Play
from .tool import Tool
from .trajectory import Budgets, Task


class Flow(Budgets, Named):
    """Base of all flows: the fields are what a recipe sets, budgets included."""

    noun: ClassVar[str] = "flow"
    code: ClassVar[str | None] = None
    """The version of the code that decides trajectories, as `Tool.code`."""

    @abstractmethod
    async def run(self, task: Task, play: Play) -> str | None:
        """Work on a task until there is an answer.

        `play` calls the policy, frozen models and tools, and records every turn. Without a final
        answer, None is returned, which counts as a wrong one.
        """

    def check(self, encode: Encode | None) -> None:
        """Check that the flow suits the policy, before anything is sampled.

        `encode` turns a chat into token ids; None: the engine applies the chat template.

        Raises:
            EngineError: it does not.
        """

    def models(self) -> Mapping[str, Model]:
        """Return the frozen models that `play.ask` reaches, by role."""
        return {}

    def reads(self) -> tuple[str, ...]:
        """Return columns of the dataset that the flow reads from `task.columns`."""
        return ()

    async def close(self) -> None:
        """Release what runs have opened."""

    def cache_key_fields(self) -> Mapping[str, Any]:
        """What decides the trajectories, as JSON: by default the fields and the code's version."""
        return {**deciding_fields(self), "code": code_version(type(self))}


# --- Tools and flows by name, and from the fields of a recipe -------------------------
# Distributions register them under the entry-point groups `rejuice.tools` and `rejuice.flows`; the
# files of a recipe's `custom_operator_paths` may define them, too.

TOOLS = Registry[Tool](Tool)  # type: ignore[type-abstract]
FLOWS = Registry[Flow](Flow)  # type: ignore[type-abstract]

_HIDDEN = "reference"
_P = TypeVar("_P", Flow, Tool)


def build_flow(entry: Mapping[str, Any], files: Sequence[Path] = ()) -> Flow:
    """The flow of a recipe; refused is one that reads the reference."""
    return _built(FLOWS, entry, FLOWS.load_files(files), "flow")


def build_tools(
    entries: Sequence[Mapping[str, Any]], files: Sequence[Path] = ()
) -> tuple[Tool, ...]:
    """The tools of a recipe; refused are two of one name, and one that reads the reference."""
    custom = TOOLS.load_files(files)
    tools = tuple(_built(TOOLS, entry, custom, "tools") for entry in entries)
    # A tool that has functions of its own, as an MCP server, may be used twice.
    names = [each.name() for each in tools if type(each).functions is Tool.functions]
    for name in names:
        if names.count(name) > 1:
            found = f"two tools are called '{name}'"
            raise RecipeError(found, "leave one of them out", where="tools")
    return tools


def _built(
    registry: Registry[_P], entry: Mapping[str, Any], custom: Mapping[str, type[_P]], field: str
) -> _P:
    ((name, fields),) = entry.items()
    try:
        kind = registry.get(name, custom)
    except RecipeError as error:
        raise error.at(field) from None
    try:
        part = build(kind, fields or {})
        if _HIDDEN in part.reads():
            found = f"it reads the column '{_HIDDEN}', which has the answer"
            raise RecipeError(found, "let it read another column")
    except RecipeError as error:
        raise error.at(f"{field}.{name}") from None
    return part


class _Schema(NamedTuple):
    """The JSON schema of an entry: a name, or a name with fields."""

    registry: Registry[Any]

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        usable, _ = self.registry.load_all()
        named: list[JsonSchemaValue] = [{"enum": [*usable]}]
        for name, kind in usable.items():
            whole = kind.__get_pydantic_json_schema__(kind.__pydantic_core_schema__, handler)
            fields = {"anyOf": [whole, {"type": "null"}]}
            named.append({"type": "object", "properties": {name: fields}, "required": [name]})
        # A file may define others.
        return {"anyOf": [*named, {"type": "string"}, {"type": "object", "maxProperties": 1}]}


def _entry(value: Any) -> Any:
    """`name`, `{name: null}` and `{name: fields}` as `{name: fields}`."""
    if isinstance(value, str):
        return {value: {}}
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError("write a name, or `name: {field: value}`")
    ((name, fields),) = value.items()
    if fields is not None and not isinstance(fields, Mapping):
        raise ValueError(f"the fields of {name} are `field: value`")
    return {str(name): dict(fields or {})}


FlowEntry = Annotated[dict[str, dict[str, Any]], BeforeValidator(_entry), _Schema(FLOWS)]
"""A flow as a recipe names it: `react`, or `{react: {format: lines}}`."""
ToolEntry = Annotated[dict[str, dict[str, Any]], BeforeValidator(_entry), _Schema(TOOLS)]
"""A tool as a recipe names it."""
