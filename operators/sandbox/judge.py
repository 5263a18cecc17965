"""What runs in the process of a test: the test, with stand-ins for the program's functions.

A stand-in passes calls of the program's functions on, and everything else happens here. What the
program has answered so far comes with the test. The first call that it was not asked ends the
judging, and from there on the test runs on with placeholders, only to learn which calls it will
make. So one or two processes of the program nearly always answer all calls.

Of a result that is not known yet nothing is asked: `f(3).startswith("abc")` is a call of `f`, and
once its result has arrived as text, `startswith` is Python's. The program never gets "abc". Only
where the result is an object of the program's own, its methods are asked of the program, with their
arguments. What it answered to the same call before is taken for known while calls are planned.
"""

from __future__ import annotations

import ast
import builtins
import json
import random
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal

from .plain_data import decode, encode

MOST_PLANNED = 1_000
"""Calls that are planned at once: a test may loop until the program gives a certain result."""
MOST_UNKNOWN = 10 * MOST_PLANNED
"""Steps that a test goes on with values that are not known."""
TestOutcome = Literal["passed", "failed", "error", "ended", "unanswered", "no_calls"]
"""`error`: an exception; `ended`: the program has ended before it answered a call; `unanswered`:
there are calls that it was not asked; `no_calls`: the test does not use the program at all."""


class ProgramError(Exception):
    """The program has raised an exception of its own."""


class ProgramEndedError(BaseException):
    """The program has ended before it answered this call."""


class _EnoughPlannedError(BaseException):
    """The test goes on for as long as results are not known."""


class _UnknownError(Exception):
    """A call has an argument that depends on a result that is not known yet."""


class _Talk:
    """The calls of a test, and what the program has answered to them."""

    def __init__(self, calls: list[Any], answers: list[Any]) -> None:
        self.calls = calls
        self.answers = answers
        self.at = 0
        self.is_planning = False
        self.has_ended = False
        self.most = self.unknowns = 0
        self.objects: dict[int, _StandIn] = {}
        self.before: dict[str, list[Any]] = {}

    def ask(self, verb: str, *values: Any) -> Any:
        """Return the program's result of a call; a placeholder where it is not known."""
        if not self.may_ask(verb, values[0]):
            return self.unknown()
        try:
            call = [verb, *(encode(value, _item) for value in values)]
        except _UnknownError:
            return self.unknown()
        if not self.is_planning:
            if self.at < len(self.calls) and self.resolved(self.calls[self.at]) == call:
                self.at += 1
                return self.result(self.at - 1, values)
            self.plan()
        if len(self.calls) >= self.most:
            raise _EnoughPlannedError
        return self.planned(call, values)

    def may_ask(self, verb: str, target: _StandIn) -> bool:
        """Return whether something is the program's: a name, an object, or what such a one has."""
        item = vars(target)["_item"]
        of_object = item and item["t"] == "result" and self.calls[item["v"]][0] == "get"
        return _is_known(target) or (verb == "call" and bool(of_object))

    def plan(self) -> None:
        """Go on without results: from here on the calls differ from those that were planned."""
        for call, answer in zip(self.calls, self.answers, strict=False):
            self.before.setdefault(self.key(call), []).append(answer)
        self.is_planning, self.most = True, self.at + MOST_PLANNED
        for call in self.calls[: self.at]:
            self.last(self.key(call))
        del self.calls[self.at :], self.answers[self.at :]

    def planned(self, call: list[Any], values: tuple[Any, ...]) -> Any:
        """Return the result of a call that is planned: what it was before, else a placeholder."""
        place = len(self.calls)
        item = {"t": "result", "v": place}
        answer = self.last(self.key(call), item)
        self.calls.append(call)
        self.answers.append(answer)
        if isinstance(answer, dict) and answer["t"] in ("object", "result"):
            return _StandIn(self, item, is_known=answer is not item)
        return self.result(place, values)

    def last(self, key: str, otherwise: Any = None) -> Any:
        """What the program answered to a call before: of several times one after the other."""
        found = self.before.get(key, [otherwise])
        return found.pop(0) if len(found) > 1 else found[0]

    def key(self, call: list[Any]) -> str:
        return json.dumps(self.resolved(call))

    def unknown(self) -> _StandIn:
        """Stands for what depends on a result that is not known yet."""
        self.unknowns += 1
        if self.unknowns > MOST_UNKNOWN:
            raise _EnoughPlannedError
        return _StandIn(self, None, is_known=False)

    def result(self, place: int, values: tuple[Any, ...]) -> Any:
        if place >= len(self.answers):
            self.has_ended = True  # Whatever the test catches.
            raise ProgramEndedError
        answer = self.answers[place]
        if isinstance(answer, dict) and answer["t"] == "changed":
            answer, changed = answer["v"]
            self.change([*values[1], *values[2].values()], decode(changed, self.value))
        return decode(answer, self.value)

    def change(self, arguments: list[Any], contents: list[Any]) -> None:
        """Do to the arguments of a call what the program has done to its copies."""
        for argument, content in zip(arguments, contents, strict=True):
            if isinstance(argument, list) and isinstance(content, list):
                argument[:] = content
            elif isinstance(argument, dict | set) and type(argument) is type(content):
                argument.clear()
                argument.update(content)

    def value(self, kind: str, content: Any) -> Any:
        """Return what is not plain data: an object of the program, or an exception."""
        if kind == "object":
            item = {"t": kind, "v": int(content)}
            return self.objects.setdefault(int(content), _StandIn(self, item))
        raise _error(*content)

    def resolved(self, item: Any) -> Any:
        """A planned call with results in the place of placeholders, as far as they are known."""
        if isinstance(item, list):
            return [self.resolved(inner) for inner in item]
        if not isinstance(item, dict):
            return item
        if item["t"] != "result":
            return {"t": item["t"], "v": self.resolved(item["v"])}
        if item["v"] >= len(self.answers):
            return item
        answer = self.answers[item["v"]]
        is_changed = isinstance(answer, dict) and answer["t"] == "changed"
        return answer["v"][0] if is_changed else answer


def _error(name: str, message: str) -> Exception:
    """Return an exception of the program, as one of Python's own where it is derived from that."""
    found = getattr(builtins, name, None)
    # StopIteration would end a loop of the test as if all was well.
    if isinstance(found, type) and issubclass(found, Exception) and found is not StopIteration:
        for kind in found.__mro__[:-2]:
            with suppress(TypeError):  # It wants more than a message, as UnicodeDecodeError does.
                made: Exception = kind(message)
                return made
    return ProgramError(f"{name}: {message}")


class _StandIn:
    """Stands for a function or an object of the program, or for a result that is not known yet."""

    def __init__(self, talk: _Talk, item: dict[str, Any] | None, *, is_known: bool = True) -> None:
        vars(self).update(_talk=talk, _item=item, _is_known=is_known)

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


def _item(value: Any) -> Any:
    if isinstance(value, _StandIn):
        if vars(value)["_item"] is None:
            raise _UnknownError
        return vars(value)["_item"]
    raise TypeError(f"a test passes a {type(value).__name__} to the program")


def _is_known(value: Any) -> bool:
    """Return whether a value is no placeholder for the result of a call."""
    return not isinstance(value, _StandIn) or vars(value)["_is_known"] is True


def _use(verb: str, placeholder: Any) -> Any:
    """Return a method of stand-ins for an operator or a function of Python, such as `len`.

    The program never gets to see what it is compared with: operands must all be its own objects.
    """

    def method(self: _StandIn, *others: Any) -> Any:
        if not all(map(_is_known, (self, *others))):
            return vars(self)["_talk"].unknown() if placeholder is _StandIn else placeholder
        if verb != "getitem" and not all(isinstance(other, _StandIn) for other in others):
            return NotImplemented
        result = vars(self)["_talk"].ask(verb, self, *others)
        return iter(result) if verb == "list" else result

    return method


def _use_on_right(self: _StandIn, _: Any) -> Any:
    return NotImplemented if _is_known(self) else vars(self)["_talk"].unknown()


# What an unknown result does in a test that only plans: it satisfies what it can.
for _verb, _placeholder in {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), True),
    **dict.fromkeys(("add", "sub", "mul", "truediv", "mod", "neg", "abs", "getitem"), _StandIn),
    **{"bool": True, "len": 0, "int": 0, "float": 0.0, "str": "", "repr": ""},
}.items():
    setattr(_StandIn, f"__{_verb}__", _use(_verb, _placeholder))
for _verb in ("add", "sub", "mul", "truediv", "mod"):
    setattr(_StandIn, f"__r{_verb}__", _use_on_right)
_StandIn.__iter__ = _use("list", iter(()))  # type: ignore[attr-defined]


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


class _LetPlanningPass(ast.NodeTransformer):
    """An assertion about a result that is not known yet does not end the test."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        handler = ast.parse("try: pass\nexcept Exception:\n if not __is_planning__(): raise").body[
            0
        ]
        assert isinstance(handler, ast.Try)
        handler.body = [node]
        return ast.fix_missing_locations(ast.copy_location(handler, node))


def _compiled(text: str) -> Any:
    tree = _LetPlanningPass().visit(ast.parse(text))
    return compile(tree, "test", "exec", dont_inherit=True)


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """Run a test.

    Args:
        job: `setup` and `test`, Python code; `calls` of the program and its `answers`, which may be
            fewer.

    Returns:
        The `outcome`, and for `unanswered` all `calls` to ask the program.
    """
    random.seed(0)
    talk = _Talk(job["calls"], job["answers"])
    names = _Names(talk)
    names["__is_planning__"] = lambda: talk.is_planning
    outcome: TestOutcome = "passed"
    try:
        exec(_compiled(job["setup"]), names)
        exec(_compiled(job["test"]), names)
    except ProgramEndedError:
        pass
    except AssertionError:
        outcome = "failed"
    except SystemExit as end:  # As unittest.main ends.
        outcome = "failed" if end.code else "passed"
    except (_EnoughPlannedError, Exception):
        outcome = "error"
    if talk.has_ended:
        return {"outcome": "ended"}
    if talk.is_planning:
        return {"outcome": "unanswered", "calls": talk.calls}
    if talk.at == 0:
        outcome = "no_calls"
    return {"outcome": outcome}


def main() -> None:
    """Run the test on standard input, and print what came of it."""
    stdout = sys.stdout  # The test may replace it.
    found = judge(json.loads(sys.stdin.read()))
    print("\n" + json.dumps(found), file=stdout)
