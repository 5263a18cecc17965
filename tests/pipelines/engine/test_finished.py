"""A finished run has nothing to do; one of whose files anything is wrong is written again."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.pipelines import Recipe, api
from rejuice.pipelines.dataset.files import run_folder
from rejuice.pipelines.engine import finished_export
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.finished_export import read_manifest
from rejuice.pipelines.engine.plan import count_retry
from rejuice.pipelines.engine.report import Report
from rejuice.pipelines.recipe.recipe import load

PROCESS = [{"pass_rate_filter": {"max": 0.9}}, {"exact_deduplicator": {}}]
FILES = (
    "curated.parquet",
    "curated.run/manifest.json",
    "curated.run/report.json",
    "curated.run/recipe.yaml",
    "curated.run/01_pass_rate_filter/decisions.parquet",
)


@pytest.fixture
def recipe(recipe_file, rollouts):
    recipe = load(recipe_file(PROCESS, rollouts(15).to_pylist()))
    engine.run(recipe, chunk_rows=10)
    return recipe


@pytest.fixture
def no_step_runs(monkeypatch):
    monkeypatch.setattr("rejuice.pipelines.engine.run.run_step", None)


def files_of(recipe):
    """Inode and content of all that a run has written, but for the cache."""
    folder = recipe.head.export_path.parent
    every = [p for p in folder.rglob("*") if p.is_file() and ".rejuice" not in p.parts]
    return {
        str(p.relative_to(folder)): (p.stat().st_ino, p.read_bytes())
        for p in every
        if p.suffix != ".lock"
    }


def contents(files):
    """What files hold; of a report, what it says apart from what this run has found."""
    found = {name: content for name, (_, content) in files.items()}
    report = json.loads(found.pop("curated.run/report.json"))
    found.pop("curated.run/manifest.json")  # It has the checksum of the report.
    for step in report["steps"]:
        del step["cached"]
    return found, report


def test_a_finished_run_writes_nothing(recipe, no_step_runs):
    before, first = files_of(recipe), Report.read(recipe.head.export_path)
    report = engine.run(recipe, chunk_rows=10)
    assert files_of(recipe) == before
    assert [step.cached for step in report.steps] == [True, True]
    assert [step.seconds for step in report.steps] == [step.seconds for step in first.steps]
    assert report.model_copy(update={"steps": ()}) == first.model_copy(update={"steps": ()})


def spoil(path, how, at=0.5):
    """Damage a file; its size and times stay where only its content changes."""
    stat, content = path.stat(), bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
        return
    place = min(int(at * len(content)), len(content) - 1)
    if how == "flipped":
        content[place] ^= 1 << place % 8
    elif how == "cut":
        del content[place:]
    elif how == "zeroed":
        content[place:] = bytes(len(content) - place)
    elif how == "empty":
        content = b""
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(FILES),
    how=st.sampled_from(["gone", "flipped", "cut", "zeroed", "empty"]),
    at=st.floats(0, 1, exclude_max=True),
)
def test_whatever_happens_to_a_file_it_is_written_again(recipe, no_step_runs, name, how, at):
    before = contents(files_of(recipe))
    path = recipe.head.export_path.parent / name
    spoil(path, how, at)
    engine.run(recipe, chunk_rows=10, verify=True)
    assert contents(files_of(recipe)) == before
    assert read_manifest(run_folder(recipe.head.export_path)) is not None


def test_commits_that_are_gone_are_computed_again(recipe):
    export = recipe.head.export_path
    before = contents(files_of(recipe))
    for commit in (export.parent / ".rejuice").glob("exact_*/*.arrow"):
        commit.unlink()
    report = engine.run(recipe, chunk_rows=10)
    assert [step.cached for step in report.steps] == [True, False]
    assert contents(files_of(recipe))[0] == before[0]


def test_what_only_describes_a_run_is_written_without_its_rows(recipe, no_step_runs):
    before = files_of(recipe)
    for overrides in ({"np": "2"}, {"project_name": "other"}):
        engine.run(load(recipe.path, overrides), chunk_rows=10)
        after = files_of(recipe)
        changed = {name for name in before if before[name] != after[name]}
        small = {f"curated.run/{n}" for n in ("manifest.json", "recipe.yaml", "report.json")}
        assert {"curated.run/recipe.yaml"} <= changed <= small
        assert engine.run(load(recipe.path, overrides), chunk_rows=10)
        assert files_of(recipe) == after
    assert Report.read(recipe.head.export_path).project_name == "other"


@pytest.mark.parametrize(
    "overrides", [{"pass_rate_filter.max": "0.8"}, {"keep_hashes_in_res_ds": "true"}]
)
def test_what_decides_the_rows_writes_them(recipe, overrides):
    inode = recipe.head.export_path.stat().st_ino
    engine.run(load(recipe.path, overrides), chunk_rows=10)
    assert recipe.head.export_path.stat().st_ino != inode


def test_a_retry_of_the_last_step_that_was_killed_is_not_finished(recipe):
    export = recipe.head.export_path
    inode = export.stat().st_ino
    (commits,) = (export.parent / ".rejuice").glob("exact_*")
    count_retry(commits, "dropped")
    engine.run(recipe, chunk_rows=10)
    assert export.stat().st_ino != inode


def test_a_run_of_a_table_is_finished_too(tmp_path, rollouts):
    export = tmp_path / "curated.parquet"
    recipes = [Recipe(PROCESS, rollouts(15), export_path=export) for _ in range(2)]
    first, again = (api.run(recipe) for recipe in recipes)
    inode = export.stat().st_ino
    assert again.table.equals(first.table)
    assert all(step.cached for step in again.report.steps)
    assert Report.read(export).dataset_path == again.report.dataset_path == "the table"
    spoil(run_folder(export) / "report.json", "flipped", 0)
    api.run(recipes[1])
    assert export.stat().st_ino != inode


DAMAGED = "give another --export_path, or --overwrite"


@pytest.mark.recommended("pipelines/engine/export.py", "give another --export_path, or --overwrite")
@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"recipe": 3}', b"\xff\x00"])
def test_an_export_whose_run_folder_is_damaged_is_not_replaced(recipe, content):
    folder = run_folder(recipe.head.export_path)
    (folder / "report.json").write_bytes(content)
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(RecipeError) as error:
        engine.run(recipe, chunk_rows=10)
    assert str(error.value) == f"export_path {recipe.head.export_path} exists; {DAMAGED}"
    engine.run(recipe, chunk_rows=10, overwrite=True)
    assert engine.run(recipe, chunk_rows=10).rows_out
    assert engine.run(load(recipe.path, {"export_path": str(folder / "x.parquet")})).rows_out


def test_the_same_of_a_recipe_without_a_file(tmp_path, rollouts):
    recipe = Recipe(PROCESS, rollouts(15), export_path=tmp_path / "curated.parquet")
    api.run(recipe)
    (run_folder(tmp_path / "curated.parquet") / "manifest.json").unlink()
    with pytest.raises(RecipeError, match=DAMAGED):
        api.run(recipe)


def test_a_recipe_without_a_file_goes_on_where_it_was_killed_in_the_end(
    tmp_path, rollouts, monkeypatch
):
    recipe = Recipe(PROCESS, rollouts(15), export_path=tmp_path / "curated.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(finished_export, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            api.run(recipe)
    assert (tmp_path / "curated.parquet").exists()
    assert api.run(recipe).report.rows_out


def test_a_damaged_report_is_one_line(recipe):
    path = run_folder(recipe.head.export_path) / "report.json"
    path.write_text("")
    with pytest.raises(DataError) as error:
        Report.read(recipe.head.export_path)
    assert str(error.value) == f"{path} is damaged; run the recipe again"


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"checksum": 1}'])
def test_a_manifest_that_is_none(tmp_path: Path, content):
    (tmp_path / "manifest.json").write_text(content)
    assert read_manifest(tmp_path) is None
