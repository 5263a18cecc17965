"""The audit log and the run report: every dropped row is named once, and the report adds up."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rejuice.operators import Change, DataError, RecipeError
from rejuice.pipelines.dataset.files import made_by_file, run_folder
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.export import check_may_replace_export
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.report import DECISIONS, Report, decisions, read_decisions
from rejuice.pipelines.recipe.recipe import load

REASONS = pa.array(["too_long", None, "no_text"])


def reasons_by_row(table, reasons=REASONS, first_row=0):
    found = decisions(Frame.of(table), Change(reasons=reasons), "length_filter", first_row)
    assert found.schema == DECISIONS
    assert set(found["step"].to_pylist()) <= {"length_filter"}
    return list(zip(found["row_id"].to_pylist(), found["reason"].to_pylist(), strict=True))


def test_a_row_is_named_by_its_response_else_prompt_else_place():
    prompts, responses = pa.array(["p", "p", "q"]), pa.array(["p1", "p2", None])
    both = pa.table({"prompt_id": prompts, "response_id": responses})
    assert reasons_by_row(both) == [("p1", "too_long"), ("q", "no_text")]
    assert reasons_by_row(both.select(["prompt_id"])) == [("p", "too_long"), ("q", "no_text")]
    assert reasons_by_row(pa.table({"a": [1, 2, 3]}), first_row=7) == [("row 8", "too_long"), ("row 10", "no_text")]  # fmt: skip


def test_places_are_those_of_the_dataset_after_other_steps():
    frame = Frame.of(pa.table({"a": range(5)})).after(Change(reasons=pa.array(["x", None, "x", None, None])))  # fmt: skip
    found = decisions(frame, Change(reasons=REASONS), "s")
    assert found["row_id"].to_pylist() == ["row 2", "row 5"]


def test_ids_of_other_text_types():
    table = pa.table({"prompt_id": pa.array(["p", "q", "r"], pa.large_string())})
    assert reasons_by_row(table) == [("p", "too_long"), ("r", "no_text")]


@pytest.mark.parametrize("reasons", [None, pa.nulls(3, pa.string())])
def test_nothing_dropped(reasons):
    assert reasons_by_row(pa.table({"prompt_id": ["p", "q", "r"]}), reasons) == []


def test_a_row_that_was_added_and_dropped_has_an_id():
    frame = Frame.of(pa.table({"a": [1]})).after(Change(parents=np.array([-1, 0])))
    found = decisions(frame, Change(reasons=pa.array(["gone", None])), "s", 3)
    assert found.num_rows == 1
    assert found["row_id"][0].is_valid


@pytest.fixture
def finished(recipe_file, rollouts):
    path = recipe_file(
        [{"pass_rate_filter": {"max": 0.9}}, {"exact_deduplicator": {}}], rollouts(15).to_pylist()
    )
    return engine.run(load(path), chunk_rows=10), load(path)


def test_the_folder_of_a_run(finished):
    _, recipe = finished
    folder = recipe.head.export_path.with_suffix(".run")
    left = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert {
        "01_pass_rate_filter/decisions.parquet",
        "02_exact_deduplicator/decisions.parquet",
        "recipe.yaml",
        "report.json",
    } <= set(left)
    hidden = [p.name for p in folder.parent.iterdir() if p.name.startswith(".curated")]
    assert hidden == [".curated.run.lock"]
    assert yaml.safe_load((folder / "recipe.yaml").read_text()) == recipe.resolved()


def test_decisions_and_report_and_export_agree(finished, rollouts):
    report, recipe = finished
    folder = recipe.head.export_path.with_suffix(".run")
    gone = []
    for number, step in enumerate(report.steps, 1):
        table = read_decisions(folder / f"{number:02d}_{step.step}")
        assert table.schema == DECISIONS
        counts = {c["values"]: c["counts"] for c in table["reason"].value_counts().to_pylist()}
        assert counts == step.dropped
        gone += table["row_id"].to_pylist()
    exported = pq.read_table(recipe.head.export_path)["response_id"].to_pylist()
    assert sorted([*gone, *exported]) == sorted(rollouts(15)["response_id"].to_pylist())


def test_a_report_is_read_as_it_was_written(finished):
    report, recipe = finished
    assert Report.read(recipe.head.export_path) == report
    text = (recipe.head.export_path.with_suffix(".run") / "report.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    with pytest.raises(DataError, match=r"give the export_path of a finished run$"):
        Report.read(recipe.head.export_path.with_name("other.parquet"))


def test_a_run_that_fails_keeps_the_files_of_the_one_before(finished, monkeypatch):
    _, recipe = finished
    export = recipe.head.export_path
    (run_folder(export) / "manifest.json").unlink()
    before = {p: p.read_bytes() for p in export.parent.rglob("*") if p.is_file()}
    monkeypatch.setattr("rejuice.pipelines.engine.export.conform", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.run(recipe, chunk_rows=10)
    assert {p: p.read_bytes() for p in export.parent.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("left", ["manifest", "report", "marker"])
def test_only_the_recipe_that_made_an_export_may_replace_it(finished, tmp_path, left):
    _, recipe = finished
    path, mine, other = recipe.head.export_path, recipe.path, tmp_path / "other.yaml"
    if left != "manifest":
        (run_folder(path) / "manifest.json").unlink()
    if left == "marker":
        (run_folder(path) / "report.json").unlink()
        made_by_file(path).parent.mkdir()
        made_by_file(path).write_text(str(mine))
    check_may_replace_export(SimpleNamespace(path=mine, from_file=True), path)
    check_may_replace_export(SimpleNamespace(path=other, from_file=True), tmp_path / "new.parquet")
    with pytest.raises(RecipeError, match=r"exists; give another --export_path, or --overwrite$"):
        check_may_replace_export(SimpleNamespace(path=other, from_file=True), path)
