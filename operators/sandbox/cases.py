"""Tests of programs as datasets have them, read into the two forms that the sandbox runs."""

from __future__ import annotations

import ast
import base64
import builtins
import json
import pickletools
import re
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

from ..errors import shown

_MOST_UNPACKED = 128 * 2**20
_PACKED = re.compile(r"\s*e[AFJN][\w+/=\s]+\Z")  # zlib's header in base64
_AROUND_TEXT = {"PROTO", "FRAME", "MEMOIZE", "STOP"}  # in a pickle
_NESTED = ("test_cases", "assert_case", "ground_truth", "tests", "test_code", "test", "functional")
"""Keys of a dict whose value are the tests, the rest being about them."""
_ALIASES = {
    f"{name}{plural}": f"{to}{plural}"
    for name, to in (("stdin", "input"), ("stdout", "output"), ("expected_output", "output"))
    for plural in ("", "s")
}
_KNOWN = {*_NESTED, *_ALIASES, "input", "inputs", "output", "outputs"}
_BY_NAME = re.compile(r"[a-zA-Z_]\w* = [\[\"'].*\Z")  # One line, as LeetCodeDataset has it
_NAME_KEYS = ("fn_name", "func_name", "entry_point")
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
    has_imports: bool = False  # the program need not import what LiveCodeBench imports for it


Case: TypeAlias = StdinCase | AssertCase


def cases_of(
    cells: Iterable[Any],
    setup: Any = None,
    entry_point: Any = None,
    style: str = "auto",
    checker: Any = None,
    fields: Sequence[str] = (),
) -> tuple[Case, ...]:
    """The tests in the cells of a row, none in null; a BadTestsError if one cannot be read."""
    setup = _decoded(setup)
    lines = [] if setup is None else [setup] if isinstance(setup, str) else setup
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadTestsError(f"the code before the tests, {shown(setup)}, is no text")
    before, name, code = "\n".join(lines), _name_in(_decoded(entry_point)), _checker(checker)
    found, layouts = list[Case](), [_decoded(cell, packed=True) for cell in cells]
    if {"inputs", "outputs"} <= {*fields}:  # Two columns make the tests.
        there = [pair for pair in zip(fields, layouts, strict=True) if pair[1]]
        tests = [field for field, _ in there if field not in (*_NAME_KEYS, "metadata")]
        if len(tests) > 2:
            what = "with inputs and outputs, it names no other tests"
            raise BadTestsError(f"`tests` names {', '.join(tests)}: {what}")
        layouts = [dict(there)]
    for case in (each for layout in layouts for each in _cases(layout, name, before)):
        if style == ("stdin" if isinstance(case, AssertCase) else "assert"):
            raise BadTestsError(f"they are not of style {style}")
        if isinstance(case, StdinCase):
            found.append(case._replace(checker=code))
        elif code:
            raise BadTestsError("they have a checker of what is printed, but call functions")
        else:
            found.append(case._replace(setup=before))
    return tuple(found)


def _cases(cell: Any, name: str | None, before: str) -> Iterator[Case]:
    if isinstance(cell, dict):
        yield from _in_dict(_there(cell), name, before)
    elif isinstance(cell, list):
        for number, test in enumerate(map(_decoded, cell), 1):
            try:
                if isinstance(test, dict):
                    yield _pair(test, name)
                else:
                    yield from _python(test, name, before)
            except BadTestsError as error:
                raise BadTestsError(f"test {number}: {error}") from None
    elif cell is not None:
        yield from _python(cell, name, before)


def _in_dict(cell: dict[str, Any], name: str | None, before: str) -> Iterator[Case]:
    """Tests beside what is about them, lists of inputs and of outputs, or one test."""
    answer = _decoded(cell.get("answer"))
    if isinstance(answer, dict) and _KNOWN & answer.keys():  # II-Thought
        cell = {**cell, **_there(answer)}
    own = _name_in(cell)
    named = _renamed(cell)
    inputs, outputs = (named.get(f"{key}s", named.get(key)) for key in ("input", "output"))
    layouts = [key for key in (*_NESTED, "inputs") if named.get(key)]
    if len(layouts) > 1:
        raise BadTestsError(f"it has {' and '.join(layouts)}: name the field of one in `tests`")
    if layouts and layouts != ["inputs"]:
        yield from _cases(_decoded(cell[layouts[0]]), own or name, before)
    elif inputs is None and (not cell or cell.keys() & set(_NESTED)):
        return
    elif not isinstance(inputs, list) or not isinstance(outputs, list):
        yield _pair(cell, name)
    elif len(inputs) != len(outputs):
        raise BadTestsError(f"{len(inputs)} inputs but {len(outputs)} outputs")
    else:
        pairs = zip(inputs, outputs, strict=True)
        tests = [{"input": i, "output": o, "fn_name": own} for i, o in pairs]
        yield from _cases(tests, name, before)


def _pair(test: dict[str, Any], name: str | None) -> Case:
    renamed, name = _renamed(test), _name_in(test) or name
    if not {"input", "output"} <= renamed.keys():
        raise BadTestsError(f"it has {', '.join(test) or 'nothing'}, not input and output")
    given, expected = renamed["input"], renamed["output"]
    kind = str(test.get("testtype") or test.get("type") or "")
    if not kind and isinstance(given, str) and _BY_NAME.match(given):
        right = "name the column `test` in `tests` for LeetCodeDataset, its imports in `prefix`"
        raise BadTestsError(f"its input is {shown(given)}, by name: {right}")
    if kind.startswith("std") or not (name or kind.startswith("function")):
        return StdinCase(_text(given), _text(expected))
    if name is None:
        raise BadTestsError("it calls a function whose name is not there: `entry_point`")
    if isinstance(given, str):  # LiveCodeBench: an argument a line, as JSON
        given = [_value(line) for line in given.splitlines() if line.strip()]
        return _call(name, given, [_value(expected) if isinstance(expected, str) else expected])
    # A result may be in a list of its own, as TACO has it.
    is_wrapped = isinstance(expected, list) and len(expected) == 1
    return _call(name, given, [expected, *expected] if is_wrapped else [expected])


def _there(cell: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in cell.items() if value is not None}


def _renamed(cell: dict[str, Any]) -> dict[str, Any]:
    """A cell with `input` and `output` from their other names, where they are not there."""
    there = _there(cell)
    found = {to: there[key] for key, to in _ALIASES.items() if key in there}
    return {**cell, **found, **there}


def _name_in(about: Any) -> str | None:
    """The function that is named: by a text, or in a dict, of tests or in their metadata."""
    if isinstance(about, dict):
        more = _decoded(about.get("metadata"))
        more = _name_in(more) if isinstance(more, dict) else None
        about = next((about[key] for key in _NAME_KEYS if about.get(key)), more)
    if about and not (isinstance(about, str) and _NAME.match(about)):
        raise BadTestsError(f"{shown(about)} is no name of a function")
    return about or None


# --- Tests that are Python --------------------------------------------------------------

_RUN_BY_PYTEST = re.compile(r"test|(setup_(method|class|module|function)|setUp(Class|Module))\Z")
_WAITED_FOR = re.compile(r"\b(?:pytest\.raises|assertRaises(?:Regex)?)\(\s*([\w.]+)")
_OF_PYTEST = re.compile(r"\bpytest\.(?!raises\b|approx\b|main\b)\w[\w.]*")
_MOCK = re.compile(r"\bmock\b")
_PATCH = re.compile(r"\bpatch(?:\.\w+)?\((?!\s*.sys\.stdout)")
_CALL = """
import json, re, solution
arguments = json.loads({arguments!r})
match arguments:  # As the graders of APPS and TACO have it: keys in JSON are texts.
    case [dict(first), *rest] if all(re.fullmatch("-?[0-9]+", key) for key in first):
        arguments = [{{int(key): value for key, value in first.items()}}, *rest]
try:
    function = solution.Solution().{name}
except (NameError, AttributeError):
    function = solution.{name}
found = function(*arguments)
assert json.loads(json.dumps(found)) in json.loads({right!r})
"""


def _call(name: str, arguments: Any, right: list[Any]) -> AssertCase:
    """A call whose result, with tuples as lists, is one of the right ones."""
    if not isinstance(arguments, list):
        raise BadTestsError(f"{shown(arguments)} are no arguments of {name}")
    try:
        given, results = json.dumps(arguments), json.dumps(right)
    except (TypeError, ValueError):
        raise BadTestsError(f"{shown(arguments)} or {shown(right[0])} is not in JSON") from None
    name = name.removeprefix("Solution().")
    return AssertCase("", _CALL.format(name=name, arguments=given, right=results), has_imports=True)


def _python(text: str, name: str | None, before: str) -> Iterator[AssertCase]:
    """Tests that are Python: HumanEval's `check`, those of a file for pytest, or statements."""
    if not isinstance(text, str):
        raise BadTestsError(f"{shown(text)} is no text")
    body = _statements(text)
    outside = [each for each in body if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    nodes = (node for each in outside for node in ast.walk(each))
    functions = (node.func for node in nodes if isinstance(node, ast.Call))
    called = {function.id for function in functions if isinstance(function, ast.Name)}
    calls = [*_calls_of_tests(body, called)]
    defined = {getattr(each, "name", None) for each in body}
    if not calls and "check" in defined - called:
        if name is None:
            raise BadTestsError("they define check, and no `entry_point` says what it is given")
        calls = [f"check({name})"]
    run = {call.partition("(")[0] for call in calls}
    is_run = body and _asserts([*_statements(before), *body], run)
    if not is_run and python_of(text).body:
        raise BadTestsError(f"{shown(text)} asserts nothing that is run")
    tests = [f"{text}\n\n{call}\n" for call in calls] or ([text] if body else [])
    has_imports = str(name).startswith("Solution()")
    yield from (AssertCase("", test, has_imports) for test in tests)


def _asserts(body: list[ast.stmt], run: set[str]) -> bool:
    """Whether code may fail, but for functions that neither `run` nor a statement names."""
    names = (node.id for each in body for node in ast.walk(each) if isinstance(node, ast.Name))
    reached = {None, *run, *names}
    nodes = (ast.walk(each) for each in body if getattr(each, "name", None) in reached)
    return any(
        isinstance(node, ast.Assert | ast.Raise)
        or str(getattr(node, "attr", getattr(node, "id", ""))).startswith(("assert", "raises"))
        for node in chain.from_iterable(nodes)
    )


def python_of(text: str) -> ast.Module:
    """Code as a tree; a BadTestsError if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        why = str(error).partition(";")[0]
        what = "C++" if "#include" in str(text) else f"neither JSON nor Python: {why}"
        raise BadTestsError(f"{shown(text)} is {what}") from None


def names_of(case: AssertCase) -> set[str]:
    """The functions and classes of the program that a test names."""
    used, of_program, own = set[str](), set[str](), set(dir(builtins)) | sys.stdlib_module_names
    for node in ast.walk(python_of(f"{case.setup}\n{case.test}")):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            own.add(node.name or "")
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.alias):
            own.add((node.asname or node.name).partition(".")[0])
        if isinstance(node, ast.ImportFrom) and node.module == "solution":
            of_program.update(each.name for each in node.names if each.name != "*")
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "solution":
            of_program.add(node.attr)
    return (used - own) | of_program


def helpers_of(case: AssertCase) -> set[str]:
    """What the code of a `check` uses and does not define, but for what it is given."""
    head, _, given = case.test.rpartition("\n\ncheck(")
    return {name for name in names_of(case) if name not in given} if head else set()


def _statements(text: str) -> list[ast.stmt]:
    tree = python_of(text)
    if found := _OF_PYTEST.search(text):
        raise BadTestsError(f"they use {found[0]}; of pytest there are raises and approx alone")
    if (mock := _MOCK.search(text)) and _PATCH.search(text, mock.end()):
        raise BadTestsError("they patch what the program calls, which runs in its own process")
    for kind in _WAITED_FOR.findall(text):
        if not hasattr(builtins, kind):  # It has not come as itself out of the program's process.
            raise BadTestsError(f"they wait for {kind}, which is no exception of Python's own")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or node.names[0].name
            if module.partition(".")[0] not in {"solution", "pytest", *sys.stdlib_module_names}:
                raise BadTestsError(f"they import {module}, and have the standard library alone")
    ifs = [each for each in tree.body if isinstance(each, ast.If)]
    guards = [each for each in ifs if ast.unparse(each.test).startswith("__name__ ==")]
    return [each for each in tree.body if each not in guards]


def _checker(code: Any) -> str:
    text = code.strip() if isinstance(code, str) else code or ""
    try:
        _statements(text)
    except BadTestsError as error:
        raise BadTestsError(f"leave out `checker`, which cannot be run: {error}") from None
    return text


def _calls_of_tests(body: list[ast.stmt], called: set[str]) -> Iterator[str]:
    """How the tests are called that pytest finds in a file, but for helpers that it calls."""
    unit_tests, members = {"TestCase"}, dict[str, dict[str, ast.stmt]]()
    for each in body:
        of = each if isinstance(each, ast.ClassDef) else None
        if of:
            bases = [ast.unparse(base).rpartition(".")[2] for base in of.bases]
            inherited = [members.get(base, {}) for base in reversed(bases)]
            own = {getattr(member, "name", ""): member for member in of.body}
            members[of.name] = dict(chain.from_iterable(map(dict.items, [*inherited, own])))
            if unit_tests & {*bases}:
                unit_tests.add(of.name)
            elif not of.name.startswith("Test"):
                continue
        for test in members[of.name].values() if of else [each]:
            if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) or test.name in called:
                continue
            if not _RUN_BY_PYTEST.match(test.name):
                continue
            given = len(test.args.args) - len(test.args.defaults) - (of is not None)
            if test.name.startswith("set") or given > 0 or isinstance(test, ast.AsyncFunctionDef):
                what = "prepares tests, has arguments or is async"
                raise BadTestsError(f"only pytest runs {test.name}, which {what}")
            if of and of.name in unit_tests:
                yield f"{of.name}('{test.name}').debug()"
            else:
                yield f"{of.name}().{test.name}()" if of else f"{test.name}()"


# --- Values -----------------------------------------------------------------------------


def _decoded(cell: Any, *, packed: bool = False) -> Any:
    if packed and isinstance(cell, str) and _PACKED.match(cell):
        cell = _unpacked(cell)
    if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{"):
        with suppress(BadTestsError):
            return _value(cell)
    return cell


def _value(text: str) -> Any:
    """A value in JSON, or as Python writes it."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
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
    if isinstance(value, list) and not any(isinstance(line, list) for line in value):
        return "".join(_text(line).removesuffix("\n") + "\n" for line in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadTestsError(f"{shown(value)} is no text of a program")
    return str(value)
