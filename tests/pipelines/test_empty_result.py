"""A run that comes to nothing ends with status 1 and one line, and loses nothing."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import runner
from fake_judge import FakeJudge

from rejuice.operators import EmptyResultError, GroupSizeFilter, Mapper, PolicyRolloutMapper
from rejuice.pipelines import EmptyRunError, Recipe, run
from rejuice.pipelines.engine.report import (
    Report,
    StepReport,
    check_not_empty,
    count_dropped,
    retry_hints,
)

ADVICE = "fix that, or accept it with --allow_empty"


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def emptied(recipe_file, rollouts):
    """A recipe whose second step drops all that the first one leaves."""
    process = [
        {"pass_rate_filter": {"max": 0.9}},
        {"group_size_filter": {"min": 100}},
        {"length_filter": {"min": 1}},
    ]
    return recipe_file(process, rollouts(10).to_pylist())


LINE = (
    "rejuice: recipe.yaml, line 6, step 2 group_size_filter: no row is left: it dropped the last "
    f"29 rows: group_too_small 29; {ADVICE}\n"
)


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_a_run_that_leaves_no_row_fails(rejuice, emptied, tmp_path, quiet):
    code, out, err = rejuice("run", emptied, *quiet)
    assert (code, err.splitlines(keepends=True)[-1]) == (1, LINE)
    assert (out == "") == bool(quiet)
    report = Report.read(tmp_path / "out" / "curated.parquet")
    assert (report.rows_in, report.rows_out) == (30, 0)
    decisions = tmp_path / "out" / "curated.run" / "02_group_size_filter" / "decisions.parquet"
    assert pq.read_table(decisions).num_rows == 29
    assert pq.read_table(tmp_path / "out" / "curated.parquet").num_rows == 0


def test_what_was_computed_is_found_again_and_the_status_is_the_same(rejuice, emptied):
    assert rejuice("run", emptied, "-q") == (1, "", LINE)
    code, out, err = rejuice("run", emptied)
    assert (code, out.count("cached"), err.splitlines(keepends=True)[-1]) == (1, 3, LINE)


@pytest.mark.recommended("pipelines/engine/report.py", ", or accept it with --allow_empty")
def test_an_empty_result_can_be_allowed(rejuice, emptied):
    assert rejuice("run", emptied, "-q", "--allow_empty") == (0, "", "")


def test_a_report_of_an_empty_run_is_printed_as_any_other(rejuice, emptied):
    rejuice("run", emptied, "-q")
    code, out, err = rejuice("report", "out/curated.parquet")
    right = "change the filters, or accept it with --allow_empty"
    assert (code, err) == (1, f"rejuice: no row is left in out/curated.parquet; {right}\n")
    assert rejuice("report", "out/curated.parquet", "--allow_empty") == (0, out, "")
    assert "No row is left: group_size_filter dropped the last ones." in out


def test_a_column_of_numbers_named_as_reasons_is_not_taken_for_them():
    class CountMapper(Mapper):
        def writes(self):
            return ("reward_words", "reward_words_missing")

        def map(self, table):
            return dict.fromkeys(self.writes(), pa.nulls(table.num_rows, pa.int64()))

    assert run(Recipe([CountMapper()], pa.table({"x": [1, 2]}))).report.rows_out == 2


def test_a_verifier_that_grades_no_row_is_a_failure(rejuice, recipe_file):
    rows = [
        {"prompt_id": "p", "response": f"\\boxed{{{n}}}", "reference": f"#### {n}"}
        for n in range(3)
    ]
    path = recipe_file(["math_verify_mapper"], rows)
    assert rejuice("run", path, "-q", "--np", 1) == (
        1,
        "",
        "rejuice: recipe.yaml, line 4, step 1 math_verify_mapper: none of 3 rows has a "
        f"reward_accuracy: bad_reference 3; {ADVICE}\n",
    )
    assert rejuice("run", path, "-q", "--allow_empty")[0] == 0


def test_a_vote_needs_answers_and_no_references(rejuice, recipe_file):
    rows = [{"prompt_id": "p", "response": "\\boxed{1}", "reference": None}] * 3
    assert rejuice("run", recipe_file(["math_verify_mapper"], rows), "-q") == (0, "", "")


def judging(server):
    judge = {"model": "judge", "server": {"base_url": server.url}, "cache": None}
    return [{"llm_quality_reward_mapper": judge}]


def responses(n):
    prompt = [{"role": "user", "content": "1 + 1?"}]
    return [{"prompt_id": "p", "prompt": prompt, "response": f"response {k}"} for k in range(n)]


@pytest.mark.recommended("pipelines/engine/report.py", " and add --retry_missing {…}")
@pytest.mark.recommended("pipelines/engine/report.py", "add --retry_missing {…} to retry")
def test_a_judge_that_fails_on_every_row_is_a_failure(rejuice, recipe_file):
    with FakeJudge(says={k: ["I would rather not."] for k in range(4)}) as server:
        path = recipe_file(judging(server), responses(4))
        code, _, err = rejuice("run", path, "-q")
        assert (code, err.splitlines()[-1]) == (
            1,
            "rejuice: recipe.yaml, line 4, step 1 llm_quality_reward_mapper: none of 4 rows has a "
            "reward_quality: scorer_malformed 4; fix that and add --retry_missing "
            "llm_quality_reward_mapper, or accept it with --allow_empty",
        )
        rows = pq.read_table(path.parent / "out" / "curated.parquet")
        assert rows["reward_quality_missing"].to_pylist() == ["scorer_malformed"] * 4
        server.says.clear()
        code, out, _ = rejuice("run", path, "--retry_missing", "llm_quality_reward_mapper")
        assert (code, "--retry_missing" in out) == (0, False)


def test_a_judge_that_fails_on_some_rows_is_none(rejuice, recipe_file):
    with FakeJudge(says={k: ["I would rather not."] for k in range(3)}) as server:
        path = recipe_file(judging(server), responses(4))
        assert rejuice("run", path, "-q") == (0, "", "")
        code, out, _ = rejuice("run", path)
        assert (code, out.splitlines()[-1]) == (
            0,
            "3 rows failed in llm_quality_reward_mapper: "
            "add --retry_missing llm_quality_reward_mapper to retry",
        )


def test_of_a_judge_and_what_it_leads_to_the_judge_is_named(rejuice, recipe_file, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np, pyarrow as pa\n"
        "from rejuice.operators import Mapper, component, component_columns\n"
        "class JudgeMapper(Mapper):\n"
        "    def reads(self): return ('response',)\n"
        "    def writes(self): return component_columns('taste')\n"
        "    def map(self, table):\n"
        "        n = table.num_rows\n"
        "        reasons = [f'e{row % 5}' for row in range(n)]\n"
        "        return component('taste', np.zeros(n), pa.array(reasons))\n"
    )
    process = [
        "judge_mapper",
        {"reward_sum_mapper": {"weights": {"taste": 1.0}, "on_missing": "drop_row"}},
    ]
    path = recipe_file(process, responses(6), custom_operator_paths=[str(tmp_path / "mine.py")])
    assert rejuice("run", path, "-q") == (
        1,
        "",
        "rejuice: recipe.yaml, line 4, step 1 judge_mapper: none of 6 rows has a reward_taste: "
        "e0 2, e1 1, e2 1, ..., and in the end no row is left; fix that and "
        "add --retry_missing judge_mapper, or accept it with --allow_empty\n",
    )


@pytest.mark.parametrize("export", ["", "x.parquet"])
def test_in_python_the_error_has_the_result(rollouts, tmp_path, export):
    table = rollouts(10)
    export_path = str(tmp_path / export) if export else None
    recipe = Recipe([GroupSizeFilter(min=100)], table, export_path=export_path)
    with pytest.raises(EmptyRunError) as caught:
        run(recipe)
    assert isinstance(caught.value, EmptyResultError)
    assert str(caught.value) == (
        "Recipe, step 1 group_size_filter: no row is left: it dropped the last 30 rows: "
        "group_too_small 30; fix that, or accept it with allow_empty=True"
    )
    assert caught.value.result.table.num_rows == 0
    assert caught.value.result.decisions.num_rows == 30
    again = run(recipe, allow_empty=True)
    assert again.report.rows_out == 0


def test_a_chunk_without_rows_is_no_failure(rejuice, recipe_file, rollouts):
    path = recipe_file([{"pass_rate_filter": {"min": 0.5}}], rollouts(10).to_pylist())
    assert rejuice("run", path, "-q", "--chunk_rows", 1)[0] == 0
    report = json.loads((path.parent / "out" / "curated.run" / "report.json").read_text())
    assert 0 < report["rows_out"] < report["rows_in"]


@pytest.mark.recommended("pipelines/engine/report.py", " and add --retry_dropped")
@pytest.mark.recommended("pipelines/engine/report.py", "add --retry_dropped to retry")
def test_dropped_prompts_that_may_pass_name_the_option(tmp_path):
    operator = PolicyRolloutMapper()
    dropped = {"bad_response": 2, "timeout": 1, "prompt_too_long": 4}
    line = StepReport(
        step="policy_rollout_mapper", rows_in=7, rows_out=0, added=0, dropped=dropped, seconds=0,
        cached=True, notes={}, columns={},
    )  # fmt: skip
    assert count_dropped(operator, line) == 3
    assert count_dropped(operator, line.model_copy(update={"dropped": {"no_prompt": 7}})) == 0
    recipe = Recipe([operator], pa.table({"prompt": [None]}))
    report = SimpleNamespace(steps=[line], rows_out=0)
    assert list(retry_hints(recipe, report)) == [
        "3 prompts were dropped by policy_rollout_mapper: add --retry_dropped to retry"
    ]
    with pytest.raises(EmptyResultError, match="fix that and add --retry_dropped, or accept it"):
        check_not_empty(recipe, report)
