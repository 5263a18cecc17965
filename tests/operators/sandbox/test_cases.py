"""Tests of programs in the layouts of public datasets, rebuilt small from their documented form."""

import base64
import json
import pickle
import sys
import tracemalloc
import zlib
from types import ModuleType, SimpleNamespace

import pytest

from rejuice.operators.sandbox import cases
from rejuice.operators.sandbox.cases import AssertCase, BadTestsError, StdinCase, cases_of


def packed(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


PAIR = {"input": "1 2\n", "output": "3\n"}
READ = StdinCase("1 2\n", "3\n")
FILE = "from solution import f\n\ndef test_a():\n    assert f(1) == 2\n\ndef test_b():\n    f(0)\n"
STDIN = {
    "LiveCodeBench, public": [{**PAIR, "testtype": "stdin"}],
    "LiveCodeBench, private": packed(json.dumps([PAIR])),
    "APPS, TACO": {"inputs": ["1 2\n"], "outputs": ["3\n"]},
    "CodeContests": {"input": ["1 2\n"], "output": ["3\n"]},
    "SYNTHETIC-1": {
        "language": "python",
        "test_cases": [{**PAIR, "type": "stdin_stdout", "fn_name": None}],
    },
    "a single one": PAIR,
    "codeforces": [{"input": "1 2\n", "output": "3\n", "id": 7}],
    "empty tests beside them": {"tests": [], "inputs": ["1 2\n"], "outputs": ["3\n"]},
    "an empty test beside them": {"test": "", "inputs": ["1 2\n"], "outputs": ["3\n"]},
    "a kind that says nothing": [{**PAIR, "type": "public"}],
    "keys of processes": [{"stdin": "1 2\n", "stdout": "3\n"}],
    "lists under plurals": {"inputs": ["1 2\n"], "expected_outputs": ["3\n"]},
    "two names": [{"input": "1 2\n", "output": None, "expected_output": "3\n"}],
    "II-Thought": {"answer": {"test_cases": [PAIR]}, "type": "code_verifiable"},
    "an answer about them": {"answer": {"a": 1}, "inputs": ["1 2\n"], "outputs": ["3\n"]},
    "an answer that is none": {"answer": "3", "test_cases": [PAIR]},
}


@pytest.mark.parametrize("cell", STDIN.values(), ids=STDIN)
def test_pairs_of_texts(cell):
    assert cases_of([cell]) == (READ,)
    assert cases_of([json.dumps(cell) if not isinstance(cell, str) else cell]) == (READ,)


CALLS = {
    "LiveCodeBench": (
        [{"input": "[1, 2]\n3", "output": "4", "testtype": "functional"}],
        '{"func_name": "f"}',
        ([[1, 2], 3], [4]),
    ),
    "APPS": (
        {"fn_name": "f", "inputs": [[1, "a"]], "outputs": [[1, 2]]},
        None,
        ([1, "a"], [[1, 2]]),
    ),
    "TACO, Eurus": ({"fn_name": "f", "inputs": [[12]], "outputs": [[0]]}, None, ([12], [[0], 0])),
    "SYNTHETIC-1": (
        {"test_cases": [{"fn_name": "f", "input": [1], "output": [3], "type": "function_call"}]},
        None,
        ([1], [[3], 3]),
    ),
    "a kind of its own": (
        [{"type": "call_based", "fn_name": "f", "input": [1], "output": [3]}],
        None,
        ([1], [[3], 3]),
    ),
    "a name beside an answer": (
        {"fn_name": "f", "answer": {"fn_name": None, "inputs": [[1]], "outputs": [2]}},
        None,
        ([1], [2]),
    ),
    "beside what is printed": (
        {"fn_name": "f", "input": [1], "output": 2, "stdin": "3", "stdout": ""},
        None,
        ([1], [2]),
    ),
    "no kind": ([{"input": "[1, 2]\n3", "output": "4"}], "f", ([[1, 2], 3], [4])),
    "DeepCoder": (
        [
            {
                "input": "1",
                "output": "null",
                "testtype": "functional",
                "metadata": {"func_name": "f"},
            }
        ],
        None,
        ([1], [None]),
    ),
}


@pytest.fixture
def run(monkeypatch):
    """Runs a test of a program that has these names."""

    def test(case, **names):
        solution = ModuleType("solution")
        vars(solution).update(names)
        monkeypatch.setitem(sys.modules, "solution", solution)
        exec(case.test, {})

    return test


@pytest.mark.parametrize(("cell", "entry", "call"), CALLS.values(), ids=CALLS)
def test_calls_of_a_function(run, cell, entry, call):
    [case] = cases_of([cell], entry_point=entry)
    called = []

    def f(*arguments):
        called.append(list(arguments))
        return call[1][-1]

    run(case, f=f)
    assert called == [call[0]]
    for right in call[1]:
        run(case, f=lambda *_, right=right: right)
    with pytest.raises(AssertionError):
        run(case, f=lambda *_: "other")


def test_a_call_is_of_the_class_where_there_is_one(run):
    [case] = cases_of([{"fn_name": "f", "inputs": [[[1, 2]]], "outputs": [[2, 1]]}])
    run(case, Solution=lambda: SimpleNamespace(f=lambda items: tuple(items[::-1])))


ASSERTIONS = {
    "MBPP": ["assert f(1) == 2", "assert f(2) == 3"],
    "AM-Thinking": {"assert_case": ["assert f(1) == 2", "assert f(2) == 3"]},
}


@pytest.mark.parametrize("cell", ASSERTIONS.values(), ids=ASSERTIONS)
def test_assertions(cell):
    found = cases_of([json.dumps(cell)], setup=["import math"])
    assert found == tuple(AssertCase("import math", f"assert f({n}) == {n + 1}") for n in (1, 2))


@pytest.mark.parametrize("way", [list, json.dumps])
def test_inputs_and_outputs_in_two_columns(way):
    cells = [way(["1 2\n", "[3]"]), way(["3\n", "5"]), None]
    found = cases_of(cells, fields=["inputs", "outputs", "fn_name"])
    assert found == (READ, StdinCase("[3]", "5"))
    assert cases_of([None, None], fields=["inputs", "outputs"]) == ()
    with pytest.raises(BadTestsError, match="2 inputs but 1 output"):
        cases_of([["1", "2"], ["3"]], fields=["inputs", "outputs"])


@pytest.mark.parametrize(
    ("cells", "fields"),
    [
        ([["1"], ["2"], ["3"], ["4"]], ["inputs", "outputs", "inputs", "outputs"]),
        ([["1"], ["2"], ["assert f(1)"]], ["inputs", "outputs", "test_list"]),
    ],
)
def test_no_column_is_lost_beside_inputs_and_outputs(cells, fields):
    with pytest.raises(BadTestsError, match=", ".join(fields)):
        cases_of(cells, fields=fields)
    for none in None, []:
        found = cases_of([*cells[:2], *[none] * (len(cells) - 2)], fields=fields)
        assert found == (StdinCase("1", "2"),)


def test_lists_under_other_names_are_a_test_for_each_item():
    found = cases_of([{"stdin": ["1", "2"], "stdout": ["3", "4"]}])
    assert found == (StdinCase("1", "3"), StdinCase("2", "4"))


def test_what_is_below_the_guard_of_a_script_is_no_test():
    file = f'{FILE}if __name__ == "__main__":\n    test_a()\n    test_b()\n'
    assert [case.test.splitlines()[-1] for case in cases_of([file])] == ["test_a()", "test_b()"]
    test = "def run():\n    assert f(1)\nif __name__ == '__main__':\n    run()"
    with pytest.raises(BadTestsError, match="nothing that is run"):
        cases_of([test])


def test_a_check_that_calls_itself(run):
    [case] = cases_of([json.dumps({"functional": f"{CHECK}\ncheck(Solution().f)"})])
    assert case.test == f"{CHECK}\ncheck(Solution().f)"


PATCHES = {
    "patch": ("with patch('random.random', return_value=1):\n    assert f() == 1", True),
    "patch.object": ("@mock.patch.object(random, 'random')\ndef test_a(m): assert f()", True),
    "own name": ("assert patch('a') == 'b'", False),
    "stdout": ("with patch('sys.stdout', io.StringIO()) as out:\n    f()\nassert out", False),
}


@pytest.mark.parametrize(("test", "is_bad"), PATCHES.values(), ids=PATCHES)
def test_what_the_program_calls_is_not_patched(test, is_bad):
    head = "" if test.startswith("assert") else "import io, random\nfrom unittest import mock\n"
    head += "from unittest.mock import patch\n" if test.startswith("with") else ""
    if not is_bad:
        assert cases_of([head + test])
        return
    with pytest.raises(BadTestsError, match="patch what the program calls"):
        cases_of([head + test])


def test_a_long_comment_is_read_at_once():
    """A search that is quadratic in its length takes a minute, and the suite's time."""
    assert cases_of([f"# {'mock ' * 40_000}\nassert f(1)"])


def test_a_file_for_pytest_has_a_test_for_each_function():
    assert [case.test.splitlines()[-1] for case in cases_of([FILE])] == ["test_a()", "test_b()"]


def test_check_of_humaneval_is_called():
    assert cases_of([CHECK], entry_point="f") == (AssertCase("", f"{CHECK}\n\ncheck(f)\n"),)
    helper = "def check(a, b): assert a == b\ndef test_a(): check(f(1), 2)\n"
    [case] = cases_of([helper], entry_point="f")
    assert case.test.endswith("\ntest_a()\n")


def test_code_before_the_tests_is_read_as_they_are():
    [case] = cases_of([["same(f(1))"]], setup='["def same(x):", "    assert x == 2"]')
    assert case.setup == "def same(x):\n    assert x == 2"


@pytest.mark.parametrize(
    ("value", "text"), [(5, "5"), (2.5, "2.5"), (["1", "2\n"], "1\n2\n"), ([1, 2], "1\n2\n")]
)
def test_numbers_and_lists_of_lines_are_text(value, text):
    assert cases_of([{"inputs": [value], "outputs": [value]}]) == (StdinCase(text, text),)


@pytest.mark.parametrize(
    "cell", [None, "", " ", "# none", [], {}, {"inputs": [], "outputs": []}, {"test_cases": []}]
)
def test_none(cell):
    assert cases_of([cell]) == ()


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


CHECK = "def check(candidate):\n    assert candidate(1) == 2\n"
BAD = {  # With what a message says of it: which test, what was found, and what would be right.
    "length": ({"inputs": ["1", "2"], "outputs": ["1"]}, ["2 inputs", "1 output"]),
    "lengths under other names": ({"stdin": ["1", "2"], "stdout": ["1"]}, ["2 inputs", "1 output"]),
    "keys": ([PAIR, {"stdin": "1"}], ["test 2", "stdin", "input and output"]),
    "value": ({"inputs": [{"a": 1}], "outputs": ["1"]}, ["{'a': 1}"]),
    "truth": ({"inputs": [True], "outputs": ["1"]}, ["True"]),
    "lines of lines": ({"inputs": [[["1", "2"], ["3"]]], "outputs": ["1"]}, ["[['1', '2']"]),
    "no name": ([{**PAIR, "testtype": "functional"}], ["test 1", "entry_point"]),
    "stdin of a function": ({"fn_name": "f", "inputs": ["1 2"], "outputs": ["3"]}, ["'1 2'"]),
    "two layouts": ({"tests": [PAIR], "inputs": ["1"], "outputs": ["2"]}, ["tests", "inputs"]),
    "arguments by name": (
        [{"input": "nums = [3,3], target = 6", "output": "[0, 1]"}], ["test 1", "nums =", "`test`"]
    ),
    "a long number": (f'{{"inputs": ["1"], "outputs": [{"9" * 5000}]}}', ["5000 digits"]),
    "C++": ("#include <x>\nint main() {}", ["is C++"]),
    "no call": ("not json", ["'not json'"]),
    "no assertion": (["print(f(1))"], ["test 1", "'print(f(1))'"]),
    "none that is run": (["def run():\n    assert f(1)\nprint(f(0))"], ["test 1", "nothing"]),
    "none but below the guard": (
        "if __name__ == '__main__':\n    assert f(1) == 2", ["__main__", "nothing that is run"]
    ),
    "numpy": ("import numpy as np\nassert np.isclose(f(1), 2)", ["numpy"]),
    "pytest": (
        "import pytest\n@pytest.mark.parametrize('x', [1])\ndef test_a(x):\n    assert f(x)",
        ["pytest.mark.parametrize"],
    ),
    "no entry point": ("def check(f):\n    assert f(1)\n", ["check", "entry_point"]),
    "no JSON": ({"fn_name": "f", "inputs": [[b"a"]], "outputs": [1]}, ["b'a'", "JSON"]),
    "no list": ({"fn_name": "f", "inputs": [3], "outputs": [1]}, ["3", "f"]),
    "no Python": ("see the statement", ["'see the statement'"]),
    "a list as key": ("{[1]: 2}", ["'{[1]: 2}'"]),
    "a set as item": ("[{{1}}]", ["'[{{1}}]'"]),
    "a list as key of a call": (
        [{"input": "{[1]: 2}", "output": "1", "fn_name": "f"}], ["test 1", "'{[1]: 2}'"]
    ),
    "number": (7, ["7"]),
    "bytes": (b"assert f(1)", ["b'assert f(1)'"]),
    "an exception of the program": (
        "import pytest\ndef test_a():\n    with pytest.raises(Own):\n        f(1)", ["Own"]
    ),
    "fixture": ("def test_a(tmp_path):\n    assert f()\n", ["test_a", "pytest"]),
    "async": ("async def test_a():\n    assert f(1) == 2\n", ["test_a", "pytest"]),
    "setup": (
        "class TestA:\n    def setup_method(self): self.x = 1\n    def test_a(self): assert f(1)",
        ["setup_method", "pytest"],
    ),
    "hostile name": ({"fn_name": "f()#", "inputs": [[1]], "outputs": [1]}, ["'f()#'"]),
    "hostile pickle": (packed(Evil()), ["pickle"]),
    "pickle in a list": ([packed("[]")], ["test 1"]),
    "long pickle": (
        base64.b64encode(zlib.compress(b"\x80\x04" + b"\x94" * 10**6)).decode(), ["pickle"]
    ),
    "pickle of a list": (packed([1]), ["pickle"]),
    "cut off": (packed("[1, 2, 3, 4, 5, 6]" * 9)[:40], ["zlib"]),
    "no zlib": ("eJ" + "A" * 40, ["zlib"]),
}  # fmt: skip


@pytest.mark.parametrize(("cell", "facts"), BAD.values(), ids=BAD)
def test_what_is_no_test_is_named(cell, facts, capsys):
    with pytest.raises(BadTestsError) as error:
        cases_of([cell])
    assert not [fact for fact in facts if fact not in str(error.value)], str(error.value)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("style", "cell", "message"),
    [("stdin", ["assert f(1)"], "not of style stdin"), ("assert", [PAIR], "not of style assert")],
)
def test_a_style_refuses_the_other(style, cell, message):
    with pytest.raises(BadTestsError, match=message):
        cases_of([cell], style=style)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"setup": 3}, "the code before the tests, 3, is no text"),
        ({"entry_point": "f()"}, "'f\\(\\)' is no name of a function"),
        ({"entry_point": ["f"]}, "no name of a function"),
    ],
)
def test_what_belongs_to_tests_and_is_no_use(fields, message):
    with pytest.raises(BadTestsError, match=message):
        cases_of([[PAIR]], **fields)


def test_what_pytest_finds_is_called_and_nothing_else():
    text = """
import unittest
def test_of(x): assert f(x)
test_of(1)
class TestA:
    def test_b(self): f(2)
class Node:
    def test(self, x): return x
class Base(unittest.TestCase):
    def setUp(self): self.x = 1
class Case(Base):
    def test_c(self): self.assertEqual(f(self.x), 2)
class Shared:
    def test_d(self): assert f(4)
    def test_e(self): assert f(5)
class TestB(Shared):
    def test_e(self): assert f(6)
class Both(Shared, Base):
    def test_f(self): assert f(7)
"""
    calls = [case.test.splitlines()[-1] for case in cases_of([text])]
    both = [f"Both('test_{letter}').debug()" for letter in "def"]
    own = ["TestA().test_b()", "Case('test_c').debug()"]
    assert calls == [*own, "TestB().test_d()", "TestB().test_e()", *both]


def test_a_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(cases, "_MOST_UNPACKED", 2**16)
    bomb = base64.b64encode(zlib.compress(bytes(2**24))).decode()
    tracemalloc.start()
    try:
        with pytest.raises(BadTestsError, match="65,536"):
            cases_of([bomb])
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
