import base64
import json
import pickle
import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.mapper import unit_test_mapper
from rejuice.operators.mapper.group_stats_mapper import GroupStatsMapper
from rejuice.operators.mapper.prompt_template_mapper import PromptTemplateMapper
from rejuice.operators.mapper.unit_test_mapper import UnitTestMapper
from rejuice.operators.registry import build
from rejuice.operators.sandbox import grading
from rejuice.operators.sandbox import run as sandbox

pytestmark = pytest.mark.slow

STRING = pa.string()
SQUARE = "```python\nprint(int(input()) ** 2)\n```"
DOUBLE = "It is:\n```python\nprint(int(input()) * 2)\n```"
ENDLESS = "```python\nwhile True: pass\n```"
TESTS = [{"input": "2\n", "output": "4\n"}, {"input": "3\n", "output": "9\n"}]
STRUCTS = pa.list_(pa.struct([("input", STRING), ("output", STRING)]))


def table(*rows, tests=STRUCTS):
    responses, cells = zip(*rows, strict=True)
    return pa.table({"response": pa.array(responses, STRING), "tests": pa.array(cells, tests)})


def written(operator, rows):
    change = check_operator(operator, rows)
    assert change.reasons is None
    assert change.parents is None
    return {name: column.to_pylist() for name, column in change.columns.items()}


def test_a_program_is_right_if_it_passes_all_tests():
    rows = [(text, TESTS) for text in (SQUARE, DOUBLE, "", "<think>hmm", "I do not know.")]
    columns = written(UnitTestMapper(), table(*rows))
    assert columns == {
        "verdict": ["correct", "wrong_answer", "no_answer", "no_answer", "wrong_answer"],
        "extracted_answer": [
            "print(int(input()) ** 2)\n",
            "print(int(input()) * 2)\n",
            None,
            None,
            "I do not know.",
        ],
        "reward_accuracy": [1.0, 0.0, 0.0, 0.0, 0.0],
        "reward_accuracy_missing": [None] * 5,
        "tests_passed": [2, 1, None, None, 0],
        "tests_run": [2, 2, None, None, 1],
        "test_verdicts": [
            ["passed", "passed"],
            ["passed", "failed"],
            None,
            None,
            ["error", "not_run"],
        ],
    }


def test_types():
    change = check_operator(UnitTestMapper(), table((SQUARE, TESTS)))
    assert {name: str(column.type) for name, column in change.columns.items()} == {
        "verdict": "string",
        "extracted_answer": "string",
        "reward_accuracy": "double",
        "reward_accuracy_missing": "string",
        "tests_passed": "int32",
        "tests_run": "int32",
        "test_verdicts": "list<item: string>",
    }


def test_a_share_of_the_tests():
    tests = [{"input": "1", "output": "2"}, *TESTS]
    operator = UnitTestMapper(reward="fraction", right=2, wrong=-1)
    columns = written(operator, table((SQUARE, tests), (DOUBLE, tests), ("x", tests), ("", tests)))
    assert columns["reward_accuracy"] == [1.0, 1.0, -1.0, -1.0]
    assert columns["tests_passed"] == [2, 2, 0, None]
    assert columns["tests_run"] == [3, 3, 3, None]
    assert columns["verdict"] == ["wrong_answer"] * 3 + ["no_answer"]


@pytest.mark.parametrize("reward", ["all", "fraction"])
def test_a_program_that_does_not_finish_is_wrong(reward):
    rows = table((ENDLESS, TESTS), (SQUARE, TESTS))
    columns = UnitTestMapper(timeout=6, reward=reward).map(rows)
    assert columns["verdict"].to_pylist() == ["wrong_answer", "correct"]
    assert columns["reward_accuracy"].to_pylist() == [0.0, 1.0]
    assert columns["test_verdicts"].to_pylist()[0] == ["timeout", "not_run"]


def test_a_timeout_is_missing_if_the_recipe_sets_it():
    late = "```python\nif input() == '3':\n    while True: pass\nprint({})\n```"
    rows = table((late.format(4), TESTS), (late.format(5), TESTS))
    columns = UnitTestMapper(timeout=6, on_timeout="missing", reward="fraction").map(rows)
    assert columns["verdict"].to_pylist() == ["timeout", "wrong_answer"]
    assert columns["reward_accuracy"].to_pylist() == [None, 0.0]
    assert columns["reward_accuracy_missing"].to_pylist() == ["timeout", None]


def test_what_cannot_be_graded_is_missing_and_no_zero():
    bad = [{"input": None, "output": "4"}]
    rows = table((SQUARE, TESTS), (None, TESTS), (SQUARE, None), (SQUARE, []), (SQUARE, bad))
    columns = written(UnitTestMapper(), rows)
    assert columns["verdict"] == ["correct", None, *["verifier_error"] * 3]
    assert columns["reward_accuracy"] == [1.0, *[None] * 4]
    reasons = [None, "no_response", "no_tests", "no_tests", "bad_tests"]
    assert columns["reward_accuracy_missing"] == reasons
    assert columns["test_verdicts"] == [["passed"] * 2, *[None] * 4]
    assert columns["extracted_answer"][2:] == ["print(int(input()) ** 2)\n"] * 3
    assert set(reasons) - {None} <= set(UnitTestMapper.missing)


CPP = "```cpp\n#include <iostream>\nint main() { std::cout << 4; }\n```"
PANDAS = (
    "```python\nimport numpy as np, sys\nfrom pandas import Series\nprint(int(input()) ** 2)\n```"
)
CAUGHT = "```python\ntry:\n    import numpy\nexcept ImportError:\n    print(int(input()) ** 2)\n```"
CLAIMED = "```python\nimport sys\ntry:\n    import numpy\nexcept ImportError as error:\n    sys.exit(str(error))\n```"
LATER = "```python\nn = int(input())\nif n == 3:\n    import scipy.special\nprint(n ** 2)\n```"


def test_a_program_that_cannot_be_run_here_is_missing_and_named():
    responses = [CPP, PANDAS, SQUARE, CAUGHT, CLAIMED, "```python\nimport nosuch\n```", LATER]
    rows = table(*[(text, TESTS) for text in responses], (CPP, None))
    change = check_operator(UnitTestMapper(reward="fraction"), rows)
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    reasons = ["other_language", "no_package", *[None] * 4, "no_package", "no_tests"]
    assert columns["reward_accuracy_missing"] == reasons
    assert columns["reward_accuracy"] == [None, None, 1.0, 1.0, 0.0, 0.0, None, None]
    assert columns["verdict"][:2] == ["verifier_error"] * 2
    assert columns["tests_run"][:3] == [0, 2, 2]
    assert columns["test_verdicts"][:2] == [["other_language/cpp"] * 2, ["no_package/numpy"] * 2]
    assert columns["test_verdicts"][-2:] == [["passed", "no_package/scipy"], None]
    assert columns["extracted_answer"][0].startswith("#include")
    assert set(reasons) - {None} <= set(UnitTestMapper.missing)
    notes = {"other_language/cpp": 1, "no_package/numpy": 1, "no_package/scipy": 1}
    assert change.notes == notes


def test_a_program_that_cannot_be_run_here_is_wrong_if_the_recipe_sets_it():
    rows = table((CPP, TESTS), (PANDAS, TESTS))
    change = UnitTestMapper(on_unrunnable="wrong", wrong=-1).apply(rows)
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    assert columns["verdict"] == ["wrong_answer"] * 2
    assert columns["reward_accuracy"] == [-1.0, -1.0]
    assert columns["reward_accuracy_missing"] == [None, None]
    assert columns["test_verdicts"][0] == ["other_language/cpp", "not_run"]
    assert change.notes == {"other_language/cpp": 1, "no_package/numpy": 1}


def test_a_function_that_needs_a_package():
    programs = {
        "import numpy\ndef f(x): return x": "no_package",
        "def f(x):\n    import sympy.abc\n    return x": "no_package",
        "import numpi\ndef f(x): return x": None,
        "def f(x): raise ModuleNotFoundError('no numpy')": None,
        "def f(x):\n    try: import numpy\n    except ImportError: return 0": None,
    }
    rows = table(*[(code, ["assert f(3) == 3"]) for code in programs], tests=pa.list_(STRING))
    columns = written(UnitTestMapper(style="assert"), rows)
    assert columns["reward_accuracy_missing"] == list(programs.values())
    assert columns["test_verdicts"][2:] == [["error"], ["error"], ["failed"]]


def test_inputs_and_outputs_may_be_two_columns():
    rows = pa.table({"response": ["print(input())", "print(1)"], "inputs": [["1", "2"]] * 2})
    rows = rows.append_column("outputs", pa.array(['["1", "2"]'] * 2))
    columns = UnitTestMapper(tests=("inputs", "outputs")).apply(rows).columns
    assert columns["verdict"].to_pylist() == ["correct", "wrong_answer"]


def test_why_tests_are_bad_is_logged_with_their_prompt():
    cells = ["see above", "assert f([])", None, "import pandas\nf()", "see above"]
    rows = pa.table({"response": ["f = len"] * 5, "tests": cells})
    operator = UnitTestMapper()
    logged = operator.apply(rows).logged
    assert [*logged.values()] == [2, 1]
    for message, fact in zip(logged, ["'see above'", "pandas"], strict=True):
        assert message.startswith("bad_tests: ")
        assert fact in message
    rows = rows.append_column("prompt_id", pa.array(list("abcde")))
    logged = operator.apply(rows).logged
    assert any("prompt 'a'" in message and "'see above'" in message for message in logged)
    assert len(logged) == 3
    rows = pa.table({"response": ["1"], "tests": ["assert sum([1])"], "prompt_id": ["a"]})
    (message,) = operator.apply(rows).logged
    assert "of prompt 'a'" in message
    assert "call no function" in message


class Broken:
    """A sandbox that fails at some programs."""

    def run(self, source, **fields):
        if "input" in source:
            raise sandbox.SandboxError("the fork server has ended")
        return grading.Sandbox().run(source, **fields)


def test_a_failure_of_the_sandbox_is_missing(monkeypatch):
    monkeypatch.setattr(grading, "shared_sandbox", Broken)
    columns = UnitTestMapper().map(table((SQUARE, TESTS), ("```python\nprint(1)\n```", TESTS)))
    assert columns["verdict"].to_pylist() == ["verifier_error", "wrong_answer"]
    assert columns["reward_accuracy"].to_pylist() == [None, 0.0]
    assert columns["reward_accuracy_missing"].to_pylist() == ["verifier_error", None]
    assert columns["test_verdicts"].to_pylist() == [["verifier_error", "not_run"], ["failed", "not_run"]]  # fmt: skip
    assert "verifier_error" in UnitTestMapper.retryable


def test_a_machine_that_cannot_confine_is_refused_before_any_program_runs(monkeypatch):
    def refuse():
        raise RecipeError("this machine cannot confine the Python programs of a policy")

    monkeypatch.setattr(sandbox, "check_confinement", refuse)
    monkeypatch.setattr(grading, "shared_sandbox", None)
    for attempt in (
        UnitTestMapper().preflight,
        lambda: UnitTestMapper().map(table((SQUARE, TESTS))),
    ):
        with pytest.raises(RecipeError, match="cannot confine"):
            attempt()


# Columns as public sets have them; the problems are our own.


def test_mbpp():
    rows = pa.table(
        {
            "text": ["Write a function to cube a number."] * 2,
            "test_list": [["assert cube(2) == 8", "assert isclose(cube(0.5), 0.125)"]] * 2,
            "test_setup_code": ["from math import isclose"] * 2,
            "challenge_test_list": [["assert cube(-1) == -1"], []],
            "response": ["```python\ndef cube(x):\n    return abs(x) ** 3\n```"] * 2,
        }
    )
    fields = {"style": "assert", "setup": "test_setup_code"}
    columns = written(build(UnitTestMapper, {"tests": "test_list", **fields}), rows)
    assert columns["verdict"] == ["correct"] * 2
    both = build(UnitTestMapper, {"tests": ["test_list", "challenge_test_list"], **fields})
    assert written(both, rows)["verdict"] == ["wrong_answer", "correct"]


def test_mbpp_sanitized():
    rows = pa.table(
        {
            "test_list": [["assert isclose(half(1), 0.5)"]],
            "test_imports": [["import sys", "from math import *"]],
            "response": ["def half(x): return x / 2"],
        }
    )
    operator = UnitTestMapper(tests="test_list", setup="test_imports", style="assert")
    assert written(operator, rows)["verdict"] == ["correct"]


HUMAN_EVAL = {
    "prompt": 'from typing import List\n\n\ndef last(items: List[int]) -> int:\n    """The last item."""\n',
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate([1, 2]) == 2\n    assert candidate([3]) == 3\n",
    "entry_point": "last",
}


@pytest.mark.parametrize("is_chat", [False, True])
def test_human_eval(is_chat):
    responses = [
        "    return items[-1]\n",
        "```python\ndef last(items: List[int]) -> int:\n    return items[-1]\n```",
        "    return items[0]\n",
        "    return candidate\n",
    ]
    rows = pa.table({"response": responses, **{k: [v] * 4 for k, v in HUMAN_EVAL.items()}})
    if is_chat:
        template = PromptTemplateMapper(question="prompt", reference=None, system="Complete it.")
        chats = template.apply(rows).columns["prompt"]
        rows = rows.drop_columns("prompt").append_column("prompt", chats)
    operator = UnitTestMapper(
        tests="test", style="assert", entry_point="entry_point", prefix="prompt"
    )
    columns = written(operator, rows)
    assert columns["verdict"] == ["correct", "correct", "wrong_answer", "wrong_answer"]
    assert columns["test_verdicts"] == [["passed"], ["passed"], ["failed"], ["error"]]


def code(text):
    return f"```python\n{text}\n```"


ADD = code("def add(a, b): return a + b"), code("def add(a, b): return a - b")
OF_CLASS = tuple(
    code(f"class Solution:\n    def add(self, a: List[int], b: int):\n        return {result}")
    for result in ("[a[0], *(each + b for each in a[1:])]", "a")
)
SUM = code("print(sum(map(int, input().split())))"), code("print(input())")
PAIR = {"input": "1 2\n", "output": "3\n"}
CALL = {"input": "[1, 2]\n3", "output": "[1, 5]", "testtype": "functional"}
CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3\n"
FILE = "from solution import add\n\ndef test_a():\n    assert add(1, 2) == 3\n\ndef test_b():\n    assert add(0, 0) == 0\n"
OF_PYTEST = "from solution import *\nimport unittest\nclass TestAdd(unittest.TestCase):\n    def setUp(self):\n        self.three = 3\n    def test_a(self):\n        self.assertEqual(add(1, 2), self.three)\n"
OF_RAISES = "import pytest\nfrom solution import half\ndef test_a():\n    with pytest.raises(ValueError, match='ne') as info:\n        half(-1)\n    assert str(info.value) == 'negative'\ndef test_b():\n    assert half(1) == pytest.approx(0.5) != 0.6\n    assert [half(1)] == pytest.approx([0.51], abs=0.1)\n"
FLOOR = (
    code("def half(x):\n    if x < 0: raise ValueError('negative')\n    return x / 2"),
    code("def half(x): return x / 2"),
)
GCD = (
    code("from __future__ import annotations\ndef gcd(a: List[int], b): return math.gcd(a, b)"),
    code("x = 1"),
)
MANY = code("def f(x): return 9"), code("def f(x): return 8")
KEYS = code("def f(d): return {k + 1: v for k, v in d.items()}"), code("def f(d): return d")
NEXT = code("print(int(input()) + 1)"), code("print(5)")
NONE = code("def max(a): return None"), code("def max(a): return 3")


def packed(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


# What a dataset has as tests and, beside them, as the name of a function; a right and a wrong one.
LAYOUTS = {
    "LiveCodeBench, stdin": ([{**PAIR, "testtype": "stdin"}], "{}", SUM),
    "LiveCodeBench, private": (packed([{**PAIR, "testtype": "stdin"}]), '{"func_name": null}', SUM),
    "LiveCodeBench, functional": (packed([CALL]), '{"func_name": "add"}', OF_CLASS),
    "LiveCodeBench, as its grader has it": (
        {"inputs": ["[1, 2]\n3"], "outputs": ["[1, 5]"], "fn_name": "add"}, None, OF_CLASS
    ),
    "APPS": ({"inputs": ["1 2\n"], "outputs": ["3\n"]}, None, SUM),
    "APPS, lines": ({"inputs": [["1 2"]], "outputs": [["3"]]}, None, SUM),
    "APPS, numbers": ({"inputs": [5], "outputs": [6]}, None, NEXT),
    "APPS, fn_name": ({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, None, ADD),
    "APPS, keys": ({"fn_name": "f", "inputs": [[{"1": 2}]], "outputs": [{"2": 2}]}, None, KEYS),
    "APPS, a name of Python": ({"fn_name": "max", "inputs": [[[3]]], "outputs": [None]}, None, NONE),
    "TACO": ({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}, None, ADD),
    "TACO, lists": ({"fn_name": "add", "inputs": [["a", "b"]], "outputs": [["ab"]]}, None, ADD),
    "Eurus": ({"fn_name": "add", "inputs": [[1, 2], [2, 2]], "outputs": [[3], [4]]}, None, ADD),
    "SYNTHETIC-1, calls": (
        {"language": "python", "test_cases": [
            {"fn_name": "add", "input": [1, 2], "output": 3, "type": "function_call"}]}, None, ADD
    ),
    "SYNTHETIC-1, stdin": (
        {"language": "python", "test_cases": [{**PAIR, "fn_name": None, "type": "stdin_stdout"}]},
        None, SUM,
    ),
    "DeepCoder": ([{**CALL, "metadata": {"func_name": "add"}}], None, OF_CLASS),
    "codeforces": ([{**PAIR, "explanation": None}], None, SUM),
    "AM-Thinking": ({"assert_case": ["assert add(1, 2) == 3"]}, None, ADD),
    "MBPP": (["assert add(1, 2) == 3", "assert add(0, 1) == 1"], None, ADD),
    "MBPP, as text of Python": ("['assert add(1, 2) == 3']", None, ADD),
    "HumanEval": (CHECK, "add", ADD),
    "LeetCode": (CHECK.replace("1, 2) == 3", "[1, 2], b=3) == [1, 5]"), "Solution().add", OF_CLASS),
    "Skywork": ({"entry_point": "add", "test_code": CHECK}, None, ADD),
    "KodCode": (FILE, None, ADD),
    "unittest": (OF_PYTEST, None, ADD),
    "pytest.raises": (OF_RAISES, None, FLOOR),
    "a prelude that has one": ({"fn_name": "gcd", "inputs": [[12, 18]], "outputs": [6]}, None, GCD),
    "a million numbers": ({"fn_name": "f", "inputs": [[[1] * 10**6]], "outputs": [9]}, None, MANY),
}  # fmt: skip


def test_layouts_of_public_datasets():
    cells = [each if isinstance(each, str) else json.dumps(each) for each, *_ in LAYOUTS.values()]
    rows = [
        {"response": response, "tests": cell, "entry_point": name}
        for cell, (_, name, programs) in zip(cells, LAYOUTS.values(), strict=True)
        for response in programs
    ]
    operator = UnitTestMapper(entry_point="entry_point")
    columns = operator.map(pa.Table.from_pylist(rows))
    verdicts = columns["verdict"].to_pylist()
    found = dict(zip(LAYOUTS, zip(verdicts[::2], verdicts[1::2], strict=True), strict=True))
    assert found == dict.fromkeys(LAYOUTS, ("correct", "wrong_answer"))


def test_columns_of_structs():
    lists = pa.struct([("input", pa.list_(STRING)), ("output", pa.list_(STRING))])
    public, private = ({"input": [k], "output": [str(int(k) ** 2)]} for k in "23")
    rows = pa.table(
        {
            "response": [SQUARE, DOUBLE],
            "public_tests": pa.array([public] * 2, lists),
            "private_tests": pa.array([private] * 2, lists),
        }
    )
    operator = UnitTestMapper(tests=("public_tests", "private_tests"))
    assert written(operator, rows)["tests_passed"] == [2, 1]
    # A field that other rows have is null in this one.
    truths = [{"assert_case": ["assert add(1, 2) == 3"]}, {"inputs": ["1 2"], "outputs": ["3"]}, {}]
    rows = pa.table({"response": [ADD[0], SUM[0], SUM[0]], "tests": truths})
    assert written(UnitTestMapper(), rows)["reward_accuracy"] == [1.0, 1.0, None]
    assert written(UnitTestMapper(), rows)["reward_accuracy_missing"][2] == "no_tests"


def test_a_field_of_structs():
    rows = pa.table(
        {"response": [SQUARE], "reward_model": [{"ground_truth": json.dumps(TESTS), "style": "x"}]}
    )
    operator = UnitTestMapper(tests="reward_model.ground_truth")
    assert written(operator, rows)["verdict"] == ["correct"]
    with pytest.raises(DataError, match=r"there is no .reward_model\.truth."):
        UnitTestMapper(tests="reward_model.truth").map(rows)


def test_only_fenced_programs_count_if_the_recipe_sets_it():
    rows = table(("print(int(input()) ** 2)", TESTS))
    assert UnitTestMapper().map(rows)["verdict"].to_pylist() == ["correct"]
    operator = UnitTestMapper(without_block="no_answer")
    assert operator.map(rows)["verdict"].to_pylist() == ["no_answer"]


def test_numbers_may_be_off():
    tests = [{"input": "", "output": "0.3333"}]
    rows = table(("```python\nprint(1 / 3)\n```", tests))
    assert UnitTestMapper().map(rows)["verdict"].to_pylist() == ["wrong_answer"]
    operator = UnitTestMapper(float_tolerance=1e-3)
    assert operator.map(rows)["verdict"].to_pylist() == ["correct"]


def test_limits_are_those_of_the_fields():
    code = "```python\nx = b'x' * (60 << 20)\nprint('y' * 3000)\n```"
    rows = table((code, [{"input": "", "output": "y" * 3000}]))
    for fields, expected in (({}, "passed"), ({"memory": 32}, "memory"), ({"max_output": 2000}, "output")):  # fmt: skip
        assert UnitTestMapper(**fields).map(rows)["test_verdicts"].to_pylist() == [[expected]]


def test_tests_that_call_nothing_are_bad():
    rows = table(("f = len", ["assert True"]), tests=pa.list_(STRING))
    columns = written(UnitTestMapper(style="assert"), rows)
    assert columns["reward_accuracy_missing"] == ["bad_tests"]
    assert columns["verdict"] == ["verifier_error"]


def test_rows_with_many_tests_are_graded_in_parts(monkeypatch):
    parts = []
    grade = grading.Grader.grade
    monkeypatch.setattr(
        grading.Grader, "grade", lambda *args, **k: parts.append(len(args[1])) or grade(*args, **k)
    )
    rows = table(*[(text, TESTS) for text in (SQUARE, DOUBLE, SQUARE)], (None, TESTS), ("", None))
    whole = UnitTestMapper().map(rows)
    monkeypatch.setattr(unit_test_mapper, "_AT_ONCE", 10)
    assert UnitTestMapper().map(rows) == whole
    assert parts == [3, 2, 1]


def test_equal_rows_are_graded_once(monkeypatch):
    seen = []
    run = grading.Grader.run

    def counted(self, program, case):
        seen.append(case)
        return run(self, program, case)

    monkeypatch.setattr(grading.Grader, "run", counted)
    UnitTestMapper().map(table(*[(SQUARE, TESTS)] * 5))
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"right": 0}, "wrong 0.0 is not below right 0.0"),
        ({"timeout": 0}, "field 'timeout' is 0; input should be greater than 0"),
        ({"test": "test_list"}, "unknown field 'test'; did you mean 'tests'?"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(UnitTestMapper, fields)
    assert str(error.value) == message


RESPONSES = [SQUARE, DOUBLE, None, "", "```python\nprint(4)\n```", "```python\n1 / 0\n```"]
CELLS = [TESTS, TESTS[:1], None, [], [{"input": None, "output": "4"}]]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(RESPONSES), st.sampled_from(CELLS)), max_size=8), st.data()
)
def test_rows_are_kept_and_chunks_do_not_matter(rows, data):
    """`check_operator` looks at a second run, too, and at pickling."""
    whole = pa.Table.from_pylist(
        [{"response": r, "tests": t} for r, t in rows],
        pa.schema([("response", STRING), ("tests", STRUCTS)]),
    )
    operator = UnitTestMapper()
    columns = operator.map(whole)
    assert {len(column) for column in columns.values()} == {len(rows)}
    at = data.draw(st.integers(0, len(rows)))
    halves = [operator.map(part) for part in (whole.slice(0, at), whole.slice(at))]
    for name, column in columns.items():
        assert pa.concat_arrays([half[name] for half in halves]).equals(column)
    for verdict, value, reason in zip(
        *(
            columns[n].to_pylist()
            for n in ("verdict", "reward_accuracy", "reward_accuracy_missing")
        ),
        strict=True,
    ):
        assert (value is None) == (reason is not None) == (verdict in (None, "verifier_error"))


def test_the_pass_rate_of_a_group():
    rows = table((SQUARE, TESTS), (DOUBLE, TESTS), ("", TESTS), (None, TESTS))
    rows = rows.append_column("prompt_id", pa.array(["p"] * 4))
    verdicts = UnitTestMapper().map(rows)["verdict"]
    found = GroupStatsMapper().map(rows.append_column("verdict", verdicts))
    assert found["pass_rate"].to_pylist() == [pytest.approx(1 / 3)] * 4
