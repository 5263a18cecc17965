"""Exports in an object store: the bytes of those on disk, complete once their manifest is there."""

import pkgutil
from itertools import count

import pytest
from command import runner
from dataset_files import dataset_files

from rejuice.operators import DataError, RecipeError, RejuiceError
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.dataset import remote
from rejuice.pipelines.dataset.files import check_finished, remove_folder, run_folder
from rejuice.pipelines.dataset.remote import RemotePath, to_path
from rejuice.pipelines.dataset.write import exported_rows
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.finished_export import read_manifest
from rejuice.pipelines.engine.report import Report, read_decisions
from rejuice.pipelines.recipe.recipe import Recipe, load

pytestmark = pytest.mark.slow

PROCESS = [{"group_size_filter": {"min": 2}}, {"grpo_advantage_mapper": {}}]


@pytest.fixture
def path(recipe_file, rollouts, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return recipe_file(PROCESS, rollouts(20).to_pylist())


@pytest.fixture
def folder(store):
    return store


def contents(export):
    """What is in the store: bytes by name, but for what depends on the place or on time."""
    every = {}

    def walk(path, name):
        if path.is_file():
            every[name] = path.read_bytes()
        elif path.is_dir():
            for each in path.iterdir():
                walk(each, f"{name}/{each.name}")

    walk(export, "export")
    walk(run_folder(export), "run")
    return {n: c for n, c in every.items() if n.count("/") > 1 or not n.startswith("run/")}


@pytest.mark.parametrize("name", ["curated.parquet", "curated.jsonl", "curated.arrow", "curated"])
def test_the_bytes_are_those_of_an_export_on_disk(path, folder, tmp_path, name):
    fields = {"max_rows_per_file": "9"}
    here = load(path, {**fields, "export_path": str(tmp_path / "out" / name)})
    there = load(path, {**fields, "export_path": f"{folder}/{name}"})
    assert isinstance(there.head.export_path, RemotePath)
    ours, theirs = engine.run(here, chunk_rows=16), engine.run(there, chunk_rows=16)
    assert [s.model_dump(exclude={"seconds"}) for s in theirs.steps] == [s.model_dump(exclude={"seconds"}) for s in ours.steps]  # fmt: skip
    found = contents(there.head.export_path)
    assert found == contents(here.head.export_path)
    assert len(found) == {"curated": 1 + 3 * 8}.get(name, 3)
    assert exported_rows(there.head.export_path).equals(exported_rows(here.head.export_path))
    assert not (tmp_path / folder.partition("//")[0]).exists()
    assert (tmp_path / ".rejuice").is_dir()


def test_an_export_of_another_suffix_keeps_its_report(path, folder):
    first, second = (f"{folder}/curated.{suffix}" for suffix in ("parquet", "jsonl"))
    engine.run(load(path, {"export_path": first}))
    with pytest.raises(RecipeError, match="where that of"):
        engine.run(load(path, {"export_path": second}))
    assert Report.read(to_path(first)).export_path == first


def test_nothing_is_left_beside_a_finished_export(path, folder):
    engine.run(load(path, {"export_path": f"{folder}/curated.parquet"}))
    names = {each.name for each in to_path(folder).iterdir()}
    assert {name for name in names if name.startswith((".", "curated"))} - {".rejuice"} == {
        "curated.parquet",
        "curated.run",
    }


def test_a_finished_run_has_nothing_to_do_and_one_that_changed_is_written_again(path, folder):
    recipe = load(path, {"export_path": f"{folder}/curated.parquet"})
    export = recipe.head.export_path
    engine.run(recipe)
    manifest, content = read_manifest(run_folder(export)), export.read_bytes()
    report = engine.run(recipe)
    assert all(step.cached for step in report.steps)
    assert read_manifest(run_folder(export)) == manifest
    export.write_bytes(b"another")
    engine.run(recipe)
    assert export.read_bytes() == content
    (run_folder(export) / "report.json").unlink()
    engine.run(recipe)
    assert Report.read(export).rows_out == report.rows_out
    other = load(path, {"export_path": f"{folder}/curated.parquet"})
    renamed = path.with_name("other.yaml")
    path.rename(renamed)
    with pytest.raises(RecipeError, match=r"exists; give another --export_path, or --overwrite$"):
        engine.run(load(renamed, {"export_path": f"{folder}/curated.parquet"}))
    assert other.head.export_path == export


@pytest.mark.parametrize("killed_at", [0, 1, 4, 9])
def test_a_run_that_is_killed_while_it_replaces_another_is_continued(
    path, folder, monkeypatch, killed_at
):
    """It removes the files of the run before one by one, and in the end what says that it goes on."""

    def run(most):
        fields = {"export_path": f"{folder}/curated", "max_rows_per_file": most}
        engine.run(load(path, fields), chunk_rows=16)

    def unlink(file, **options):
        if (
            file.parent.name in ("curated", "curated.run", ".curated.run")
            and next(removed) == killed_at
        ):
            raise KeyboardInterrupt
        unlink_now(file, **options)

    run("9")
    export, removed, unlink_now = to_path(f"{folder}/curated"), count(), RemotePath.unlink
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RemotePath, "unlink", unlink)
        run("1000")
    patterns = ["*/*.parquet", "cur*/part-00000.parquet", "curated/*", "**"]
    reads = [lambda path=path: dataset_files(to_path(f"{folder}/{path}")) for path in patterns]
    for read in (lambda: check_finished(export), lambda: dataset_files(export), *reads):
        with pytest.raises(DataError) as error:
            read()
        right = f"the run that writes {export} has not ended; run its recipe again"
        assert str(error.value) == right
    run("1000")
    check_finished(export)
    assert dataset_files(export) == [export / "part-00000.parquet"]
    for read in reads:
        assert read() == [export / "part-00000.parquet"]
    assert sorted(each.name for each in export.iterdir()) == [
        "_manifest.json",
        "part-00000.parquet",
    ]


def test_a_folder_that_is_called_as_an_export_of_another_suffix_is_a_dataset(
    path, folder, monkeypatch
):
    """They share a run folder, which says that the other one is not finished."""
    dataset, fields = to_path(f"{folder}/math"), {"export_path": f"{folder}/math.parquet"}
    engine.run(load(path, {"export_path": str(dataset)}), chunk_rows=16)
    remove_folder(run_folder(dataset))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("rejuice.pipelines.engine.export.write_part", interrupt)
        engine.run(load(path, fields), chunk_rows=16)
    with pytest.raises(DataError, match=r"math\.parquet has not ended"):
        check_finished(to_path(fields["export_path"]))
    assert dataset_files(dataset)
    engine.run(load(path, {"export_path": f"{folder}/math.jsonl"}), chunk_rows=16)
    with pytest.raises(DataError, match=r"math\.parquet has not ended"):
        check_finished(to_path(fields["export_path"]))


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_a_run_that_is_killed_before_it_removes_anything_is_finished_by_the_one_before(
    path, folder, monkeypatch
):
    fields = {"export_path": f"{folder}/curated"}
    engine.run(load(path, fields), chunk_rows=16)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("rejuice.pipelines.engine.finished_export.remove_folder", lambda _: 1 / 0)
        engine.run(load(path, {**fields, "group_size_filter.min": "1"}), chunk_rows=16)
    engine.run(load(path, fields), chunk_rows=16)
    check_finished(to_path(fields["export_path"]))


def test_fewer_parts_leave_none_of_the_old_ones(path, folder):
    for most, parts in (("9", 8), ("1000", 1)):
        recipe = load(path, {"export_path": f"{folder}/curated", "max_rows_per_file": most})
        engine.run(recipe, chunk_rows=16)
        names = sorted(each.name for each in recipe.head.export_path.iterdir())
        assert names == ["_manifest.json", *(f"part-{n:05d}.parquet" for n in range(parts))]
        decisions = read_decisions(run_folder(recipe.head.export_path))
        assert decisions.num_rows == Report.read(recipe.head.export_path).dropped


@pytest.mark.parametrize("name", ["curated.parquet", "curated"])
def test_commands_read_it(path, folder, monkeypatch, capsys, tmp_path, name):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    export = f"{folder}/{name}"
    code, out, err = rejuice("run", path, "--export_path", export)
    assert code == 0, err
    lines = out.splitlines()
    assert f"audit log and report: {folder}/curated.run" in lines
    assert rejuice("report", export) == (0, out, "")
    assert rejuice("report", f"{folder}/curated.run") == (0, out, "")
    *_, row = lines[-1].split()
    code, out, err = rejuice("explain", export, row)
    assert (code, "group_size_filter" in out) == (0, True), err
    code, out, err = rejuice("view", export, "--no-open")
    assert code == 0, err
    assert out.startswith("curated.html: ")
    assert open_stored(export).sets[0].final().num_rows == Report.read(to_path(export)).rows_out
    code, out, _ = rejuice("cache", "ls", export)
    assert (code, folder in "".join(out.split()), "3 folders" in out) == (0, True, True)


def test_a_store_that_refuses_is_one_line(path, s3):
    recipe = load(path, {"export_path": "s3://no-such-bucket/curated.parquet"})
    with pytest.raises(DataError) as error:
        engine.run(recipe)
    assert "there is no bucket 'no-such-bucket'; create it, or give another path" in str(error.value)  # fmt: skip


@pytest.mark.parametrize("scheme", ["https", "oss"])
def test_places_that_cannot_be_written(path, scheme):
    with pytest.raises(RecipeError) as error:
        load(path, {"export_path": f"{scheme}://x/y.parquet"})
    found, right = str(error.value).split("; ")
    assert "export_path" in found
    assert f"'{scheme}://x/y.parquet'" in found
    assert right == ("give a path on disk, or s3://BUCKET/..., or run this recipe with dj-process")


@pytest.mark.parametrize("value", ["hf://datasets/a/b?split=train", ["a.parquet"], ""])
def test_what_is_no_path_that_a_run_writes(path, value):
    with pytest.raises(RecipeError, match=r"export_path.*give (one file or folder|a path)"):
        Recipe(load(path).steps, "data.jsonl", export_path=value)


@pytest.mark.parametrize("name", ["curated.parquet", "curated"])
@pytest.mark.parametrize(
    "at", ["export.outline", "export.conform", "report.StepReport", "finished_export.sign"]
)
def test_a_run_that_lost_its_lease_leaves_what_another_run_has_written(
    path, folder, monkeypatch, name, at
):
    """As one that was suspended does: the other run takes its lease, and ends before it goes on."""
    monkeypatch.setattr(remote, "_BEAT_S", 3600.0)
    monkeypatch.setattr(remote, "_WAIT_S", 0.5)
    fields = {"export_path": f"{folder}/{name}", "max_rows_per_file": "9"}
    first, other = load(path, fields), load(path, {**fields, "group_size_filter.min": "3"})
    export, written = first.head.export_path, []
    where = f"rejuice.pipelines.engine.{at}"
    patched = pkgutil.resolve_name(where)

    def suspended(*arguments, **fields):
        monkeypatch.setattr(where, patched)
        if not written:
            monkeypatch.setattr(remote, "_BEAT_S", 0.1)  # Of the other run.
            engine.run(other)
            written.append((contents(export), read_manifest(run_folder(export))))
        return patched(*arguments, **fields)

    monkeypatch.setattr(where, suspended)
    with pytest.raises(RejuiceError, match="did not renew its lease"):
        engine.run(first)
    assert (contents(export), read_manifest(run_folder(export))) == written[0]
    check_finished(export)
    assert all(step.cached for step in engine.run(other).steps)
    assert (contents(export), read_manifest(run_folder(export))) == written[0]
