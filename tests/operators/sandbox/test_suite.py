"""Tests as public datasets have them."""

import json

import pytest
from each import check_each

from rejuice.operators.sandbox.grading import (
    AssertCase,
    BadTestsError,
    StdinCase,
    assert_cases,
    stdin_cases,
)

TWO = (StdinCase("1\n", "2\n"), StdinCase("3\n", "4\n"))


@pytest.mark.parametrize(
    "cell",
    [
        [{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}],
        [{"input": "1\n", "output": "2\n", "testtype": "stdin"}, {"input": ["3"], "output": ["4"]}],
        {"inputs": ["1\n", "3\n"], "outputs": ["2\n", "4\n"]},
        {"input": ["1\n", "3\n"], "output": ["2\n", "4\n"]},
        {"inputs": [["1"], ["3"]], "outputs": ["2\n", "4\n"], "fn_name": None},
    ],
)
def test_inputs_and_outputs(cell):
    assert stdin_cases([cell]) == TWO
    assert stdin_cases([json.dumps(cell)]) == TWO
    assert stdin_cases([None, cell, "", cell]) == TWO * 2


@pytest.mark.parametrize("cell", [None, [], "", "[]", {"input": [], "output": []}])
def test_no_inputs(cell):
    assert stdin_cases([cell]) == ()


def test_what_is_no_input():
    cases = [
        (3, "tests are a int"),
        (["assert f(3) == 9"], "a test is not {input, output}"),
        ([{"input": "1"}], "a test is not {input, output}"),
        ([{"input": 1, "output": "1"}], "an input or output is no text"),
        ([{"input": None, "output": "1"}], "an input or output is no text"),
        ([{"input": "1", "output": "1", "testtype": "functional"}], "a test calls a function"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs but 0 outputs"),
        ({"inputs": [[1]], "outputs": [2], "fn_name": "f"}, "the tests call a function"),
        ({"question": "1"}, "the tests are not lists of inputs and outputs"),
        ("1 2", "the tests are text, but no JSON"),
        ("[" * 100_000, "the tests are text, but no JSON"),
    ]

    def check(cell, reason):
        with pytest.raises(BadTestsError) as error:
            stdin_cases([cell])
        assert str(error.value) == reason

    check_each(cases, check)


def test_statements():
    tests = ["assert f(1) == 2", "assert f(2) == 3"]
    expected = tuple(AssertCase("", test) for test in tests)
    assert assert_cases([tests]) == assert_cases([json.dumps(tests)]) == expected
    assert assert_cases([tests[:1], tests[1]]) == expected
    assert assert_cases([[*tests, " "], None]) == expected
    assert assert_cases([tests[0]], ["import math", "x = 1"]) == (
        AssertCase("import math\nx = 1", tests[0]),
    )
    (case,) = assert_cases(["def check(candidate): ..."], "", "f")
    assert case.test == "def check(candidate): ...\n\ncheck(f)\n"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cells": [3]}, "a test is no text"),
        ({"cells": [[{"input": "1", "output": "1"}]]}, "a test is no text"),
        ({"cells": ["["]}, "the tests are text, but no JSON"),
        ({"cells": ["x"], "setup": 3}, "the code before the tests is no text"),
        ({"cells": ["x"], "entry_point": "f()"}, "entry point 'f()' is no name"),
    ],
)
def test_what_is_no_statement(fields, reason):
    with pytest.raises(BadTestsError) as error:
        assert_cases(**fields)
    assert str(error.value) == reason
