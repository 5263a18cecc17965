"""Programming problems: their tests are right, and programs have the faults of their programmers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rejuice.operators import RejuiceError
from rejuice.operators.mapper.unit_test_mapper import UnitTestMapper
from rejuice.pipelines.demo.code_problems import (
    CODE_TEMPLATES,
    PROGRAMMERS,
    CodeProblem,
    code_problems,
    programs,
)
from rejuice.pipelines.demo.datasets import first_rows, write_dataset
from rejuice.pipelines.demo.problems import SPLITS, DemoOptions, seeded

GRADED = {"right": "correct", "no_code": "no_answer"}
STYLES = {"test_list": "assert", "tests": "stdin"}


def graded(problems: list[CodeProblem], responses: list[str], tests: str) -> list[str]:
    columns = {
        "response": responses,
        "test_list": [problem.assertions for problem in problems],
        "tests": [problem.inputs for problem in problems],
    }
    operator = UnitTestMapper(tests=tests, style=STYLES[tests], timeout=1)
    verdicts: list[str] = operator.map(pa.table(columns))["verdict"].to_pylist()
    return verdicts


@pytest.mark.slow
@pytest.mark.parametrize("tests", STYLES)
def test_solutions_pass_their_tests(tests: str):
    problems = list(code_problems(1, "test", len(CODE_TEMPLATES)))
    assert {problem.template for problem in problems} == set(CODE_TEMPLATES)
    solutions = [f"```python\n{problem.code}```" for problem in problems]
    assert graded(problems, solutions, tests) == ["correct"] * len(problems)


@pytest.mark.slow
@pytest.mark.parametrize("tests", STYLES)
def test_programs_have_the_faults_of_their_programmers(tests: str):
    problem = next(code_problems(0, "train", 1))
    responses = [write(problem, seeded(0)) for write in PROGRAMMERS.values()]
    expected = [GRADED.get(name, "wrong_answer") for name in PROGRAMMERS]
    assert graded([problem] * len(responses), responses, tests) == expected


@pytest.mark.slow
def test_who_has_misread_the_task_is_wrong_somewhere():
    problems = list(code_problems(0, "train", 60))
    responses = [PROGRAMMERS["other_operation"](each, seeded(0)) for each in problems]
    assert graded(problems, responses, "test_list").count("wrong_answer") > 40


def test_splits_share_no_problem():
    questions = [{p.question for p in code_problems(0, split, 100)} for split in SPLITS]
    assert [len(each) for each in questions] == [100] * 3
    assert not set.intersection(*questions[:2]) | set.intersection(*questions[1:])


def test_most_groups_are_mixed():
    mixed = 0
    for problem in code_problems(0, "train", 60):
        names = [name for _, name in programs(problem, 0, 8)]
        assert len(names) == 8
        mixed += 0 < names.count("right") < 8
    assert mixed > 40


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_file_has_what_is_known_of_it(tmp_path: Path, suffix: str):
    path = tmp_path / f"a.{suffix}"
    write_dataset(path, "code", DemoOptions(prompts=120, seed=3, split="validation"))
    known = first_rows("code", DemoOptions(prompts=120, seed=3, split="validation"))
    if suffix == "parquet":
        written = pq.read_table(path)
        assert written.schema.equals(known.schema)
        rows = written.to_pylist()
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 120
    assert known.to_pylist() == rows[:100]


@pytest.mark.slow
def test_errors_are_one_line():
    with pytest.raises(RejuiceError, match=r"hardly more than \d+ different problems; ask for few"):
        list(code_problems(0, "test", 100_000))
