"""`suffix_filter`: the reader tells from what kind of file each row comes, as Data-Juicer's does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rejuice.operators import RecipeError
from rejuice.pipelines import Recipe, load, run
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.spec import SUFFIX, DatasetSpec

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

FILTER = {"suffix_filter": {"suffixes": [".json"]}}


@pytest.fixture
def folder(tmp_path):
    """Six rows of a .jsonl file, then four of a .json file."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, count in (("a.jsonl", 6), ("b.json", 4)):
        rows = [{"text": f"{name} {n}", "n": n} for n in range(count)]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_row_has_the_suffix_of_its_file(folder):
    expected = [".jsonl"] * 6 + [".json"] * 4
    dataset = Dataset(DatasetSpec.of(folder).with_suffix())
    assert dataset.table()[SUFFIX].to_pylist() == expected
    assert dataset.first_rows.schema.names == dataset.schema.names == ["text", "n", SUFFIX]
    chunks = dataset.chunks(folder.parent / "cache", chunk_rows=4, group_by=())
    read = [row for at in range(len(chunks.rows)) for row in chunks.chunk(at)[SUFFIX].to_pylist()]
    assert read == expected
    # Without it, the same folder has other chunks.
    plain = Dataset(folder).chunks(folder.parent / "cache", chunk_rows=4, group_by=())
    assert plain.chunk(0).column_names == ["text", "n"]


def test_a_column_of_the_dataset_stays(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2], SUFFIX: [".txt", ".json"]}), path)
    assert Dataset(DatasetSpec.of(path).with_suffix()).table()[SUFFIX].to_pylist() == [
        ".txt",
        ".json",
    ]
    assert run(Recipe([FILTER], path)).table["n"].to_pylist() == [2]
    assert run(Recipe([FILTER], pq.read_table(path))).table["n"].to_pylist() == [2]


def test_rows_of_some_files_are_kept_in_any_chunks(folder):
    for chunk_rows in (3, 1000):
        out = run(Recipe([FILTER], folder), chunk_rows=chunk_rows)
        assert out.table["text"].to_pylist() == [f"b.json {n}" for n in range(4)]
        assert out.decisions["reason"].to_pylist() == ["suffix_filter"] * 6
    out = run(Recipe([{"suffix_filter": {}}], folder))
    assert out.table.num_rows == 10
    others = [{"text_length_filter": {"min_len": 1}}]
    assert SUFFIX not in run(Recipe(others, folder)).table.column_names


def test_a_table_in_memory_is_of_no_file():
    with pytest.raises(RecipeError) as raised:
        Recipe([FILTER], pa.table({"text": ["a"]}))
    assert str(raised.value) == (
        f"Recipe, step 1 suffix_filter: a table is of no file, and has no column '{SUFFIX}'; "
        "give the path of a dataset"
    )


def test_the_export_is_that_of_dj_process(folder, tmp_path):
    exports = []
    for name in ("ours", "theirs"):
        exports.append(tmp_path / name / "curated.parquet")
        head = {"dataset_path": str(folder), "export_path": str(exports[-1]), "np": 1}
        document = {**head, "skip_op_error": False, "process": [FILTER]}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(document))
    run(load(tmp_path / "ours.yaml"))
    command = [Path(sys.executable).with_name("dj-process"), "--config", tmp_path / "theirs.yaml"]
    environment = {**os.environ, "UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, errors="replace"
    )
    assert done.returncode == 0, done.stderr
    ours, theirs = (pq.read_table(export).replace_schema_metadata() for export in exports)
    assert ours.equals(theirs)
    assert ours.column_names == ["text", "n", SUFFIX]
