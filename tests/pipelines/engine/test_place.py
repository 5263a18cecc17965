"""A run is put in place as a whole: where a rename fails, the run before and this one both stay."""

import errno
from contextlib import contextmanager
from pathlib import Path

import pytest
from dataset_files import dataset_files

from rejuice.operators import DataError, RecipeError, RejuiceError
from rejuice.pipelines.dataset.files import (
    check_finished,
    made_by_file,
    remove_folder,
    run_folder,
    unfinished_run_folder,
)
from rejuice.pipelines.dataset.write import parts_of
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
    return rows_of(export), files_of(run_folder(export))


def rows_of(export):
    return files_of(export) if export.is_dir() else export.read_bytes()


EXPORTS = ("curated.parquet", "curated")


@pytest.mark.parametrize("name", EXPORTS)
def test_whatever_rename_fails_the_next_run_puts_everything_in_place(
    runs, monkeypatch, tmp_path, name
):
    export = tmp_path / "out" / name
    runs(name, 2)
    before, complete = state(export), 0
    for at in range(50):
        runs(name, 2)
        assert rows_of(export) == before[0]
        rename, left = Path.replace, [at]

        def replace(self, target, rename=rename, left=left):
            if unfinished_run_folder(export) in self.parents:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.EACCES, "Permission denied", str(target))
            return rename(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            found = ""
            try:
                runs(name, 3)
            except RejuiceError as error:
                found = str(error)
        if not found:
            complete = at
            break
        assert found.endswith(": Permission denied")
        assert "\n" not in found
        assert state(export) == before or read_manifest(run_folder(export)) is None
    assert complete > 3
    assert rows_of(export) != before[0]
    hidden = sorted(p.name for p in export.parent.iterdir() if p.name.startswith(".cur"))
    assert hidden == [".curated.run.lock"]


@pytest.mark.parametrize("name", EXPORTS)
def test_a_file_of_the_user_stays_in_the_run_folder(runs, tmp_path, name):
    export = tmp_path / "out" / name
    runs(name, 2)
    mine = [run_folder(export) / "notes.txt", run_folder(export) / "02_mine" / "x.parquet"]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    for least in (3, 2):
        runs(name, least)
        assert [file.read_text() for file in mine] == ["mine"] * len(mine)


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


@pytest.mark.parametrize("name", EXPORTS)
def test_a_run_that_fails_leaves_nothing_half_written(runs, monkeypatch, tmp_path, name):
    runs(name, 2)
    before = state(tmp_path / "out" / name)
    monkeypatch.setattr("rejuice.pipelines.engine.export.conform", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runs(name, 3)
    assert state(tmp_path / "out" / name) == before
    assert not unfinished_run_folder(tmp_path / "out" / name).exists()


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_that_is_half_replaced_is_none_until_a_run_has_ended(
    runs, monkeypatch, tmp_path, name
):
    export = tmp_path / "out" / name
    runs(name, 2)
    rename = Path.replace

    def stop_at_the_first_rows(self, target):
        if target in (export, export / "part-00000.parquet"):
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop_at_the_first_rows)
        with pytest.raises(KeyboardInterrupt):
            runs(name, 3)
    with monkeypatch.context() as patch:
        patch.setattr("rejuice.pipelines.engine.export.conform", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            runs(name, 3)
    with pytest.raises(DataError, match=f"the run that writes {export} has not ended"):
        check_finished(export)
    if export.is_dir():
        with pytest.raises(DataError, match="is not a finished export: it lacks _manifest"):
            parts_of(export)
    runs(name, 3)
    check_finished(export)
    assert not unfinished_run_folder(export).exists()


def test_a_run_that_has_replaced_nothing_yet_leaves_no_mark(runs, monkeypatch, tmp_path):
    """Killed then, it would let the same recipe replace what a user puts there later."""
    export, write, marks = tmp_path / "out" / "curated.parquet", engine.write_parts, []

    def look(*arguments):
        marks.append(made_by_file(export).exists())
        return write(*arguments)

    monkeypatch.setattr(engine, "write_parts", look)
    runs("curated.parquet", 2)
    assert marks == [False]


def test_files_that_killed_runs_left_half_written_go(runs, tmp_path):
    runs("curated.parquet", 2)
    folder = tmp_path / "out" / "curated.run"
    names = ["manifest.json", "report.json", "recipe.yaml"]
    torn, mine = [folder / f".{name}.17.0123abcd" for name in names], folder / ".report.json.mine"
    for file in (*torn, mine):
        file.write_text("{")
    runs("curated.parquet", 3)
    assert [file.exists() for file in (*torn, mine)] == [False, False, False, True]


@pytest.mark.parametrize("dataset", ["out/curated", "out/curated/*.parquet", "out/*/*.parquet", "out/**"])  # fmt: skip
def test_an_export_whose_run_has_not_ended_is_no_dataset(runs, tmp_path, dataset):
    runs("curated", 2)
    export = tmp_path / "out" / "curated"
    check_finished(export)
    assert {path.parent for path in dataset_files(tmp_path / dataset)} == {export}
    # As a run leaves it that is killed just then.
    (run_folder(export) / "manifest.json").unlink()
    made_by_file(export).parent.mkdir()
    made_by_file(export).write_text("a recipe")
    for find in (lambda: dataset_files(tmp_path / dataset), lambda: check_finished(export)):
        with pytest.raises(DataError) as error:
            find()
        assert (
            str(error.value) == f"the run that writes {export} has not ended; run its recipe again"
        )
