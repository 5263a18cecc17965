"""What runs in the process of a test: the test, with stand-ins for the program's functions.

A stand-in passes calls of the program's functions on to the process of the program, and everything
else happens here: `f(3).startswith("abc")` is a call of `f`, and of its result, which is text,
`startswith` is Python's. The program never gets "abc". Only where a result is an object of the
program's own, its methods are asked of the program, with their arguments.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import random
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal

from .plain_data import decode, encode

ASKED = "\x1easked"
"""A line of the output: the test has called the program."""
TestOutcome = Literal["passed", "failed", "error", "ended", "timeout", "output"]
"""`error`: an exception; of the program, `ended`: it has ended before it answered a call; `timeout`
and `output`: it took too long for its answers, or they are too long."""


class ProgramError(Exception):
    """The program has raised an exception of its own."""


class ProgramEndedError(BaseException):
    """The program has ended, or does not answer any more; its argument is the outcome."""


class _Link:
    """The program, at the other end of standard input: a line for each call, and for its answer."""

    def __init__(self, seconds: float, output: int) -> None:
        self._seconds, self._room, self._read = seconds, output, b""

    def __call__(self, call: list[Any]) -> Any:
        os.write(1, f"\n{ASKED}\n".encode())
        try:
            with open(0, "wb", closefd=False) as calls:
                calls.write(json.dumps(call).encode() + b"\n")
            while b"\n" not in self._read:
                self._read += self._part()
            line, _, self._read = self._read.partition(b"\n")
            return json.loads(line)
        except (OSError, ValueError, RecursionError):
            raise ProgramEndedError("ended") from None

    def _part(self) -> bytes:
        began = time.monotonic()
        ready, _, _ = select.select([0], [], [], max(0.0, self._seconds))
        self._seconds -= time.monotonic() - began
        if not ready:
            raise ProgramEndedError("timeout")
        part = os.read(0, 1 << 16)
        self._room -= len(part)
        if not part or self._room < 0:
            raise ProgramEndedError("output" if part else "ended")
        return part


class _Talk:
    """What a test asks of the program."""

    def __init__(self, program: Callable[[list[Any]], Any]) -> None:
        self._program = program
        self._objects = dict[int, _StandIn]()
        self.ended: TestOutcome | None = None

    def ask(self, verb: str, *values: Any) -> Any:
        call = [verb, *(encode(value, _item) for value in values)]
        if self.ended is not None:  # Whatever the test has caught.
            raise ProgramEndedError(self.ended)
        try:
            answer = self._program(call)
        except ProgramEndedError as error:
            self.ended = error.args[0]
            raise
        if isinstance(answer, dict) and answer["t"] == "changed":
            answer, changed = answer["v"]
            self._change([*values[1], *values[2].values()], decode(changed, self._value))
        return decode(answer, self._value)

    def _change(self, arguments: list[Any], contents: list[Any]) -> None:
        """Do to the arguments of a call what the program has done to its copies."""
        for argument, content in zip(arguments, contents, strict=True):
            if isinstance(argument, list) and isinstance(content, list):
                argument[:] = content
            elif isinstance(argument, dict | set) and type(argument) is type(content):
                argument.clear()
                argument.update(content)

    def _value(self, kind: str, content: Any) -> Any:
        """What is not plain data: an object of the program, or an exception."""
        if kind == "object":
            item = {"t": kind, "v": int(content)}
            return self._objects.setdefault(int(content), _StandIn(self, item))
        raise _error(*content)


def _error(name: str, message: str) -> Exception:
    """An exception of the program, as one of Python's own where it is derived from that."""
    found = getattr(builtins, name, None)
    # StopIteration would end a loop of the test as if all was well.
    if isinstance(found, type) and issubclass(found, Exception) and found is not StopIteration:
        for kind in found.__mro__[:-2]:
            with suppress(TypeError):  # It wants more than a message, as UnicodeDecodeError does.
                made: Exception = kind(message)
                return made
    return ProgramError(f"{name}: {message}")


class _StandIn:
    """Stands for a function or an object of the program."""

    def __init__(self, talk: _Talk, item: dict[str, Any]) -> None:
        vars(self).update(_talk=talk, _item=item)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._talk.ask("call", self, list(arguments), named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._talk.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._talk.ask("set", self, name, value)

    def __hash__(self) -> int:
        return id(self)

    def __iter__(self) -> Any:
        return iter(self._talk.ask("list", self))


def _item(value: Any) -> Any:
    if isinstance(value, _StandIn):
        return vars(value)["_item"]
    raise TypeError(f"a test passes a {type(value).__name__} to the program")


def _use(verb: str) -> Any:
    """A method of stand-ins for an operator or a function of Python, such as `len`.

    The program never gets to see what it is compared with: operands must all be its own objects.
    """

    def method(self: _StandIn, *others: Any) -> Any:
        if verb != "getitem" and not all(isinstance(other, _StandIn) for other in others):
            return NotImplemented
        return vars(self)["_talk"].ask(verb, self, *others)

    return method


for _verb in (
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "mod", "neg", "abs"),
    *("getitem", "bool", "len", "int", "float", "str", "repr"),
):
    setattr(_StandIn, f"__{_verb}__", _use(_verb))


class _Names(dict[str, Any]):
    """The names of a test: its own, those of Python and its modules, and else the program's."""

    def __init__(self, talk: _Talk) -> None:
        super().__init__(__name__="test", __builtins__=builtins)
        self._program = talk

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        if name in sys.stdlib_module_names:
            return import_module(name)
        return _StandIn(self._program, {"t": "name", "v": name})


def judge(setup: str, test: str, program: Callable[[list[Any]], Any]) -> TestOutcome:
    """Run a test; `program` answers a call, or raises a ProgramEndedError."""
    random.seed(0)
    talk = _Talk(program)
    names = _Names(talk)
    outcome: TestOutcome = "passed"
    try:
        for text in (setup, test):
            exec(compile(text, "test", "exec", dont_inherit=True), names)
    except ProgramEndedError:
        pass
    except AssertionError:
        outcome = "failed"
    except SystemExit as end:  # As unittest.main ends.
        outcome = "failed" if end.code else "passed"
    except Exception:
        outcome = "error"
    return talk.ended or outcome


def main(setup: str, test: str, seconds: float, output: int) -> None:
    """Run a test and print what came of it, within the time and output of the program."""
    stdout, sys.stdin = sys.stdout, io.StringIO()  # The test may replace it.
    found = judge(setup, test, _Link(seconds, output))
    print("\n" + found, file=stdout)
