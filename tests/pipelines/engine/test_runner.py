"""The engine gives what the operators say, however it is cut, stopped or resumed."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import OperatorError, build, get
from rejuice.pipelines.dataset.files import run_folder
from rejuice.pipelines.dataset.write import mark_written, writer
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.report import read_decisions
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load

PROCESS = [
    {"pass_rate_filter": {"min": 0.1, "max": 0.9}},
    {"exact_deduplicator": {}},
    {"length_filter": {"min": 3}},
    {"grpo_advantage_mapper": {}},
    {"label_balance_selector": {"seed": 3}},
    {"group_size_filter": {"min": 1}},
]


def operators(process):
    return [build(get(name), fields) for step in process for name, fields in step.items()]


def run(recipe_path, overrides=None, **options):
    recipe = load(recipe_path, overrides)
    return engine.run(recipe, **options), pq.read_table(recipe.head.export_path)


def decisions(recipe_path):
    return read_decisions(run_folder(load(recipe_path).head.export_path)).to_pylist()


@pytest.fixture
def recipe_path(recipe_file, rollouts):
    return recipe_file(PROCESS, rollouts(60).to_pylist())


def test_the_export_is_what_the_operators_give_in_memory(recipe_path, rollouts):
    _, exported = run(recipe_path)
    assert 0 < exported.num_rows < rollouts(60).num_rows
    assert exported.to_pylist() == run_in_memory(operators(PROCESS), rollouts(60)).to_pylist()


@pytest.mark.slow
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(1, 80))
def test_any_chunk_size_gives_the_same(recipe_path, tmp_path, chunk_rows):
    _, whole = run(recipe_path, overwrite=True)
    _, cut = run(recipe_path, overwrite=True, chunk_rows=chunk_rows)
    assert cut.equals(whole)


def test_what_another_run_has_committed_meanwhile_stays(recipe_path, tmp_path, monkeypatch):
    """Its next steps may be made of it already, and a server may give each run something else."""
    run_step, cache = engine.run_step, tmp_path / "out" / ".rejuice"

    def files():
        return {path: path.stat().st_ino for path in cache.glob("pass_rate_filter-*/*")}

    def run_step_late(*arguments, **options):
        result = run_step(*arguments, **options)
        if not before:
            monkeypatch.setattr(engine, "run_step", run_step)
            run(recipe_path, {"export_path": str(tmp_path / "out" / "other.parquet")})
            before.update(files())
        return result

    before = {}
    monkeypatch.setattr(engine, "run_step", run_step_late)
    run(recipe_path, {"np": "1"})
    assert len(before) == 1
    assert files() == before


@pytest.mark.slow
def test_two_workers_give_the_same(recipe_path, tmp_path):
    run(recipe_path, chunk_rows=20)
    one = (tmp_path / "out" / "curated.parquet").read_bytes()
    other = str(tmp_path / "other" / "curated.parquet")
    run(recipe_path, {"np": "2", "export_path": other}, chunk_rows=20)
    assert Path(other).read_bytes() == one


@pytest.mark.slow
def test_every_row_is_accounted_for_in_every_step_and_in_total(recipe_path, rollouts):
    report, exported = run(recipe_path, chunk_rows=16)
    rows = rollouts(60).num_rows
    for step in report.steps:
        assert step.rows_in == rows
        assert step.rows_in + step.added == step.rows_out + sum(step.dropped.values())
        rows = step.rows_out
    assert report.rows_in + report.added == report.rows_out + report.dropped
    assert exported.num_rows == report.rows_out
    logged = decisions(recipe_path)
    assert len(logged) == report.dropped
    gone = set(rollouts(60)["response_id"].to_pylist()) - set(exported["response_id"].to_pylist())
    assert {row["row_id"] for row in logged} == gone


def test_the_report_file_is_what_the_run_returns(recipe_path, tmp_path):
    report, _ = run(recipe_path)
    assert json.loads((tmp_path / "out/curated.run/report.json").read_text())["steps"] == [
        step.model_dump() for step in report.steps
    ]


def test_an_unchanged_prefix_is_not_run_again(recipe_path):
    run(recipe_path)
    again, _ = run(recipe_path)
    assert [step.cached for step in again.steps] == [True] * 6
    other, _ = run(recipe_path, {"length_filter.min": "4"}, overwrite=True)
    assert [step.cached for step in other.steps] == [True, True, False, False, False, False]


def test_the_resolved_recipe_runs_to_the_same_rows(recipe_path, tmp_path):
    _, exported = run(recipe_path)
    resolved = tmp_path / "out" / "curated.run" / "recipe.yaml"
    _, again = run(resolved, {"export_path": str(tmp_path / "again.parquet")})
    assert again.equals(exported)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".arrow"])
def test_reads_and_writes_every_format(recipe_file, rollouts, tmp_path, suffix):
    table = rollouts(10)
    first = recipe_file([{"length_filter": {"min": 0}}], table.to_pylist())
    between = str(tmp_path / f"between{suffix}")
    engine.run(load(first, {"export_path": between}))
    report, exported = run(first, {"dataset_path": between})
    assert exported.to_pylist() == table.to_pylist()
    assert report.rows_out == table.num_rows


def test_a_folder_of_files_is_one_dataset(recipe_file, rollouts, tmp_path):
    table = rollouts(12)
    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(table.slice(0, 10), folder / "a.parquet")
    pq.write_table(table.slice(10), folder / "b.parquet")
    _, exported = run(recipe_file([{"length_filter": {"min": 0}}], dataset_path=str(folder)))
    assert exported.equals(table)


def test_groups_are_never_cut(recipe_file, rollouts):
    table = rollouts(30, most=7)
    path = recipe_file([{"group_size_filter": {"min": 7}}], table.to_pylist())
    _, exported = run(path, chunk_rows=1)
    sizes = exported.group_by("prompt_id").aggregate([([], "count_all")])["count_all"]
    assert set(sizes.to_pylist()) == {7}


def test_an_empty_result_is_an_export_with_the_right_columns(recipe_file, rollouts):
    path = recipe_file([{"length_filter": {"min": 10_000}}], rollouts(4).to_pylist())
    report, exported = run(path)
    assert report.rows_out == exported.num_rows == 0
    assert exported.column_names == rollouts(4).column_names


def test_prompt_ids_of_an_earlier_run_that_are_overwritten(recipe_file, tmp_path):
    rows = [
        {"prompt_id": f"row {i}", "question": f"q{i // 4}", "answer": "1", "verdict": verdict}
        for i, verdict in enumerate(["correct", "wrong_answer", "wrong_answer", "no_answer"] * 9)
    ]
    table = pa.Table.from_pylist(rows)
    dataset = tmp_path / "earlier.arrow"
    marked = table.cast(mark_written(table.schema, ["prompt_id"]))
    with writer(dataset, marked.schema) as write:
        write(marked)
    process = ["prompt_template_mapper", {"pass_rate_filter": {"min": 0.2}}]
    path = recipe_file(process, dataset_path=str(dataset))
    _, whole = run(path)
    _, cut = run(path, overwrite=True, chunk_rows=6)
    assert whole.num_rows == len(rows)
    assert cut.equals(whole)


COUNTED_GROUPS = """
from typing import ClassVar
import pyarrow.compute as pc
from rejuice.operators import Filter, Groups, Scope, drop

class CountedGroupsFilter(Filter):
    scope: ClassVar = Scope.DATASET
    def reads(self):
        return ("prompt_id",)
    def digest(self, table):
        return table.take(Groups.of(table).starts_G)
    def decide(self, table):
        return drop({"gone": pc.is_null(table["prompt_id"])})
"""


def test_a_digest_that_has_not_a_row_for_each_row(recipe_file, rollouts, tmp_path):
    (tmp_path / "counted.py").write_text(COUNTED_GROUPS)
    files = [str(tmp_path / "counted.py")]
    rows = rollouts(4).to_pylist()
    path = recipe_file(["counted_groups_filter"], rows, custom_operator_paths=files)
    with pytest.raises(OperatorError) as caught:
        run(path)
    assert str(caught.value) == (
        f"{path}, line 4, step 1 counted_groups_filter: made a digest of 4 rows from 10; "
        "a digest has one row for each row"
    )
