"""Chunks of Parquet files are rows of these files: nothing is copied, and nothing is mixed up."""

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.pipelines import Recipe, run
from rejuice.pipelines.dataset import parquet
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.engine.frame import Frame

QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def rollouts(sizes):
    ids = [f"p{group}" for group, size in enumerate(sizes) for _ in range(size)]
    return pa.table({"prompt_id": ids, "n": list(range(len(ids))), "s": ["é" * n for n in range(len(ids))]})  # fmt: skip


def written(folder, table, parts, row_group):
    """The table as Parquet files, cut at the given rows."""
    folder.mkdir()
    for at, (begin, end) in enumerate(zip([0, *parts], [*parts, table.num_rows], strict=True)):
        pq.write_table(table.slice(begin, end - begin), folder / f"{at:03d}.parquet", row_group_size=row_group)  # fmt: skip
    return folder


@pytest.mark.slow
@QUICK
@given(st.data(), st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 20))
def test_however_rows_are_in_files_the_chunks_are_those_of_json_lines(
    tmp_path_factory, data, sizes, chunk_rows
):
    tmp_path = tmp_path_factory.mktemp("in")
    table = rollouts(sizes)
    parts = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=3)))
    folder = written(tmp_path / "p", table, parts, data.draw(st.integers(1, 6)))
    options = {"chunk_rows": chunk_rows, "group_by": ("prompt_id",)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_MOST_DECODED", data.draw(st.sampled_from([1.0, 2.0, 100.0])))
        found = Dataset(folder).chunks(tmp_path / "cache", **options)
    # The same rows as one Arrow file, which is always copied into chunks.
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    expected = Dataset(tmp_path / "a.arrow").chunks(tmp_path / "cache", **options)
    assert (found.rows, found.schema) == (expected.rows, expected.schema)
    again = pickle.loads(pickle.dumps(found))
    for chunk in range(len(found.rows)):
        assert again.chunk(chunk).equals(expected.chunk(chunk))
        assert again.chunk(chunk, ["s"]).equals(expected.chunk(chunk).select(["s"]))


def test_only_a_manifest_is_written(tmp_path):
    folder = written(tmp_path / "p", rollouts([2] * 10), [7], 4)
    found = Dataset(folder).chunks(tmp_path / "cache", chunk_rows=5, group_by=("prompt_id",))
    assert [path.name for path in found.folder.iterdir()] == ["schema.arrow"]
    assert found.rows == (4,) * 5


def test_row_groups_that_would_be_decoded_for_many_chunks_are_copied(tmp_path):
    table = rollouts([1] * 60)
    one_group = written(tmp_path / "p", table, [], 60)
    found = Dataset(one_group).chunks(tmp_path / "cache", chunk_rows=5, group_by=())
    assert found.in_files is None
    assert [found.chunk(at).num_rows for at in range(12)] == [5] * 12
    small = written(tmp_path / "q", table, [], 6)
    assert Dataset(small).chunks(tmp_path / "cache", chunk_rows=5, group_by=()).in_files is not None


def test_the_columns_of_groups_are_read_to_cut_and_others_when_they_are_needed(
    tmp_path, monkeypatch
):
    folder = written(tmp_path / "p", rollouts([2] * 10), [], 5)
    read = []
    decoded = parquet.decoded

    def noted(file, table):
        read.append((table.num_rows, table.column_names))
        return decoded(file, table)

    monkeypatch.setattr(parquet, "decoded", noted)
    found = Dataset(folder).chunks(tmp_path / "cache", chunk_rows=5, group_by=("prompt_id",))
    # The schema; five rows of each row group, which is all of them here; and the groups.
    rows = [count for count, names in read if names == ["prompt_id"]]
    assert sum(rows) == 20
    read.clear()
    frame = Frame.of_chunk(found, 0)
    assert frame.schema == found.schema
    assert frame.num_rows == 4
    assert read == []
    assert frame.select(["n"])["n"].to_pylist() == [0, 1, 2, 3]
    frame.select(["n"])
    assert read == [(5, ["n"])]


def test_repeated_texts_are_long_in_memory_although_the_file_is_small(tmp_path, monkeypatch):
    table = pa.table({"prompt_id": [f"p{n // 4}" for n in range(4000)], "text": ["x" * 1000] * 4000})  # fmt: skip
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=100)
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(parquet, "CHUNK_BYTES", 500_000)
    found = Dataset(path).chunks(tmp_path / "cache", chunk_rows=4000, group_by=("prompt_id",))
    assert found.in_files is not None
    assert max(found.chunk(at).nbytes for at in range(len(found.rows))) < 550_000
    assert min(found.rows[:-1]) > 400


@pytest.mark.parametrize("change", ["rewritten", "removed"])
def test_a_file_that_changes_during_a_run_is_noticed(tmp_path, change):
    path = tmp_path / "a.parquet"
    pq.write_table(rollouts([2, 2]), path)
    found = Dataset(path).chunks(tmp_path / "cache", chunk_rows=2, group_by=("prompt_id",))
    found.chunk(0)
    path.unlink()
    if change == "rewritten":
        pq.write_table(rollouts([2, 3]), path)
    with pytest.raises(DataError) as raised:
        found.chunk(1)
    assert str(raised.value) == (
        f"{path} has changed since the run began; leave it as it is, and run again"
    )


def test_a_file_that_changes_while_it_is_parsed_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n')
    dataset = Dataset(path)
    assert dataset.first_rows.num_rows == 1
    assert dataset.fingerprint
    path.write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(DataError, match="has changed since the run began"):
        dataset.chunks(tmp_path / "cache", chunk_rows=2, group_by=())


def test_an_export_has_the_bytes_that_it_has_of_json_lines(tmp_path):
    table = rollouts([2, 3, 1, 4, 2])
    (tmp_path / "p").mkdir()
    paths = tmp_path / "p" / "a.parquet", tmp_path / "a.arrow"
    pq.write_table(table, paths[0], row_group_size=4)
    with pa.ipc.new_file(paths[1], table.schema) as writer:
        writer.write_table(table)
    exports = []
    for path in paths:
        export = tmp_path / f"{path.name}.out" / "out.parquet"
        steps = [{"group_size_filter": {"min": 2}}]
        for np in (1, 2):
            run(Recipe(steps, path, export_path=export, np=np), chunk_rows=5, overwrite=True)
            exports.append(export.read_bytes())
    assert len(set(exports)) == 1
