"""Tests of programs as datasets have them, read into the two forms that the sandbox runs.

    cell -> decoded: JSON text, LiveCodeBench's packed text -> the layout -> StdinCase, AssertCase

A layout is what a dict has as its keys, or what a text is; one that is none of them is refused with
what was found.
"""

from __future__ import annotations

import ast
import base64
import binascii
import json
import pickletools
import re
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

_MOST_UNPACKED = 128 * 2**20
_PACKED = re.compile(r"\s*e[AFJN][\w+/=\s]+\Z")  # zlib's header in base64
_OF_ONE_TEXT = frozenset(
    {"PROTO", "FRAME", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "MEMOIZE", "BINPUT", "STOP"}
)
_NESTED = ("test_cases", "assert_case", "ground_truth", "tests", "unit_tests")
"""Keys of a dict whose value are the tests, the rest being about them."""


class BadTestsError(ValueError):
    """Tests that no program can be graded by; the message says what was found."""


class StdinCase(NamedTuple):
    """What a program reads from standard input, and what it should print."""

    stdin: str
    expected: str


class AssertCase(NamedTuple):
    """Python code that fails unless the program's functions do what they should."""

    setup: str  # code to run before it, such as imports
    test: str  # assertions


Case: TypeAlias = StdinCase | AssertCase


def cases_of(cells: Iterable[Any], setup: Any = None, entry_point: Any = None) -> tuple[Case, ...]:
    """The tests in the cells of a row; none in null.

    Args:
        cells: each in one of the layouts of `unit_test_mapper`, or that as JSON text.
        setup: code to run before each assertion, as text or as a list of lines.
        entry_point: the function that tests call where they do not name it: its name, or
            `{func_name: name}`, also as JSON text.

    Raises:
        BadTestsError: a cell is something else.
    """
    before, name = _joined(setup), _function_name(entry_point)
    return tuple(
        case._replace(setup=before) if isinstance(case, AssertCase) else case
        for cell in cells
        for case in _cases(_decoded(cell), name)
    )


def _cases(cell: Any, name: str | None) -> Iterator[Case]:
    if isinstance(cell, dict):
        nested = next((key for key in _NESTED if cell.get(key)), None)
        if nested:
            _check_language(cell)
            yield from _cases(_decoded(cell[nested]), _name_in(cell) or name)
        else:
            yield from _parallel(cell, name)
    elif isinstance(cell, str):
        yield from _python(cell, name)
    elif isinstance(cell, list):
        for number, test in enumerate(cell, 1):
            try:
                if isinstance(test, str):
                    yield from _python(test, name)
                elif isinstance(test, dict):
                    yield _pair(test, name)
                else:
                    raise BadTestsError(f"{_shown(test)} is neither a pair nor a statement")
            except BadTestsError as error:
                raise BadTestsError(f"test {number}: {error}") from None
    elif cell is not None:
        raise BadTestsError(f"{_shown(cell)} has no tests")


def _pair(test: dict[str, Any], name: str | None) -> Case:
    """A test that is a dict, such as `{input, output}`."""
    if not {"input", "output"} <= test.keys():
        raise BadTestsError(f"it has {', '.join(test) or 'nothing'}, not input and output")
    kind = str(test.get("testtype") or test.get("type") or "")
    called = _name_in(test) or name
    if kind.startswith("function") or (not kind and _name_in(test)):
        if called is None:
            raise BadTestsError("it calls a function whose name is not there: `entry_point`")
        given, expected = test["input"], test["output"]
        if isinstance(given, str):  # LiveCodeBench: an argument a line, as JSON
            lines = [_value(line) for line in given.splitlines() if line.strip()]
            return _call(called, lines, _value(_text(expected)))
        return _call(called, given, *_right(expected, _is_wrapped(expected)))
    return StdinCase(_text(test["input"]), _text(test["output"]))


def _parallel(cell: dict[str, Any], name: str | None) -> Iterator[Case]:
    """Tests as lists, of inputs and of outputs."""
    inputs, outputs = (cell.get(f"{each}s", cell.get(each)) for each in ("input", "output"))
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise BadTestsError(f"it has {', '.join(cell) or 'nothing'}, not inputs and outputs")
    if len(inputs) != len(outputs):
        raise BadTestsError(f"{len(inputs)} inputs but {len(outputs)} outputs")
    called = _name_in(cell) or (name if not all(isinstance(each, str) for each in inputs) else None)
    if called is None:
        yield from map(StdinCase, map(_text, inputs), map(_text, outputs))
        return
    wrapped = all(map(_is_wrapped, outputs))
    for given, expected in zip(inputs, outputs, strict=True):
        yield _call(called, given, *_right(expected, wrapped))


def _is_wrapped(expected: Any) -> bool:
    """Whether a result may be in a list of its own, as TACO has it."""
    return isinstance(expected, list) and len(expected) == 1


def _right(expected: Any, wrapped: bool) -> list[Any]:
    return [expected, *expected] if wrapped else [expected]


def _python(text: str, name: str | None) -> Iterator[AssertCase]:
    """Tests that are Python: HumanEval's `check`, the functions of a file for pytest, or itself."""
    if not text.strip():
        return
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        raise BadTestsError(f"{_shown(text)} is neither JSON nor Python") from None
    if not any(isinstance(node, ast.Call) for each in body for node in ast.walk(each)):
        raise BadTestsError(f"{_shown(text)} calls no function")
    functions = {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
    if "check" in functions and name:
        yield AssertCase("", f"{text}\n\ncheck({name})\n")
        return
    tests = [each for each in functions if each.startswith("test")]
    for each in tests:
        if functions[each].args.args:
            raise BadTestsError(f"{each} has arguments that only pytest gives")
        yield AssertCase("", f"{text}\n\n{each}()\n")
    if not tests:
        yield AssertCase("", text)


_CALL = """
import json
arguments, right = json.loads({values!r})
try:
    function = Solution().{name}
except (NameError, AttributeError):
    function = {name}
found = function(*arguments)
assert json.loads(json.dumps(found)) in right
"""


def _call(name: str, arguments: Any, *right: Any) -> AssertCase:
    """A call whose result, with tuples as lists, is one of the right ones."""
    if not isinstance(arguments, list):
        raise BadTestsError(f"{_shown(arguments)} are no arguments of {name}")
    values = json.dumps([arguments, right])
    return AssertCase("", _CALL.format(values=values, name=name))


# --- Values -----------------------------------------------------------------------------


@lru_cache(maxsize=64)  # The responses of a group have the same tests.
def _read(text: str) -> Any:
    if _PACKED.match(text):
        text = _unpacked(text)
    if text.lstrip()[:1] not in ("[", "{"):
        return text if text.strip() else None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _decoded(cell: Any) -> Any:
    return _read(cell) if isinstance(cell, str) else cell


def _unpacked(text: str) -> str:
    """The text in LiveCodeBench's base64 of zlib of a pickle, which is not executed.

    A pickle of a text has the operations of `_OF_ONE_TEXT` and no others.
    """
    try:
        packed = zlib.decompressobj()
        data = packed.decompress(base64.b64decode(text), _MOST_UNPACKED)
        if not packed.eof:
            raise BadTestsError(f"packed tests are cut off or of more than {_MOST_UNPACKED} bytes")
        found = [(operation.name, argument) for operation, argument, _ in pickletools.genops(data)]
    except (binascii.Error, zlib.error, ValueError) as error:
        if isinstance(error, BadTestsError):
            raise
        raise BadTestsError("packed tests are no base64 of zlib of a pickle") from None
    texts = [argument for name, argument in found if name.endswith("UNICODE")]
    if len(texts) != 1 or not {name for name, _ in found} <= _OF_ONE_TEXT:
        raise BadTestsError("packed tests are a pickle of something else than a text")
    return str(texts[0])


def _function_name(entry_point: Any) -> str | None:
    named = _decoded(entry_point)
    name = _name_in(named) if isinstance(named, dict) else named
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise BadTestsError(f"entry point {_shown(name)} is no name")
    return name


def _name_in(test: dict[str, Any]) -> str | None:
    """The function that a test says it calls."""
    about = _decoded(test.get("metadata"))
    for each in (test, about if isinstance(about, dict) else {}):
        name = each.get("fn_name") or each.get("func_name")
        if name:
            if not str(name).isidentifier():
                raise BadTestsError(f"{_shown(name)} is no name of a function")
            return str(name)
    return None


def _check_language(cell: dict[str, Any]) -> None:
    language = str(cell.get("language") or "python")
    if not language.lower().startswith("py"):
        raise BadTestsError(f"they are for programs in {language}")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadTestsError(f"{_shown(text)} is no argument or result in JSON") from None


def _text(value: Any) -> str:
    """What a program reads or prints: lines may be a list, and numbers are as they are written."""
    if isinstance(value, list):
        return "".join(f"{_text(line)}\n" for line in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadTestsError(f"{_shown(value)} is no text of a program")
    return str(value)


def _joined(setup: Any) -> str:
    lines = [] if setup is None else [setup] if isinstance(setup, str) else setup
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadTestsError(f"the code before the tests, {_shown(setup)}, is no text")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
