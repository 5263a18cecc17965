"""Tests as datasets have them, read into one form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class BadTestsError(ValueError):
    """Tests that no program can be graded by."""


class StdinCase(NamedTuple):
    """What a program reads from standard input, and what it should print."""

    stdin: str
    expected: str


class AssertCase(NamedTuple):
    """Python code that fails unless the program's functions do what they should.

    Attributes:
        setup: code to run before it, such as imports.
        test: assertions.
    """

    setup: str
    test: str


def stdin_cases(cells: Iterable[Any]) -> tuple[StdinCase, ...]:
    """The tests in the cells of a row.

    Args:
        cells: each a list of `{input, output}`; or parallel lists `{inputs, outputs}` or
            `{input, output}`; or either as JSON text. Null: no tests.

    Raises:
        BadTestsError: a cell is something else, or its tests are calls of a function.
    """
    return tuple(case for cell in cells for case in _stdin_cell(_parsed(cell)))


def assert_cases(
    cells: Iterable[Any], setup: Any = None, entry_point: str | None = None
) -> tuple[AssertCase, ...]:
    """The tests in the cells of a row.

    Args:
        cells: each a list of statements, a test each, also as JSON text; or one test as text.
            Null: no tests.
        setup: code to run before each test, as text or as a list of lines.
        entry_point: the function to call `check` with, which the tests define.

    Raises:
        BadTestsError: a cell is something else, or the name is none.
    """
    before = _joined(setup)
    if entry_point is not None and not entry_point.isidentifier():
        raise BadTestsError(f"entry point {entry_point!r} is no name")
    after = "" if entry_point is None else f"\n\ncheck({entry_point})\n"
    tests = [test for cell in cells for test in _assert_cell(cell)]
    return tuple(AssertCase(before, test + after) for test in tests)


def _stdin_cell(cell: Any) -> Iterator[StdinCase]:
    if cell is None:
        return
    if isinstance(cell, dict):
        yield from _parallel(cell)
        return
    if not isinstance(cell, list):
        raise BadTestsError(f"tests are a {type(cell).__name__}")
    for case in cell:
        if not isinstance(case, dict) or not {"input", "output"} <= case.keys():
            raise BadTestsError("a test is not {input, output}")
        if case.get("testtype") == "functional":
            raise BadTestsError("a test calls a function")
        yield StdinCase(_text(case["input"]), _text(case["output"]))


def _parallel(cell: dict[str, Any]) -> Iterator[StdinCase]:
    inputs, outputs = (
        cell[f"{name}s"] if f"{name}s" in cell else cell.get(name) for name in ("input", "output")
    )
    if cell.get("fn_name"):
        raise BadTestsError("the tests call a function")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise BadTestsError("the tests are not lists of inputs and outputs")
    if len(inputs) != len(outputs):
        raise BadTestsError(f"{len(inputs)} inputs but {len(outputs)} outputs")
    for given, expected in zip(inputs, outputs, strict=True):
        yield StdinCase(_text(given), _text(expected))


def _assert_cell(cell: Any) -> Sequence[str]:
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        cell = _parsed(cell)
    tests = [] if cell is None else [cell] if isinstance(cell, str) else cell
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise BadTestsError("a test is no text")
    return [test for test in tests if test.strip()]


def _parsed(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell) if cell.strip() else None
    except (ValueError, RecursionError):
        raise BadTestsError("the tests are text, but no JSON") from None


def _text(value: Any) -> str:
    """An input or output: text, or a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(f"{line}\n" for line in value)
    if not isinstance(value, str):
        raise BadTestsError("an input or output is no text")
    return value


def _joined(setup: Any) -> str:
    lines = [] if setup is None else [setup] if isinstance(setup, str) else setup
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadTestsError("the code before the tests is no text")
    return "\n".join(lines)
