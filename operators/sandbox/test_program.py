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

MARK = "\x1e"
"""Begins a line of the output that is an answer."""


class _Answers:
    """The program's objects, and the results of the calls so far."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.results: list[Any] = []
        self.objects: list[Any] = []

    def value(self, kind: str, content: Any) -> Any:
        """What a stand-in stands for: a name, an object, or the result of an earlier call."""
        if kind == "name":
            return self.named(content)
        return self.results[content] if kind == "result" else self.objects[content]

    def named(self, name: str) -> Any:
        if name not in self.names:
            raise NameError(f"name {name!r} is not defined")
        return self.names[name]

    def item(self, found: Any) -> dict[str, Any]:
        """Return an object that cannot leave the process, by its number."""
        for number, known in enumerate(self.objects):
            if known is found:
                return {"t": "object", "v": number}
        self.objects.append(found)
        return {"t": "object", "v": len(self.objects) - 1}

    def answer(self, call: list[Any]) -> Any:
        """Return the result of a call, as JSON."""
        self.results.append(None)
        verb, *items = call
        values = [decode(item, self.value) for item in items]
        if verb == "call":
            return self.called(*values)
        elif verb == "get":
            result = getattr(*values)
        elif verb == "set":
            setattr(*values)
            result = None
        else:
            use = getattr(operator, verb, None) or getattr(builtins, verb)
            result = use(*values)
        self.results[-1] = result
        return encode(result, self.item)

    def called(self, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Return the result of a function, with its arguments where it has changed one of them."""
        given = [*arguments, *named.values()]
        may_change = any(isinstance(each, list | dict | set) for each in given)
        before = encode(given, self.item) if may_change else None
        result = function(*arguments, **named)
        self.results[-1] = result
        answer = encode(result, self.item)
        after = encode(given, self.item) if may_change else None
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


def main() -> None:
    """Execute the program on standard input, and answer the calls there, a line each."""
    job = json.loads(sys.stdin.read())
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Nowhere()), "utf-8", "surrogateescape")
    # Not `__main__`: what a program does only as a script is not tested here.
    module = ModuleType("solution")
    sys.modules["solution"] = module
    exec(_compiled(job["prefix"], job["code"]), module.__dict__)
    answers = _Answers(module.__dict__)
    for call in job["calls"]:
        try:
            answer = answers.answer(call)
        except BaseException as error:
            answer = _error(error)
        # A line of its own, whatever the program has written to the file itself.
        os.write(1, f"\n{MARK}{json.dumps(answer)}\n".encode())
    os._exit(0)  # Without what the program has left to be done at the end.


def _compiled(prefix: str, code: str) -> Any:
    """Return the program, which continues the prefix or repeats it."""
    if prefix and not prefix.endswith("\n"):
        prefix += "\n"
    try:
        return compile(prefix + code, "solution", "exec", dont_inherit=True)
    except SyntaxError:
        return compile(code, "solution", "exec", dont_inherit=True)
