"""Tests of programs as datasets have them, read into the two forms that the sandbox runs.

    cell -> decoded: JSON text, LiveCodeBench's packed text -> the layout -> StdinCase, AssertCase

A layout is what a dict has as its keys, or what a text is; one that is none of them is refused with
what was found.
"""

from __future__ import annotations

import ast
import base64
import json
import pickletools
import re
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

from ..errors import shown

TestStyle = Literal["auto", "stdin", "assert"]

_MOST_UNPACKED = 128 * 2**20
_PACKED = re.compile(r"\s*e[AFJN][\w+/=\s]+\Z")  # zlib's header in base64
_AROUND_TEXT = {"PROTO", "FRAME", "MEMOIZE", "STOP"}  # in a pickle
_NESTED = ("test_cases", "assert_case", "ground_truth", "tests", "unit_tests", "test_code", "test")
"""Keys of a dict whose value are the tests, the rest being about them."""
_NAMES = ("fn_name", "func_name", "entry_point")
_NAME = re.compile(r"(?:Solution\(\)\.)?[^\W\d]\w*\Z")


class BadTestsError(ValueError):
    """Tests that no program can be graded by; the message says what was found."""


class StdinCase(NamedTuple):
    """What a program reads from standard input, and what it should print."""

    stdin: str
    expected: str
    checker: str = ""  # code that says whether what is printed is right, if there is any


class AssertCase(NamedTuple):
    """Python code that fails unless the program's functions do what they should."""

    setup: str  # code to run before it, such as imports
    test: str  # assertions
    before_program: str = ""  # code that goes before the program


Case: TypeAlias = StdinCase | AssertCase


def cases_of(
    cells: Iterable[Any],
    setup: Any = None,
    entry_point: Any = None,
    style: TestStyle = "auto",
    checker: Any = None,
) -> tuple[Case, ...]:
    """The tests in the cells of a row; none in null.

    Args:
        cells: each in one of the layouts of `unit_test_mapper`, or that as JSON text.
        setup: code to run before each assertion, as text or as a list of lines.
        entry_point: the function that tests call where they do not name it: its name, or
            `{func_name: name}`, also as JSON text.
        style: what tests have to be.
        checker: code that says whether what a program prints is right.

    Raises:
        BadTestsError: a cell is something else.
    """
    before, name = _joined(setup), _function_name(_decoded(entry_point))
    cases = [case for cell in cells for case in _cases(_decoded(cell), name)]
    found = {"assert" if isinstance(case, AssertCase) else "stdin" for case in cases}
    if style != "auto" and found - {style}:
        raise BadTestsError(f"they are of style {found.pop()}")
    code = _checker(checker)
    if code and "assert" in found:
        raise BadTestsError("they have a checker of what is printed, but call functions")
    return tuple(
        each._replace(setup=before) if isinstance(each, AssertCase) else each._replace(checker=code)
        for each in cases
    )


def _cases(cell: Any, name: str | None) -> Iterator[Case]:
    if isinstance(cell, dict):
        name = _name_in(cell) or name
        nested = next((key for key in _NESTED if cell.get(key)), None)
        if nested:
            language = str(cell.get("language") or "python")
            if not language.lower().startswith("py"):
                raise BadTestsError(f"they are for programs in {language}")
            yield from _cases(_decoded(cell[nested]), name)
        else:
            yield from _parallel(cell, name)
    elif isinstance(cell, str):
        yield from _python(cell, name)
    elif isinstance(cell, list):
        for number, test in enumerate(map(_decoded, cell), 1):
            try:
                if isinstance(test, dict):
                    yield _pair(test, name)
                elif isinstance(test, str):
                    yield from _python(test, name)
                elif test is not None:
                    raise BadTestsError(f"{shown(test)} is neither a pair nor a statement")
            except BadTestsError as error:
                raise BadTestsError(f"test {number}: {error}") from None
    elif cell is not None:
        raise BadTestsError(f"{shown(cell)} has no tests")


def _pair(test: dict[str, Any], name: str | None) -> Case:
    """A test that is a dict, such as `{input, output}`."""
    if not {"input", "output"} <= test.keys():
        raise BadTestsError(f"it has {', '.join(test) or 'nothing'}, not input and output")
    given, expected, own = test["input"], test["output"], _name_in(test)
    kind, called = str(test.get("testtype") or test.get("type") or ""), own or name
    if not kind.startswith("function") and (kind or not _is_call(called, own, [given])):
        return StdinCase(_text(given), _text(expected))
    if called is None:
        raise BadTestsError("it calls a function whose name is not there: `entry_point`")
    if isinstance(given, str):  # LiveCodeBench: an argument a line, as JSON
        given = [_value(line) for line in given.splitlines() if line.strip()]
        return _call(called, given, _value(expected))
    return _call(called, given, *_right(expected, _is_wrapped(expected)))


def _parallel(cell: dict[str, Any], name: str | None) -> Iterator[Case]:
    """Tests as lists, of inputs and of outputs."""
    there = {key: value for key, value in cell.items() if value is not None}
    inputs, outputs = (there.get(f"{key}s", there.get(key)) for key in ("input", "output"))
    if not there:
        return
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise BadTestsError(f"it has {', '.join(there)}, not inputs and outputs")
    if len(inputs) != len(outputs):
        raise BadTestsError(f"{len(inputs)} inputs but {len(outputs)} outputs")
    own, wrapped = _name_in(cell), all(map(_is_wrapped, outputs))
    for given, expected in zip(inputs, outputs, strict=True):
        if name and _is_call(name, own, inputs):
            yield _call(name, _numbered(given), *_right(expected, wrapped))
        else:
            yield StdinCase(_text(given), _text(expected))


def _is_call(name: str | None, own: str | None, inputs: list[Any]) -> bool:
    """Whether inputs are arguments of a function, which the tests themselves may name."""
    return bool(own or (name and not all(isinstance(each, str) for each in inputs)))


def _is_wrapped(expected: Any) -> bool:
    """Whether a result may be in a list of its own, as TACO has it."""
    return isinstance(expected, list) and len(expected) == 1


def _right(expected: Any, wrapped: bool) -> list[Any]:
    return [expected, *expected] if wrapped else [expected]


def _numbered(arguments: Any) -> Any:
    """Arguments whose first is a dict with numbers as keys, which are texts in JSON, as of APPS."""
    match arguments:
        case [dict(first), *rest] if all(re.fullmatch(r"-?\d+", str(key)) for key in first):
            return [{int(key): value for key, value in first.items()}, *rest]
    return arguments


# --- Python -----------------------------------------------------------------------------


def _python(text: str, name: str | None) -> Iterator[AssertCase]:
    """Tests that are Python: HumanEval's `check`, those of a file for pytest, or statements."""
    body = _statements(text)
    called = {
        node.func.id if isinstance(node.func, ast.Name) else ""
        for each in body
        if not isinstance(each, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(each)
        if isinstance(node, ast.Call)
    }
    if "check" not in called and any(getattr(each, "name", "") == "check" for each in body):
        if name is None:
            raise BadTestsError("they define check, and no `entry_point` says what it is given")
        calls = [f"check({name})"]
    else:
        calls = [*_calls_of_tests(body, called)]
    if body and not calls and not called:
        raise BadTestsError(f"{shown(text)} calls no function")
    for call in calls:
        yield AssertCase("", f"{text}\n\n{call}\n")
    if body and not calls:
        yield AssertCase("", text)


def _statements(text: str) -> list[ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadTestsError(f"{shown(text)} is neither JSON nor Python") from None
    for node in ast.walk(tree):
        modules = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or "."]
        for module in (each.partition(".")[0] for each in modules):
            if module not in {"solution", *sys.stdlib_module_names}:
                raise BadTestsError(f"they import {module}, and have the standard library alone")
    return tree.body


def _calls_of_tests(body: list[ast.stmt], called: set[str]) -> Iterator[str]:
    """How the tests are called that pytest finds in a file, but for helpers that it calls."""
    for each in body:
        of = each if isinstance(each, ast.ClassDef) else None
        for test in of.body if of else [each]:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test"):
                continue
            if test.name in called:
                continue
            if len(test.args.args) > len(test.args.defaults) + (of is not None):
                raise BadTestsError(f"{test.name} has arguments that only pytest gives")
            if of is None:
                yield f"{test.name}()"
            elif any("TestCase" in ast.unparse(base) for base in of.bases):
                yield f"{of.name}('{test.name}').debug()"
            else:
                yield f"{of.name}().{test.name}()"


def _checker(code: Any) -> str:
    text = _joined(code).strip()
    try:
        _statements(text)
    except BadTestsError as error:
        raise BadTestsError(f"the checker cannot be run: {error}") from None
    return text


# --- Calls ------------------------------------------------------------------------------

_IMPORTED = """
string re datetime collections heapq bisect copy math random statistics itertools functools operator
io sys json builtins typing
"""
_BEFORE = "".join(f"from {each} import *\nimport {each}\n" for each in _IMPORTED.split())
_BEFORE += "sys.setrecursionlimit(50_000)\n"
"""What LiveCodeBench runs before a program, whose `Solution` may have no imports of its own."""
_CALL = """
import solution
from math import inf, nan
try:
    function = solution.Solution().{name}
except (NameError, AttributeError):
    function = solution.{name}
found = function(*{arguments!r})
import json
assert json.loads(json.dumps(found)) in json.loads({right!r})
"""


def _call(name: str, arguments: Any, *right: Any) -> AssertCase:
    """A call whose result, with tuples as lists, is one of the right ones."""
    if not isinstance(arguments, list):
        raise BadTestsError(f"{shown(arguments)} are no arguments of {name}")
    name = name.removeprefix("Solution().")
    text = _CALL.format(name=name, arguments=arguments, right=json.dumps(right))
    return AssertCase("", text, _BEFORE)


# --- Values -----------------------------------------------------------------------------


@lru_cache(maxsize=8)  # The responses of a group have the same tests.
def _read(text: str) -> Any:
    if _PACKED.match(text):
        text = _unpacked(text)
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        return _value(text)
    except BadTestsError:
        return text


def _decoded(cell: Any) -> Any:
    return _read(cell) if isinstance(cell, str) else cell


def _value(text: Any) -> Any:
    """A value in JSON, or as Python writes it."""
    if not isinstance(text, str):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            pass
    raise BadTestsError(f"{shown(text)} is no argument or result in JSON")


def _unpacked(text: str) -> str:
    """The text in LiveCodeBench's base64 of zlib of a pickle, which is not executed."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(text), _MOST_UNPACKED)
        operations = [] if not unpacker.eof else [*islice(pickletools.genops(data), 8)]
    except (ValueError, zlib.error):
        raise BadTestsError("packed tests are no base64 of zlib of a pickle") from None
    if not unpacker.eof:
        raise BadTestsError(f"packed tests are cut off or of more than {_MOST_UNPACKED} bytes")
    texts = [str(value) for operation, value, _ in operations if "BINUNI" in operation.name]
    others = {operation.name for operation, *_ in operations if "BINUNI" not in operation.name}
    if len(texts) != 1 or others - _AROUND_TEXT:
        raise BadTestsError("packed tests are a pickle of something else than a text")
    return texts[0]


def _function_name(found: Any) -> str | None:
    name = _name_in(found) if isinstance(found, dict) else found
    if name is not None and not (isinstance(name, str) and _NAME.match(name)):
        raise BadTestsError(f"{shown(name)} is no name of a function")
    return name or None


def _name_in(test: dict[str, Any]) -> str | None:
    """The function that a test says it calls."""
    about = _decoded(test.get("metadata"))
    named = {**about, **test} if isinstance(about, dict) else test
    return _function_name(next((named[key] for key in _NAMES if named.get(key)), None))


def _text(value: Any) -> str:
    """What a program reads or prints: lines may be a list, and numbers are as they are written."""
    if isinstance(value, list):
        return "".join(f"{_text(line)}\n" for line in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadTestsError(f"{shown(value)} is no text of a program")
    return str(value)


def _joined(setup: Any) -> str:
    lines = [] if setup is None else [setup] if isinstance(setup, str) else setup
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadTestsError(f"the code before the tests, {shown(setup)}, is no text")
    return "\n".join(lines)
