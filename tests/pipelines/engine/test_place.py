"""A run is put in place as a whole: where a rename fails, the run before and this one both stay."""

import errno
from contextlib import contextmanager
from pathlib import Path

import pytest
from dataset_files import dataset_files

from rejuice.operators import DataError, RecipeError, RejuiceError
from rejuice.pipelines.dataset.files import (
    check_finished,
    remove_folder,
    run_folder,
    unfinished_run_folder,
)
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.finished_export import read_manifest, sole_writer
from rejuice.pipelines.engine.report import Report
from rejuice.pipelines.recipe.recipe import load

PROCESS = [{"group_size_filter": {"min": 2}}]


@pytest.fixture
def runs(recipe_file, rollouts, tmp_path):
    """Runs a recipe into `out/NAME`, with groups of at least `least` rows."""
    path = recipe_file(PROCESS, rollouts(15).to_pylist())

    def run(name, least):
        fields = {"export_path": str(tmp_path / "out" / name), "group_size_filter.min": str(least)}
        return engine.run(load(path, {**fields, "max_rows_per_file": "9"}), chunk_rows=16)

    return run


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def state(export):
    """The export and its run folder, byte by byte."""
    rows = files_of(export) if export.is_dir() else export.read_bytes()
    return rows, files_of(run_folder(export))


RENAMES = {"curated.parquet": 3, "curated": 4}


@pytest.mark.parametrize(("name", "at"), [(n, at) for n, most in RENAMES.items() for at in range(most)])  # fmt: skip
def test_a_rename_that_fails_loses_neither_run(runs, monkeypatch, tmp_path, name, at):
    export = tmp_path / "out" / name
    runs(name, 2)
    before = state(export)
    rename, renamed = Path.replace, []

    def replace(self, target):
        final = {run_folder(export), export}
        if final & {self, target} and "lock" not in target.name:
            renamed.append((self.name, target.name))
            if len(renamed) == at + 1:
                raise OSError(errno.EACCES, "Permission denied", str(target))
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(RejuiceError) as error:
            runs(name, 3)
    assert str(error.value).endswith(": Permission denied")
    assert "\n" not in str(error.value)
    assert len(renamed) == 2 * at + 1, "each rename before it was undone"
    assert state(export) == before
    assert read_manifest(run_folder(export)) is not None, "the run before is still finished"
    left = unfinished_run_folder(export)
    assert (left / "report.json").exists()
    assert (left / f"export{export.suffix}").exists()

    runs(name, 3)
    assert state(export) != before
    hidden = sorted(p.name for p in export.parent.iterdir() if p.name.startswith(".cur"))
    assert hidden == [".curated.run.lock"]
    assert not any("old" in file for file in files_of(run_folder(export)))


@pytest.mark.parametrize("name", RENAMES)
def test_an_export_that_is_gone_before_it_is_put_in_place(runs, monkeypatch, tmp_path, name):
    """The export of the run before is not taken for it."""
    export = tmp_path / "out" / name
    runs(name, 2)
    before, write = state(export), Report.write

    def write_and_lose(report, folder):
        write(report, folder)
        (folder / f"export{export.suffix}").rename(tmp_path / "gone")

    with monkeypatch.context() as patch, pytest.raises(RejuiceError, match="No such file"):
        patch.setattr(Report, "write", write_and_lose)
        runs(name, 3)
    assert state(export) == before


NAMES = [("curated.parquet", "curated.jsonl"), ("curated", "curated.arrow")]


@pytest.mark.parametrize(("name", "other"), [*NAMES, *(pair[::-1] for pair in NAMES)])
def test_exports_that_differ_in_the_suffix_alone_would_share_a_report(runs, tmp_path, name, other):
    first, second = tmp_path / "out" / name, tmp_path / "out" / other
    runs(name, 2)
    before = state(first)
    with pytest.raises(RecipeError) as error:
        runs(other, 2)
    assert str(error.value).endswith(
        f"the report of {first} is in {run_folder(first)}, where that of {second} would be; "
        f"give an export_path with another name, or remove {first}"
    )
    assert state(first) == before
    assert not second.exists()
    run_folder(first).rename(unfinished_run_folder(first))  # As a run that is killed may leave it.
    with pytest.raises(RecipeError, match="where that of"):
        runs(other, 2)
    remove_folder(first) if first.is_dir() else first.unlink()
    runs(other, 2)
    assert Report.read(second).export_path == str(second)


def test_a_file_that_is_called_as_the_run_folder_is_one_line(runs, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "curated.run").write_text("a file")
    with pytest.raises(RejuiceError, match="run is a file, where rejuice keeps a folder"):
        runs("curated.parquet", 2)


def test_what_another_run_has_written_while_this_one_began_is_not_replaced(
    runs, recipe_file, monkeypatch, tmp_path
):
    export, of_another = tmp_path / "out" / "curated.parquet", []

    @contextmanager
    def hold_after_another_run(export_path):
        monkeypatch.setattr(engine, "sole_writer", sole_writer)
        other = recipe_file([{"group_size_filter": {"min": 4}}], name="other.yaml")
        engine.run(load(other))
        of_another.append(state(export))
        with sole_writer(export_path) as hold:
            yield hold

    monkeypatch.setattr(engine, "sole_writer", hold_after_another_run)
    with pytest.raises(RecipeError, match="exists; give another --export_path, or --overwrite"):
        runs("curated.parquet", 2)
    assert [state(export)] == of_another


@pytest.mark.parametrize("name", RENAMES)
def test_a_run_that_fails_leaves_nothing_half_written(runs, monkeypatch, tmp_path, name):
    runs(name, 2)
    before = state(tmp_path / "out" / name)
    monkeypatch.setattr("rejuice.pipelines.engine.export.conform", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runs(name, 3)
    assert state(tmp_path / "out" / name) == before
    assert not unfinished_run_folder(tmp_path / "out" / name).exists()


def test_an_export_whose_run_has_not_ended_is_found(runs, tmp_path):
    runs("curated.parquet", 2)
    export = tmp_path / "out" / "curated.parquet"
    check_finished(export)
    (run_folder(export) / "export.parquet").write_text("x")
    with pytest.raises(DataError) as error:
        check_finished(export)
    assert str(error.value) == f"the run that writes {export} has not ended; run its recipe again"


@pytest.mark.parametrize("dataset", ["out/curated", "out/curated/*.parquet", "out/*/*.parquet", "out/**"])  # fmt: skip
def test_an_export_in_parts_whose_run_has_not_ended_is_no_dataset(runs, tmp_path, dataset):
    runs("curated", 2)
    export = tmp_path / "out" / "curated"
    assert {path.parent for path in dataset_files(tmp_path / dataset)} == {export}
    export.rename(run_folder(export) / "export")  # As a run does that is killed just then.
    with pytest.raises(DataError) as error:
        dataset_files(tmp_path / dataset)
    assert str(error.value) == f"the run that writes {export} has not ended; run its recipe again"
