"""What runs in the two processes of a test: that of the test, and that of the program.

The first asks the second for each call of the program's functions. This file is sent to both as
text, so it imports the standard library only. It has three parts: values as they cross between the
two, then what each of them does.
"""

from __future__ import annotations

import builtins
import cmath
import io
import json
import operator
import os
import random
import re
import select
import sys
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from itertools import islice
from time import monotonic
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

# --- Values as JSON -------------------------------------------------------------------
# Whatever comes out of `decode` is made of built-in types: an instance of a program's own subclass
# of `int` arrives as an `int`.
#
#     None, bool, str, float, small int   themselves
#     list                                a list
#     anything else                       {"t": type, "v": content}

MOST_ITEMS = 100_000
"""Items that are taken from an iterator, which may be endless."""
_SMALL = 2**53
_SEQUENCES: tuple[type, ...] = (tuple, set, frozenset, deque)
_DICT_VIEWS: tuple[type, ...] = (KeysView, ValuesView, ItemsView)


def encode(value: Any, other: Callable[[Any], Any]) -> Any:
    """A value as JSON; a RecursionError if it is nested too deeply, or contains itself."""
    kind = type(value)
    if kind is float and value != value:
        return {"t": "float", "v": "nan"}  # Which is equal to itself, as a call of a test must be.
    if value is None or kind in (bool, str, float):
        return value
    if kind is int and -_SMALL < value < _SMALL:
        return value
    if kind in _CONTENT:
        return {"t": kind.__name__, "v": _CONTENT[kind][0](value)}
    if kind is list:
        return [encode(item, other) for item in value]
    if kind is dict:
        return {"t": "dict", "v": [[encode(k, other), encode(v, other)] for k, v in value.items()]}
    if kind in _SEQUENCES:
        items = [encode(item, other) for item in value]
        if kind in (set, frozenset):  # Their order differs between processes.
            items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        return {"t": kind.__name__, "v": items}
    if issubclass(kind, _DICT_VIEWS):
        return [encode(item, other) for item in value]
    for base in (int, float, str, bytes, list, dict, complex, *_SEQUENCES):
        if issubclass(kind, base):
            return encode(_as_base(value, base), other)
    if hasattr(kind, "__next__"):
        items = [encode(item, other) for item in islice(value, MOST_ITEMS)]
        return {"t": "iterator", "v": items}
    return other(value)


def _as_base(value: Any, base: type) -> Any:
    """An instance of a subclass, as what it is without it."""
    if base is dict:
        return dict(dict.items(value))
    if hasattr(base, "__getnewargs__"):  # Of what cannot be changed.
        return base(*base.__getnewargs__(value))
    return base(base.__iter__(value))  # type: ignore[attr-defined]


def decode(item: Any, other: Callable[[str, Any], Any]) -> Any:
    """What `encode` was given; a ValueError, TypeError or LookupError for anything else."""
    if isinstance(item, list):
        return [decode(inner, other) for inner in item]
    if not isinstance(item, dict):
        return item
    kind, content = item["t"], item["v"]
    if kind == "dict":
        return {decode(key, other): decode(value, other) for key, value in content}
    if kind == "iterator":
        return iter([decode(inner, other) for inner in content])
    for sequence in _SEQUENCES:
        if kind == sequence.__name__:
            return sequence(decode(inner, other) for inner in content)
    made = _FROM_CONTENT.get(kind)
    return made(content) if made else other(kind, content)


_CONTENT: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: (hex, lambda text: int(text, 16)),  # Without a limit of digits, which decimals have.
    float: (str, float),
    bytes: (bytes.hex, bytes.fromhex),
    bytearray: (bytearray.hex, bytearray.fromhex),
    complex: (lambda z: [z.real, z.imag], lambda parts: complex(*parts)),
    range: (lambda r: [r.start, r.stop, r.step], lambda parts: range(*parts)),
    date: (date.isoformat, date.fromisoformat),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda d: [d.days, d.seconds, d.microseconds], lambda parts: timedelta(*parts)),
    Fraction: (str, Fraction),
    Decimal: (str, Decimal),
}
"""To what is in JSON, and from it."""
_FROM_CONTENT = {kind.__name__: made for kind, (_, made) in _CONTENT.items()}


# --- The program ----------------------------------------------------------------------
# Nothing here is secret and nothing is trusted. The program can patch all of it, write whatever it
# likes and leave at any time: every line of the output is only what the program claims that a call
# has returned, and whether that is right is decided elsewhere.


class _Answers:
    """The program's names, and those of its objects that have been a result."""

    def __init__(self, names: dict[str, Any], printed: io.BytesIO) -> None:
        self._names, self._objects, self._printed = names, list[Any](), printed

    def answer(self, call: list[Any]) -> Any:
        verb, *items = call
        if verb == "printed":  # By the last call.
            sys.stdout.flush()
            return self._printed.getvalue().decode(errors="replace")
        with suppress(ValueError):  # The program may have closed it.
            self._printed.truncate(self._printed.seek(0))
        values = [decode(item, self._value) for item in items]
        if verb == "call":
            return self._called(*values)
        use = getattr(operator, verb, None) or getattr(builtins, verb)
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


def _raised(error: BaseException) -> dict[str, Any]:
    """An exception, by the nearest of its classes that is one of Python's, and its message."""
    kind = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
    message = error.args[0] if len(error.args) == 1 else error
    return {"t": "error", "v": [kind.__name__, str(message)]}


_MODULES = """
string re datetime collections heapq bisect copy math random statistics itertools functools operator
io sys json builtins typing
"""
"""What LiveCodeBench imports for a program."""


def run_program(code: str, prefix: str, has_imports: bool) -> None:
    """Execute the program, and answer the calls on standard input there, a line each."""
    sys.stdin = io.StringIO()
    printed = io.BytesIO()  # The output is for answers.
    sys.stdout = io.TextIOWrapper(printed, "utf-8", "surrogateescape", write_through=True)
    # Not `__main__`: what a program does only as a script is not tested here.
    module = ModuleType("solution")
    sys.modules["solution"] = module
    if has_imports:  # As Python's own names: a call is never answered by them.
        sys.setrecursionlimit(50_000)
        names = vars(module)["__builtins__"] = dict(vars(builtins))
        for each in _MODULES.split():
            exec(f"from {each} import *\nimport {each}", names)
    exec(_compiled(prefix, code), module.__dict__)
    known = _Answers(module.__dict__, printed)
    with open(0, "rb", closefd=False) as calls, open(0, "wb", closefd=False) as answers:
        for call in calls:
            try:
                answer = known.answer(json.loads(call))
            except ModuleNotFoundError:
                raise  # Its end says which.
            except BaseException as error:
                answer = _raised(error)
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


# --- The test, with stand-ins for the program's functions -----------------------------
# A stand-in passes calls of the program's functions on to the process of the program, and all else
# happens here: `f(3).startswith("abc")` is a call of `f`, and of its result, which is text,
# `startswith` is Python's. The program never gets "abc". Only where a result is an object of the
# program's own, its methods are asked of the program, with their arguments.

ASKED = "\x1easked"
"""A line of the output: the test has called the program."""
TestOutcome = Literal["passed", "failed", "error", "confined", "ended", "timeout", "output"]
"""`error`: an exception; `confined`: the test itself needs files or processes; of the program,
`ended`: before it answered a call; `timeout`, `output`: its answers took too long, or are so."""


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
        began = monotonic()
        ready, _, _ = select.select([0], [], [], max(0.0, self._seconds))
        self._seconds -= monotonic() - began
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
        self._program, self._stdout = program, sys.stdout
        self._objects = dict[int, _StandIn]()
        self.ended: TestOutcome | None = None
        self.raised = False  # what a test may raise again, as if its own code were confined

    def ask(self, verb: str, *values: Any) -> Any:
        call = [verb, *(encode(value, _item) for value in values)]
        if self.ended is not None:  # Whatever the test has caught.
            raise ProgramEndedError(self.ended)
        try:
            answer = self._program(call)
        except ProgramEndedError as error:
            self.ended = error.args[0]
            raise
        if verb != "printed" and sys.stdout is not self._stdout:  # The test captures it.
            sys.stdout.write(self.ask("printed"))
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
        error = _error(*content)
        self.raised |= isinstance(error, OSError | ImportError)
        raise error


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
        return self._talk.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._talk.ask("setattr", self, name, value)

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
        return self.of_program(name)

    def of_program(self, name: str) -> Any:
        """What `from solution import name` is, too, as in files for pytest."""
        if name.startswith("__"):  # `__all__` and `__path__`, which imports ask for.
            raise AttributeError(name)
        return _StandIn(self._program, {"t": "name", "v": name})


def judge(setup: str, test: str, program: Callable[[list[Any]], Any]) -> TestOutcome:
    """Run a test; `program` answers a call, or raises a ProgramEndedError."""
    random.seed(0)
    talk = _Talk(program)
    names = _Names(talk)
    solution = sys.modules["solution"] = ModuleType("solution")
    vars(solution)["__getattr__"] = names.of_program
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
    except Exception as error:
        is_confined = isinstance(error, PermissionError | FileNotFoundError | ImportError)
        outcome = "confined" if is_confined and not talk.raised else "error"
    return talk.ended or outcome


def _raises(kind: Any, function: Any = None, *given: Any, match: Any = None, **named: Any) -> Any:
    context = _raising(kind, match)
    if function is None:
        return context
    with context as found:
        function(*given, **named)
    return found


@contextmanager
def _raising(kind: Any, pattern: Any) -> Iterator[SimpleNamespace]:
    def match(pattern: Any) -> bool:
        assert re.search(pattern, str(found.value))
        return True

    found = SimpleNamespace(type=None, value=None, match=match)
    try:
        yield found
    except kind as error:
        found.type, found.value = type(error), error
    assert found.value is not None
    assert pattern is None or match(pattern)


_NUMBERS = (int, float, complex, Decimal, Fraction)


def _approx(right: Any, rel: Any = None, abs: Any = None, nan_ok: bool = False) -> Any:  # noqa: A002
    abs_tol = 1e-12 if abs is None else abs
    rel_tol = rel if rel is not None else 1e-6 if abs is None else 0.0

    def is_near(found: Any, right: Any) -> bool:
        if isinstance(right, dict):
            same = isinstance(found, dict) and found.keys() == right.keys()
            return same and all(is_near(found[key], right[key]) for key in right)
        if isinstance(right, list | tuple):
            same = isinstance(found, list | tuple) and len(found) == len(right)
            return same and all(map(is_near, found, right))
        if not (isinstance(right, _NUMBERS) and isinstance(found, _NUMBERS)):
            return bool(found == right)
        if found != found and right != right:
            return nan_ok
        return found == right or cmath.isclose(found, right, rel_tol=rel_tol, abs_tol=abs_tol)

    class Approx:
        def __eq__(self, found: Any) -> bool:
            return is_near(found, right)

    return Approx()


def run_test(setup: str, test: str, seconds: float, output: int) -> None:
    """Run a test and print what came of it, within the time and output of the program."""
    stdout, sys.stdin = sys.stdout, io.StringIO()  # The test may replace it.
    sys.modules["pytest"] = pytest = ModuleType("pytest")
    vars(pytest).update(raises=_raises, approx=_approx)
    found = judge(setup, test, _Link(seconds, output))
    print("\n" + found, file=stdout, flush=True)


# --- A checker, which says whether what a program has printed is right ----------------

_FILES = ("input.txt", "correct_output.txt", "solution_output.txt")


def run_checker(code: str) -> None:
    """Print the score by a checker; input, expected and printed output are on standard input.

    A script finds them in files, its arguments, and prints the score. What prints none has a
    function.
    """
    given, expected, printed = json.load(sys.stdin)
    texts = dict(zip(_FILES, (given, expected, printed), strict=True))

    def open_text(file: Any, mode: str = "r", *_: Any, **__: Any) -> Any:
        text = texts[os.fspath(file)]  # No other file can be opened.
        return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text, newline=None)

    builtins.open = io.open = open_text
    sys.argv, sys.stdin = ["checker.py", *_FILES], io.StringIO()
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "checker.py", "exec", dont_inherit=True), names)
    if not sys.stdout.tell():
        check = names.get("check")
        score = check(given, printed, expected) if check else names["main"](*_FILES)
        if score is not None:
            print(float(score))
