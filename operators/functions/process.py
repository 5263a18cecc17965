"""What runs in a process of the pool: it loads a user's function and calls it, row by row.

It calls the function in the main thread, where functions that set an alarm of their own work, too.

The parent sends one setup, then batches of rows; each row is answered as soon as it is done.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import json
import math
import os
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from types import ModuleType
from typing import Any, NamedTuple

from ..process_pool import batches, receive, reply, send
from ..workers import end_group, exit_with_parent

CONCURRENT = 32
"""Rows of an async function that are under way in one process."""
_MOST_TEXT = 500  # characters of an error's message
_MOST_KEYS = 100  # of a dict that was returned


class RowOutcome(NamedTuple):
    """What became of a row."""

    # for the score and each further key: the value, or why there is none
    values: Sequence[tuple[float | None, str | None]]
    error: str = ""
    keys: Sequence[str] = ()  # of the dict that was returned, where it lacks one that is wanted

    @classmethod
    def missing(cls, reason: str, error: str, keys: Sequence[str]) -> RowOutcome:
        """Neither a score nor a value of these further keys."""
        return cls([(None, reason)] * (1 + len(keys)), error)


# --- The function ---------------------------------------------------------------------


class NoSuchFunctionError(Exception):
    """A module has no function of a name; its arguments are the names that it has."""


def load_function(file: str | None, module: str, name: str) -> Any:
    """Import a function from a file, or without one from an installed module."""
    there = _imported(file, module) if file else importlib.import_module(module)
    try:
        found = getattr(there, name)
    except AttributeError:
        own = [k for k, v in vars(there).items() if inspect.isroutine(v) and k[:1] != "_"]
        raise NoSuchFunctionError(own) from None
    if not callable(found):
        raise TypeError(f"{name} is a {type(found).__name__}, not a function")
    return found


def _imported(file: str, module: str) -> ModuleType:
    # Compiled each time: bytecode is looked up by size and second, and would hide a quick edit.
    # Under its own name, so that processes that the function starts can import it.
    made = ModuleType(module if module not in sys.modules else f"rejuice_function_{module}")
    made.__file__ = file
    sys.modules[made.__name__] = made
    with open(file, "rb") as source:
        exec(compile(source.read(), file, "exec"), made.__dict__)
    return made


def parameters_of(function: Any) -> tuple[list[str], list[str], bool]:
    """Names of the required and the optional parameters of a function, and whether it has `**`."""
    required, optional, takes_any = list[str](), list[str](), False
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            takes_any = True
        elif each.kind is not each.VAR_POSITIONAL:
            (required if each.default is each.empty else optional).append(each.name)
    return required, optional, takes_any


def is_async(function: Any) -> bool:
    """Whether a call gives a coroutine; a partial function or an object may be called."""
    function = getattr(function, "func", function)
    call = getattr(function, "__call__", None)  # noqa: B004, it is looked at, not asked for
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


# --- Values ---------------------------------------------------------------------------


def graded(result: Any, keys: Sequence[str], *, listed: bool) -> RowOutcome:
    """The values in what a function has returned for one row, and what is wrong with it.

    It is a number, a bool, None, or a dict with `score` and perhaps `keys`; `listed`, in a list of
    one.
    """
    if listed:
        try:
            [result] = result
        except (TypeError, ValueError):
            wrong = f"it returned {_shown(result)} for one completion, not a list of one reward"
            return RowOutcome.missing("not_a_number", wrong, keys)
    there = list[str]()
    if isinstance(result, Mapping):
        if "score" not in result:
            wrong = f"it returned a dict without 'score': {_shown(result)}"
            return RowOutcome.missing("not_a_number", wrong, keys)
        values = [result["score"], *(result.get(key) for key in keys)]
        if not all(key in result for key in keys):
            there = [str(key)[:_MOST_TEXT] for key in itertools.islice(result, _MOST_KEYS)]
    else:
        values = [result, *[None] * len(keys)]
    found = [_number(value) for value in values]
    wrong = ""
    for value, (_, reason) in zip(values, found, strict=True):
        if reason == "not_a_number":
            wrong = f"it returned {_shown(value)}"
            break
    return RowOutcome(found, wrong, there)


def _number(value: Any) -> tuple[float | None, str | None]:
    if value is None:
        return None, "no_value"
    try:
        if not isinstance(value, Real | Decimal) and hasattr(value, "item"):
            value = value.item()  # A scalar of numpy, or a tensor of one element.
        if isinstance(value, Real | Decimal) and math.isfinite(number := float(value)):
            return number, None
    except Exception:
        return None, "not_a_number"  # A tensor of several elements, or an integer beyond a float.
    return None, "not_a_number"


def _shown(value: Any) -> str:
    try:
        return f"{type(value).__name__} {value!r}"[:_MOST_TEXT]
    except Exception:
        return type(value).__name__


def described(error: BaseException, own: str | None = None) -> str:
    """An error of a function in one line, with its place.

    Of the lines that led to it, the last one of the file `own` or one beside it is named, and the
    line of a library that raised it after it.
    """
    text = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    if not frames:
        return text
    last, folder = frames[-1], os.path.dirname(own) if own else None
    of_user = [f for f in frames if os.path.dirname(f.filename) == folder]
    place = of_user[-1] if of_user else last
    where = f"{os.path.basename(place.filename)}, line {place.lineno}"
    of_file = [f.name for f in frames if f.filename == place.filename and f.name[:1] != "<"]
    if of_file:  # None is `<module>`, `<lambda>` or `<listcomp>`.
        where += f", in {of_file[-1]}"
    if place is not last:
        where += f"; raised in {os.path.basename(last.filename)}, line {last.lineno}"
    return f"{text} ({where})"


def _file_of(function: Any) -> str | None:
    code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
    return getattr(code, "co_filename", None)


# --- The process ----------------------------------------------------------------------


class _RowServer:
    """Calls the function on rows, and answers each: [row, values with reasons, error]."""

    def __init__(self, link: socket.socket, function: Any, setup: Mapping[str, Any]) -> None:
        self._link, self._function, self._setup = link, function, setup
        self._file: str | None = setup["file"] or _file_of(function)
        self._loop = asyncio.new_event_loop()

    def serve(self) -> None:
        for rows in batches(self._link):
            if is_async(self._function):
                self._loop.run_until_complete(self._all(rows))
                continue
            for at, arguments in rows:
                reply(self._link, at, *self._call(arguments))

    def _call(self, arguments: Mapping[str, Any]) -> RowOutcome:
        try:
            result = self._function(**{**arguments, **self._setup["kwargs"]})
            if inspect.isawaitable(result):
                result = self._loop.run_until_complete(result)
            return self._graded(result)
        except BaseException as error:  # SystemExit, too, is a failure of this row alone.
            return self._failed(error)

    async def _all(self, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        free = asyncio.Semaphore(CONCURRENT)

        async def one(at: int, arguments: Mapping[str, Any]) -> None:
            async with free:
                reply(self._link, at, *await self._awaited(arguments))

        await asyncio.gather(*(one(*row) for row in rows))

    async def _awaited(self, arguments: Mapping[str, Any]) -> RowOutcome:
        try:
            task = asyncio.ensure_future(self._function(**{**arguments, **self._setup["kwargs"]}))
            done, _ = await asyncio.wait({task}, timeout=self._setup["timeout_s"])
            if not done:
                task.cancel()
                wrong = f"it took longer than {self._setup['timeout_s']:g} s"
                return RowOutcome.missing("timeout", wrong, self._setup["keys"])
            return self._graded(task.result())
        except BaseException as error:
            return self._failed(error)

    def _graded(self, result: Any) -> RowOutcome:
        return graded(result, self._setup["keys"], listed=self._setup["listed"])

    def _failed(self, error: BaseException) -> RowOutcome:
        text = described(error, self._file)
        return RowOutcome.missing("function_failed", text, self._setup["keys"])


def main(descriptor: int, parent: int) -> None:
    """Serve at this socket until the parent closes it or ends."""
    exit_with_parent(parent, group=True)
    try:
        _serve(descriptor)
    finally:  # A parent that was killed has closed the socket, and ends nothing else.
        end_group()


def _serve(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as link:
        setup = json.loads(receive(link))
        sys.path[:] = setup["path"]
        try:
            function = load_function(setup["file"], setup["module"], setup["name"])
            parameters = parameters_of(function)
        except NoSuchFunctionError as error:
            send(link, json.dumps({"others": error.args[0]}).encode())
            return
        except BaseException as error:
            send(link, json.dumps({"failed": described(error, setup["file"])}).encode())
            return
        ready = {"parameters": parameters, "is_async": is_async(function)}
        send(link, json.dumps(ready).encode())
        _RowServer(link, function, setup).serve()
