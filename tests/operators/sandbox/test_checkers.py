"""Tests whose right outputs are decided by code of the dataset."""

import json

import pyarrow as pa
import pytest
from each import check_each

from rejuice.operators.check import check_operator
from rejuice.operators.mapper.unit_test_mapper import UnitTestMapper
from rejuice.operators.sandbox import grading
from rejuice.operators.sandbox.cases import BadTestsError, StdinCase, cases_of
from rejuice.operators.sandbox.grading import Grader, Program, Submission, shared_sandbox
from rejuice.operators.sandbox.run import SandboxLimits

pytestmark = pytest.mark.slow

CHECK = """
def check(stdin, printed, expected):
    n, d = int(stdin), int(printed)
    return d > 1 and n % d == 0
"""
SCRIPT = """
import sys
from pathlib import Path

def main():
    given, expected, printed = sys.argv[1:]
    n, d = int(open(given).read()), int(Path(printed).read_text())
    with open(expected, "rb") as file:
        assert file.read() == b"2\\n"
    print(1 if d > 1 and n % d == 0 else 0)

if __name__ == "__main__":
    main()
"""
MAIN = """
def main(given, expected, printed):
    print(int(int(open(given).read()) % int(open(printed, encoding="utf-8").read()) == 0))
"""
ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
for name in ("given", "expected", "printed"):
    parser.add_argument(name, type=open)
files = parser.parse_args()
print(int(int(files.given.read()) % int(files.printed.read()) == 0))
"""
FORMS = (CHECK, SCRIPT, MAIN, ARGUMENTS, f"{CHECK}# As `sys.argv` has it elsewhere.")


def outcome(checker, code, expected="2\n", tests=1, **fields):
    grader = Grader(shared_sandbox(), SandboxLimits(), **fields)
    cases = (StdinCase("12\n", expected, checker),) * tests
    [found] = grader.grade([Submission(Program(code), cases)], workers=1)
    return "bad tests" if not found else found[0] if tests == 1 else found


@pytest.mark.parametrize("checker", FORMS)
def test_any_output_that_the_checker_accepts_is_right(checker):
    cases = [("print(2)", "passed"), ("print(input())", "passed"), ("print(5)", "failed")]
    cases += [("print('abc')", "failed"), ("", "failed"), ("1 / 0", "error")]

    def check(code, expected):
        assert outcome(checker, code) == expected

    check_each(cases, check)


def test_a_checker_that_does_not_work_makes_bad_tests(monkeypatch):
    monkeypatch.setattr(grading, "JUDGE_SECONDS", 1)
    checkers = [
        "while True: pass\ndef check(): pass",
        "x = [0] * 10 ** 10\ndef check(): pass",
        "import sys; sys.argv; print('100')",
        "import sys; sys.argv; print('ok')",
        "import sys; sys.argv; sys.exit(1)",
        "import sys; print(open('/etc/passwd'), sys.argv)",
        "def check(*_): return None",
        "def check(*_): return False",
        "def check(): pass",
        "x = 3",
        "def check(stdin, printed, expected): return int(printed) == 4",
    ]

    def check(checker):
        codes = ["print(4)", "1 / 0"] if checker is checkers[-1] else ["print(5)"]
        assert [outcome(checker, code) for code in codes] == ["bad tests"] * len(codes)

    check_each([(checker,) for checker in checkers], check)


def test_a_checker_that_an_output_keeps_busy(monkeypatch):
    """The output is wrong, and the rest is not run: nothing that is printed makes a row missing."""
    monkeypatch.setattr(grading, "JUDGE_SECONDS", 1)
    busy = "def check(stdin, printed, expected):\n    while int(printed) > 9: pass\n    return True"
    found = outcome(busy, "print(10)", tests=3, run_all=True)
    assert found == ("failed/checker_timeout", "not_run", "not_run")
    rows = {
        "response": ["print(10)"],
        "checker": [busy],
        "tests": [[{"input": "1", "output": "1"}]],
    }
    operator = UnitTestMapper(checker="checker", on_timeout="missing", on_unrunnable="missing")
    assert operator.apply(pa.table(rows)).columns["reward_accuracy"].to_pylist() == [0.0]


def test_what_is_no_checker():
    cases = [
        ("import numpy", "numpy"),
        ("def check(", "'def check('"),
        ("#include <testlib.h>\nint main() {}", "is C++"),
        ("#include <testlib.h>\nint main() {}", "leave out `checker`"),
        ({"code": CHECK}, "'code'"),
    ]

    def check(checker, reason):
        with pytest.raises(BadTestsError) as error:
            cases_of([[{"input": "1", "output": "1"}]], checker=checker)
        assert reason in str(error.value)

    check_each(cases, check)


def test_a_checker_may_decide_alone():
    accepts = "def check(stdin, printed, expected): return printed.strip() == '7'"
    assert [outcome(accepts, f"print({n})", "") for n in (7, 8)] == ["passed", "failed"]
    assert [outcome(CHECK, f"print({n!r})", "") for n in (4, 5, "x")] == [
        "passed",
        "failed",
        "failed",
    ]


def test_a_program_has_nothing_of_its_checker():
    looks = """
import sys
try:
    print(open("input.txt").read())
except PermissionError:
    print(2 if "check" in globals() or sys.argv[1:] else 5)
"""
    assert outcome(SCRIPT, looks) == "failed"
    assert outcome(CHECK, "print('__import__(\"os\")._exit(0)')") == "failed"


def test_a_column_of_checkers():
    tests = json.dumps({"inputs": ["12\n"], "outputs": ["2\n"]})
    responses = ["```python\nprint(4)\n```"] * 5
    calls = json.dumps(["assert f(1) == 1"])
    rows = pa.table(
        {
            "response": responses,
            "tests": [tests, tests, tests, tests, calls],
            "generated_checker": [SCRIPT, None, " ", "x = ", CHECK],
        }
    )
    operator = UnitTestMapper(checker="generated_checker")
    columns = check_operator(operator, rows).columns
    verdicts = ["correct", *["wrong_answer"] * 2, *["verifier_error"] * 2]
    assert columns["verdict"].to_pylist() == verdicts
    logged = UnitTestMapper(checker="generated_checker").apply(rows.slice(3, 1)).logged
    assert "checker" in next(iter(logged))
    assert "'x ='" in next(iter(logged))
    reasons = columns["reward_accuracy_missing"].to_pylist()
    assert reasons == [None, None, None, "bad_tests", "bad_tests"]


def test_a_checker_that_does_not_work_is_named():
    rows = {"response": ["```python\nprint(4)\n```"], "checker": ["def check(*_): return None"]}
    rows["tests"] = [[{"input": "1", "output": "1"}]]
    change = UnitTestMapper(checker="checker").apply(pa.table(rows))
    assert change.columns["reward_accuracy_missing"].to_pylist() == ["bad_tests"]
    [message] = change.logged
    assert "checker" in message
