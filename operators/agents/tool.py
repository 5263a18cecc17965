"""What a tool is: its config, and one method whose arguments the policy fills in.

    class Dictionary(Tool):
        \"""Look up what a word means.\"""

        path: str

        async def call(self, word: str) -> str:
            ...

The name of the tool is the class name in snake case, its docstring is what the policy reads, and
the parameters of `call` are the JSON schema of its arguments.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from traceback import walk_tb
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ..cache_key import code_version
from ..config import Named, deciding_fields
from ..logs import redact
from ..operator import Columns

Status: TypeAlias = Literal["ok", "malformed", "unknown_tool", "bad_arguments", "error"]
"""`malformed`: the action calls no tool and gives no answer. `error`: the call itself went wrong,
such as an exception in the policy's code. All but `ok` are the policy's own doing: it sees the
observation, and the turn is spent."""


class Observation(NamedTuple):
    """What a call gave, as the policy sees it."""

    text: str
    status: Status = "ok"

    def redacted(self) -> Observation:
        """The same without the secrets that are known: a server may repeat its key."""
        return self._replace(text=redact(self.text))


class ToolError(Exception):
    """The tool itself cannot be used, such as a server that stays down.

    It ends the trajectory, whose reward is then missing: the policy learns nothing from it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))


def _refuse_none(_: Mapping[str, Any]) -> None:
    """How a function that refuses nothing without a call refuses."""


class ToolFunction(NamedTuple):
    """Something that the policy can call."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema of the arguments, an object
    # with arguments as in the schema, then the columns of the task that it reads; a ToolError
    call: Callable[[Mapping[str, Any], Mapping[str, Any]], Awaitable[Observation]]
    # what the policy sees of arguments that are wrong in themselves, without a call
    refuse: Callable[[Mapping[str, Any]], Observation | None] = _refuse_none
    revision: str = ""  # changes with what the function does, where the tool's fields do not


class Tool(Named):
    """Base of all tools. Fields are what a recipe sets; `call` does the work.

    A recipe's tool runs in processes of its own, each with one call at a time, which is killed at
    the time limit of its trajectory. What `self` keeps, such as a client, each process keeps; a
    tool keeps nothing of one trajectory that another could see.
    """

    noun: ClassVar[str] = "tool"
    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not affect observations, such as a time limit of a server."""
    code: ClassVar[str | None] = None
    """The version of the code that decides the observations. Change it with the edits that change
    them, so that trajectories are sampled again. None: it is made of the code itself, so every edit
    of the file, but for comments and layout, samples them again."""

    is_local: ClassVar[bool] = False
    """Whether calls are computed here from their arguments and columns, at no cost: they are then
    never looked up in the tool cache."""

    @abstractmethod
    async def call(self, *args: Any, **kwargs: Any) -> str | Observation:
        """Return what the policy sees.

        Declare the arguments that the policy fills in as parameters with types; describe one by
        `Annotated[str, Field(description=…)]`. A keyword-only parameter `task` receives the columns
        of `reads`, by name.

        A ValueError is an observation with status `error`, with its message; so are a TypeError, a
        KeyError or an IndexError, and a ZeroDivisionError that `call` itself raises.

        Raises:
            ToolError: the tool cannot be used, which is not the policy's fault.
        """

    def reads(self) -> Columns:
        """Return columns of the dataset that calls need; the reference must not be among them."""
        return ()

    def check(self) -> None:
        """Check that the tool works on this machine. It is quick, and no server is asked.

        Raises:
            RecipeError: it does not.
        """

    def preflight(self) -> None:
        """Check that the servers of the tool are up, before anything is sampled.

        Raises:
            EngineError: they are not, after waiting for them.
            RecipeError: they lack something that the recipe names.
        """

    def cache_key_fields(self) -> Mapping[str, Any]:
        """What decides the observations, as JSON: by default the fields and the code's version."""
        return {**deciding_fields(self), "code": code_version(type(self))}

    def is_read_only(self) -> bool:
        """Whether a call changes nothing and depends on its arguments and columns only, so that its
        observation may be cached."""
        return True

    async def functions(self) -> Sequence[ToolFunction]:
        """Return what the policy can call: by default one function, `call`.

        Raises:
            ToolError: a server that must be asked does not answer.
        """
        return [_function_of(self)]

    async def close(self) -> None:
        """Release what `functions` or calls have opened."""


class Closable(Protocol):
    async def close(self) -> None: ...


async def close_all(*parts: Closable) -> None:
    """Close all of them, the last one first, whatever closing one raises."""
    async with AsyncExitStack() as closing:
        for part in parts:
            closing.push_async_callback(part.close)


def described(function: ToolFunction) -> dict[str, Any]:
    """A function as chat templates and servers take it, in the form of OpenAI's API."""
    body = {"description": function.description, "parameters": dict(function.parameters)}
    return {"type": "function", "function": {"name": function.name, **body}}


def _function_of(tool: Tool) -> ToolFunction:
    arguments, takes_task = _signature(type(tool))

    def parse(given: Mapping[str, Any]) -> BaseModel | Observation:
        try:
            return arguments.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            found = f"{where}: {first['msg']}" if where else str(first["msg"])
            return Observation(found, "bad_arguments")

    def refuse(given: Mapping[str, Any]) -> Observation | None:
        parsed = parse(given)
        return parsed if isinstance(parsed, Observation) else None

    async def call(given: Mapping[str, Any], task: Mapping[str, Any]) -> Observation:
        parsed = parse(given)
        if isinstance(parsed, Observation):
            return parsed
        values = {name: getattr(parsed, name) for name in arguments.model_fields}
        more = {"task": {name: task[name] for name in tool.reads()}} if takes_task else {}
        try:
            found: Any = tool.call(**values, **more)
            if inspect.isawaitable(found):  # `call` may be a plain function.
                found = await found
        except ValueError as error:
            return Observation(str(error), "error")
        except (TypeError, LookupError, ArithmeticError) as error:
            if len(list(walk_tb(error.__traceback__))) != 2:
                raise  # Below `call`: of a library that it uses, not of what the policy passed.
            return Observation(f"{type(error).__name__}: {error}", "error")
        if isinstance(found, str):
            return Observation(found)
        if not isinstance(found, Observation):
            got = f"{type(tool).__name__}.call returned {type(found).__name__}"
            raise ToolError(f"{got}; it must return text, or an Observation")
        return found

    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for each in schema.get("properties", {}).values():
        each.pop("title", None)
    text = inspect.cleandoc(type(tool).__doc__ or "").partition("\n\n")[0]
    return ToolFunction(tool.name(), " ".join(text.split()), schema, call, refuse)


@cache
def _signature(tool_class: type[Tool]) -> tuple[type[BaseModel], bool]:
    """The arguments of `call` as a model, and whether it takes the columns of the task."""
    fields: dict[str, Any] = {}
    parameters = inspect.signature(tool_class.call, eval_str=True).parameters
    for parameter in list(parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name == "task":
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{tool_class.__name__}.call(): name each argument")
        kind = str if parameter.annotation is parameter.empty else parameter.annotation
        fields[parameter.name] = (kind, ... if parameter.default is parameter.empty
                                  else parameter.default)  # fmt: skip
    strict = ConfigDict(extra="forbid")
    return create_model(tool_class.__name__, __config__=strict, **fields), "task" in parameters
