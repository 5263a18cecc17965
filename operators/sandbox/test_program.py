"""What runs in the process of a program: it executes the program and answers calls.

Nothing here is secret and nothing is trusted. The program can patch all of it, write whatever it
likes and leave at any time: every line of the output is only what the program claims that a call
has returned, and whether that is right is decided elsewhere.
"""

from __future__ import annotations

import builtins
import io
import json
import operator
import os
import sys
from types import ModuleType
from typing import Any

from .plain_data import decode, encode


class _Answers:
    """The program's names, and those of its objects that have been a result."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names, self._objects = names, list[Any]()

    def answer(self, call: list[Any]) -> Any:
        verb, *items = call
        values = [decode(item, self._value) for item in items]
        if verb == "call":
            return self._called(*values)
        uses = {"get": getattr, "set": setattr}
        use = uses.get(verb) or getattr(operator, verb, None) or getattr(builtins, verb)
        return encode(use(*values), self._item)

    def _value(self, kind: str, content: Any) -> Any:
        """What a stand-in stands for: a name, or an object."""
        if kind == "object":
            return self._objects[content]
        if content not in self._names:
            raise NameError(f"name {content!r} is not defined")
        return self._names[content]

    def _item(self, found: Any) -> dict[str, Any]:
        """An object that cannot leave the process, by its number."""
        for number, known in enumerate(self._objects):
            if known is found:
                return {"t": "object", "v": number}
        self._objects.append(found)
        return {"t": "object", "v": len(self._objects) - 1}

    def _called(self, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """The result of a function, with its arguments where it has changed one of them."""
        given = [*arguments, *named.values()]
        may_change = any(isinstance(each, list | dict | set) for each in given)
        before = encode(given, self._item) if may_change else None
        answer = encode(function(*arguments, **named), self._item)
        after = encode(given, self._item) if may_change else None
        return answer if after == before else {"t": "changed", "v": [answer, after]}


class _Nowhere(io.RawIOBase):
    """Takes what the program prints: the output is for answers."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def _error(error: BaseException) -> dict[str, Any]:
    """An exception, by the nearest of its classes that is one of Python's, and its message."""
    kind = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
    message = error.args[0] if len(error.args) == 1 else error
    return {"t": "error", "v": [kind.__name__, str(message)]}


def main(code: str, prefix: str) -> None:
    """Execute the program, and answer the calls on standard input there, a line each."""
    sys.stdin = io.StringIO()
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Nowhere()), "utf-8", "surrogateescape")
    # Not `__main__`: what a program does only as a script is not tested here.
    module = ModuleType("solution")
    sys.modules["solution"] = module
    exec(_compiled(prefix, code), module.__dict__)
    known = _Answers(module.__dict__)
    with open(0, "rb", closefd=False) as calls, open(0, "wb", closefd=False) as answers:
        for call in calls:
            try:
                answer = known.answer(json.loads(call))
            except BaseException as error:
                answer = _error(error)
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()
    os._exit(0)  # Without what the program has left to be done at the end.


def _compiled(prefix: str, code: str) -> Any:
    """The program, which continues the prefix or repeats it."""
    if prefix and not prefix.endswith("\n"):
        prefix += "\n"
    try:
        return compile(prefix + code, "solution", "exec", dont_inherit=True)
    except SyntaxError:
        return compile(code, "solution", "exec", dont_inherit=True)
