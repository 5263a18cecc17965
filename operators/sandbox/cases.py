"""Tests of programs as datasets have them, read into the two forms that the sandbox runs."""

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
from typing import Any, NamedTuple, TypeAlias

from ..errors import shown

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
    style: str = "auto",
    checker: Any = None,
) -> tuple[Case, ...]:
    """The tests in the cells of a row, none in null; a BadTestsError if one cannot be read."""
    lines = [] if setup is None else [setup] if isinstance(setup, str) else setup
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadTestsError(f"the code before the tests, {shown(setup)}, is no text")
    name, code, found = _name_in(_decoded(entry_point)), _checker(checker), list[Case]()
    for case in (each for cell in cells for each in _cases(_decoded(cell, packed=True), name)):
        if style == ("stdin" if isinstance(case, AssertCase) else "assert"):
            raise BadTestsError(f"they are not of style {style}")
        if isinstance(case, AssertCase):
            if code:
                raise BadTestsError("they have a checker of what is printed, but call functions")
            found.append(case._replace(setup="\n".join(lines)))
        else:
            found.append(case._replace(checker=code))
    return tuple(found)


def _cases(cell: Any, name: str | None) -> Iterator[Case]:
    if isinstance(cell, dict):
        yield from _in_dict({key: value for key, value in cell.items() if value is not None}, name)
    elif isinstance(cell, list):
        for number, test in enumerate(map(_decoded, cell), 1):
            try:
                yield from [_pair(test, name)] if isinstance(test, dict) else _python(test, name)
            except BadTestsError as error:
                raise BadTestsError(f"test {number}: {error}") from None
    elif cell is not None:
        yield from _python(cell, name)


def _in_dict(cell: dict[str, Any], name: str | None) -> Iterator[Case]:
    """Tests beside what is about them, lists of inputs and of outputs, or one test."""
    own = _name_in(cell)
    inputs, outputs = (cell.get(f"{key}s", cell.get(key)) for key in ("input", "output"))
    nested = next((key for key in _NESTED if key in cell), "")
    if nested or not cell:
        yield from _cases(_decoded(cell.get(nested)), own or name)
    elif not isinstance(inputs, list) or not isinstance(outputs, list):
        yield _pair(cell, name)
    elif len(inputs) != len(outputs):
        raise BadTestsError(f"{len(inputs)} inputs but {len(outputs)} outputs")
    else:
        pairs = zip(inputs, outputs, strict=True)
        yield from _cases([{"input": i, "output": o, "fn_name": own} for i, o in pairs], name)


def _pair(test: dict[str, Any], name: str | None) -> Case:
    if not {"input", "output"} <= test.keys():
        raise BadTestsError(f"it has {', '.join(test) or 'nothing'}, not input and output")
    given, expected, own = test["input"], test["output"], _name_in(test)
    kind, name = str(test.get("testtype") or test.get("type") or ""), own or name
    is_call = kind.startswith("function") if kind else own or (name and not isinstance(given, str))
    if not is_call:
        return StdinCase(_text(given), _text(expected))
    if name is None:
        raise BadTestsError("it calls a function whose name is not there: `entry_point`")
    if isinstance(given, str):  # LiveCodeBench: an argument a line, as JSON
        given = [_value(line) for line in given.splitlines() if line.strip()]
        return _call(name, given, [_value(expected) if isinstance(expected, str) else expected])
    # A result may be in a list of its own, as TACO has it.
    is_wrapped = isinstance(expected, list) and len(expected) == 1
    return _call(name, given, [expected, *expected] if is_wrapped else [expected])


def _name_in(about: Any) -> str | None:
    """The function that is named: by a text, or in a dict, of tests or in their metadata."""
    if isinstance(about, dict):
        more = _decoded(about.get("metadata"))
        more = _name_in(more) if isinstance(more, dict) else None
        about = next((about[key] for key in _NAMES if about.get(key)), more)
    if about and not (isinstance(about, str) and _NAME.match(about)):
        raise BadTestsError(f"{shown(about)} is no name of a function")
    return about or None


# --- Tests that are Python --------------------------------------------------------------

_MODULES = """
string re datetime collections heapq bisect copy math random statistics itertools functools operator
io sys json builtins typing
"""
_BEFORE = "".join(f"from {each} import *\nimport {each}\n" for each in _MODULES.split())
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


def _call(name: str, arguments: Any, right: list[Any]) -> AssertCase:
    """A call whose result, with tuples as lists, is one of the right ones."""
    if not isinstance(arguments, list):
        raise BadTestsError(f"{shown(arguments)} are no arguments of {name}")
    match arguments:  # As the graders of APPS and TACO have it: keys in JSON are texts.
        case [dict(first), *rest] if all(re.fullmatch(r"-?\d+", str(key)) for key in first):
            arguments = [{int(key): value for key, value in first.items()}, *rest]
    try:
        texts, _ = json.dumps(right), json.dumps(arguments)
    except (TypeError, ValueError):
        raise BadTestsError(f"{shown(arguments)} or {shown(right[0])} is not in JSON") from None
    name = name.removeprefix("Solution().")
    return AssertCase("", _CALL.format(name=name, arguments=arguments, right=texts), _BEFORE)


def _python(text: str, name: str | None) -> Iterator[AssertCase]:
    """Tests that are Python: HumanEval's `check`, those of a file for pytest, or statements."""
    body = _statements(text)
    outside = [each for each in body if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    nodes = (node for each in outside for node in ast.walk(each))
    called = {getattr(node.func, "id", "") for node in nodes if isinstance(node, ast.Call)}
    if "check" not in called and any(getattr(each, "name", "") == "check" for each in body):
        if name is None:
            raise BadTestsError("they define check, and no `entry_point` says what it is given")
        calls = [f"check({name})"]
    else:
        calls = [*_calls_of_tests(body, called)]
    if body and not calls and not called:
        raise BadTestsError(f"{shown(text)} calls no function")
    tests = [f"{text}\n\n{call}\n" for call in calls] or [text] * bool(body)
    before = _BEFORE if str(name).startswith("Solution()") else ""
    yield from (AssertCase("", test, before) for test in tests)


def _statements(text: str) -> list[ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise BadTestsError(f"{shown(text)} is neither JSON nor Python") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or node.names[0].name
            if module.partition(".")[0] not in {"solution", *sys.stdlib_module_names}:
                raise BadTestsError(f"they import {module}, and have the standard library alone")
    return tree.body


def _checker(code: Any) -> str:
    if not isinstance(code, str | None):
        raise BadTestsError(f"the checker {shown(code)} is no text")
    text = (code or "").strip()
    try:
        _statements(text)
    except BadTestsError as error:
        raise BadTestsError(f"the checker cannot be run: {error}") from None
    return text


def _calls_of_tests(body: list[ast.stmt], called: set[str]) -> Iterator[str]:
    """How the tests are called that pytest finds in a file, but for helpers that it calls."""
    for each in body:
        of = each if isinstance(each, ast.ClassDef) else None
        inner = of.body if of else [each]
        for test in (node for node in inner if isinstance(node, ast.FunctionDef)):
            if not test.name.startswith("test") or test.name in called:
                continue
            if len(test.args.args) > len(test.args.defaults) + (of is not None):
                raise BadTestsError(f"{test.name} has arguments that only pytest gives")
            if of and any("TestCase" in ast.unparse(base) for base in of.bases):
                yield f"{of.name}('{test.name}').debug()"
            else:
                yield f"{of.name}().{test.name}()" if of else f"{test.name}()"


# --- Values -----------------------------------------------------------------------------


def _decoded(cell: Any, *, packed: bool = False) -> Any:
    return _read(cell, packed) if isinstance(cell, str) else cell


@lru_cache(maxsize=4)  # The responses of a group have the same tests.
def _read(text: str, packed: bool) -> Any:
    if packed and _PACKED.match(text):
        text = _unpacked(text)
    try:
        return _value(text) if text.lstrip()[:1] in ("[", "{") else text
    except BadTestsError:
        return text


def _value(text: str) -> Any:
    """A value in JSON, or as Python writes it."""
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
        if not unpacker.eof:
            raise ValueError
        found = [(each.name, value) for each, value, _ in islice(pickletools.genops(data), 8)]
    except (ValueError, zlib.error):
        what = f"base64 of zlib of a pickle of up to {_MOST_UNPACKED:,} bytes"
        raise BadTestsError(f"packed tests are no {what}") from None
    texts = [str(value) for name, value in found if "BINUNI" in name]
    others = {name for name, _ in found if "BINUNI" not in name}
    if len(texts) != 1 or others - _AROUND_TEXT:
        raise BadTestsError("packed tests are a pickle of something else than a text")
    return texts[0]


def _text(value: Any) -> str:
    """What a program reads or prints: lines may be a list, and numbers are as they are written."""
    if isinstance(value, list):
        return "".join(f"{_text(line)}\n" for line in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadTestsError(f"{shown(value)} is no text of a program")
    return str(value)
