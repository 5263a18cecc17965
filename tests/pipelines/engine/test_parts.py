"""An export in parts has the rows of one file, in its order, and no group in two files."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.pipelines import api
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.dataset.read import read_all
from rejuice.pipelines.dataset.write import exported_rows, written_columns
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.export import cut_parts
from rejuice.pipelines.engine.report import decided_rows, read_decisions
from rejuice.pipelines.recipe.recipe import load

PROCESS = [
    {"group_size_filter": {"min": 2}},
    {"grpo_advantage_mapper": {}},
    {"exact_deduplicator": {}},
]


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=6), st.integers(1, 20)
)
def test_parts_are_cut_between_groups(chunks, most):
    sizes = [np.array(groups, np.int64) for groups in chunks]
    parts = cut_parts(sizes, most)
    assert [part.number for part in parts] == list(range(len(parts)))
    rows = [[(chunk, group) for group, n in enumerate(groups) for _ in range(n)] for chunk, groups in enumerate(chunks)]  # fmt: skip
    cut = [[row for s in part.slices for row in rows[s.chunk][s.begin : s.end]] for part in parts]
    assert [row for part in cut for row in part] == [row for chunk in rows for row in chunk]
    for part, after in pairwise(cut):
        assert not set(part) & set(after)
        assert len(part) <= most or len(set(part)) == 1
        first_group = [row for row in after if row == after[0]]
        assert len(part) + len(first_group) > most, "a part is as full as its groups allow"
    logged = [s.chunk for part in parts for s in part.slices if s.with_log]
    assert logged == list(range(len(chunks))), "decisions of each chunk are written once, in order"


@pytest.fixture
def recipe(recipe_file, rollouts):
    return load(recipe_file(PROCESS, rollouts(30).to_pylist()))


def in_parts(recipe, most, **overrides):
    export = recipe.head.export_path.parent / "parts"
    overrides |= {"export_path": str(export), "max_rows_per_file": str(most)}
    return load(recipe.path, overrides)


def without_marks(table):
    return table.replace_schema_metadata(None)


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(most=st.integers(1, 80), workers=st.integers(1, 3))
def test_any_number_of_rows_gives_the_same_rows_and_decisions(recipe, most, workers):
    whole, other = recipe, in_parts(recipe, most, np=str(workers))
    report = engine.run(whole, chunk_rows=16)
    again = engine.run(other, chunk_rows=16)
    folder = other.head.export_path
    files = sorted(folder.glob("*.parquet"))
    tables = [pq.read_table(file) for file in files]
    assert pa.concat_tables(tables).equals(pq.read_table(whole.head.export_path))
    prompts = [set(table["prompt_id"].to_pylist()) for table in tables]
    assert sum(map(len, prompts)) == len(set().union(*prompts)), "no group is in two files"
    assert all(t.num_rows <= most or len(p) == 1 for t, p in zip(tables, prompts, strict=True))
    assert [s.model_dump(exclude={"cached"}) for s in again.steps] == [
        s.model_dump(exclude={"cached"}) for s in report.steps
    ]
    runs = [path.with_suffix(".run") for path in (whole.head.export_path, folder)]
    assert read_decisions(runs[1]).equals(read_decisions(runs[0]))
    assert read_decisions(runs[0]).num_rows == report.dropped > 0
    assert list(decided_rows(runs[1])) == read_decisions(runs[0])["row_id"].to_pylist()


def test_the_folder_of_an_export(recipe):
    other = in_parts(recipe, 20)
    engine.run(other, chunk_rows=16)
    folder = other.head.export_path
    rows = [pq.read_metadata(file).num_rows for file in sorted(folder.glob("*.parquet"))]
    assert len(rows) > 2
    names = [f"part-{number:05d}.parquet" for number in range(len(rows))]
    assert sorted(p.name for p in folder.iterdir()) == ["_manifest.json", *names]
    assert json.loads((folder / "_manifest.json").read_text()) == {
        "rows": sum(rows),
        "parts": [{"file": f, "rows": n} for f, n in zip(names, rows, strict=True)],
    }
    step = folder.with_suffix(".run") / "01_group_size_filter"
    assert sorted(p.name for p in step.iterdir()) == [
        f"decisions-{number:05d}.parquet" for number in range(len(rows))
    ]


def test_a_damaged_report_beside_a_dataset_says_nothing_of_it(tmp_path):
    (tmp_path / "rows.run").mkdir()
    (tmp_path / "rows.run" / "report.json").write_text('{"export_pa')
    (tmp_path / "rows.jsonl").write_text('{"x": 1}\n')
    assert written_columns(tmp_path / "rows.jsonl") == frozenset()


def test_a_folder_that_lacks_a_part_is_not_read(recipe):
    other = in_parts(recipe, 20)
    engine.run(other, chunk_rows=16)
    folder = other.head.export_path
    (folder / "part-00001.parquet").unlink()
    with pytest.raises(DataError) as error:
        exported_rows(folder)
    assert str(error.value) == f"{folder} lacks part-00001.parquet; run its recipe again"


@pytest.mark.slow  # It loads datasets.
def test_readers_take_the_folder(recipe):
    from datasets import load_dataset

    other = in_parts(recipe, 20)
    engine.run(recipe, chunk_rows=16)
    engine.run(other, chunk_rows=16)
    folder, table = other.head.export_path, pq.read_table(recipe.head.export_path)
    assert exported_rows(folder).equals(table)
    assert read_all(folder).equals(without_marks(table))
    assert written_columns(folder) == written_columns(recipe.head.export_path)
    for found in (load_dataset(str(folder), split="train"), load_dataset("parquet", data_files=f"{folder}/*.parquet", split="train")):  # fmt: skip
        assert found.to_list() == table.to_pylist()
    for path in (folder, folder.with_suffix(".run")):
        (one,) = open_stored(path).sets
        assert one.final().equals(table)
        assert one.decisions().num_rows == open_stored(path).report.dropped
    nobody = in_parts(recipe, 20, **{"group_size_filter.min": "99"})
    assert api.run(nobody, allow_empty=True, chunk_rows=16).table.num_rows == 0
    assert [p.name for p in sorted(folder.glob("*.parquet"))] == ["part-00000.parquet"]


@pytest.mark.slow  # It loads datasets.
def test_one_part_alone_is_read_by_hugging_face(recipe):
    from datasets import load_dataset

    other = in_parts(recipe, 1_000)
    engine.run(other)
    folder = other.head.export_path
    assert load_dataset(str(folder), split="train").num_rows == exported_rows(folder).num_rows


def test_a_finished_export_in_parts_has_nothing_to_do_and_a_damaged_one_is_replaced(recipe):
    other = in_parts(recipe, 20)
    engine.run(other, chunk_rows=16)
    folder = other.head.export_path
    before = {p.name: (p.stat().st_ino, p.read_bytes()) for p in folder.iterdir()}
    engine.run(other, chunk_rows=16)
    assert {p.name: (p.stat().st_ino, p.read_bytes()) for p in folder.iterdir()} == before
    for name in ("part-00001.parquet", "_manifest.json"):
        (folder / name).unlink()
        engine.run(other, chunk_rows=16)
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == {name: content for name, (_, content) in before.items()}  # fmt: skip
    engine.run(in_parts(recipe, 1_000), chunk_rows=16)
    assert sorted(p.name for p in folder.iterdir()) == ["_manifest.json", "part-00000.parquet"]
    hidden = [p.name for p in folder.parent.iterdir() if p.name.startswith(".parts")]
    assert hidden == [".parts.run.lock"]


def test_only_the_parts_in_the_list_are_of_the_export(recipe):
    other = in_parts(recipe, 20)
    engine.run(other, chunk_rows=16)
    folder = other.head.export_path
    table = exported_rows(folder)
    shutil.copy(folder / "part-00000.parquet", folder / "part-00099.parquet")
    assert exported_rows(folder).equals(table)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"parts": 3}', '{"parts": [3]}'])
def test_a_list_of_parts_that_is_damaged_or_missing_is_one_line(recipe, content):
    other = in_parts(recipe, 20)
    engine.run(other, chunk_rows=16)
    folder = other.head.export_path
    before = exported_rows(folder)
    (folder / "_manifest.json").write_text(content)
    with pytest.raises(DataError) as error:
        exported_rows(folder)
    assert str(error.value) == f"{folder}/_manifest.json is damaged; run its recipe again"
    (folder / "_manifest.json").unlink()
    with pytest.raises(DataError) as error:
        exported_rows(folder)
    found = f"{folder} is not a finished export: it lacks _manifest.json"
    assert str(error.value) == f"{found}; run its recipe again"
    engine.run(other, chunk_rows=16)
    assert exported_rows(folder).equals(before)


@pytest.mark.parametrize(
    ("path", "found", "right"),
    [
        ("other", "is a folder with other files, such as notes.txt", "name a folder that is empty or does not exist"),
        ("other.jsonl", "is a folder", "move it away, or give another export_path"),
        ("file", "is a file without a suffix", "name a folder, or a file that ends in .parquet, .arrow, .jsonl"),
        ("v1.5", "has no known format", "end it in .parquet, .arrow, .jsonl, or name a folder, without a dot"),
        (".", "would write over the dataset, or into its folder", "give another export_path"),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_ours_is_never_replaced(recipe, tmp_path, path, found, right):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    (tmp_path / "other.jsonl").mkdir()
    (tmp_path / "file").write_text("mine")
    export = tmp_path / path
    if path == ".":
        export = tmp_path / "data"
        export.mkdir()
        (tmp_path / "data.jsonl").rename(export / "part-00000.parquet")
        recipe = load(recipe.path, {"dataset_path": str(export / "part-00000.parquet")})
    with pytest.raises(RecipeError) as error:
        engine.run(load(recipe.path, {"dataset_path": str(recipe.head.dataset_path), "export_path": str(export)}), overwrite=True)  # fmt: skip
    assert str(error.value).endswith(f"export_path {export} {found}; {right}")
    assert (tmp_path / "other" / "notes.txt").read_text() == "mine"
