"""Which files are a dataset, and one clear line where they are none, before anything is paid for."""

import errno
import gzip
import json
import os
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import dataset_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RejuiceError
from rejuice.pipelines import Recipe, run
from rejuice.pipelines.dataset.files import write_file
from rejuice.pipelines.dataset.read import Dataset, parse_mixture, rows_by_weight, sampled
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.dataset.spec import DatasetPart, DatasetSpec, Selection
from rejuice.pipelines.engine.run import Run

QUICK = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with some files of one row each."""
    monkeypatch.chdir(tmp_path)
    for name in ("in/a.jsonl", "in/b.jsonl", "in/deep/c.jsonl", "in/_list.json", "in/note.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"prompt_id": name, "n": 1}) + "\n")
    return tmp_path


def spec(*paths):
    return DatasetSpec(tuple(DatasetPart(to_path(path)) for path in paths))


def message(*paths):
    with pytest.raises(DataError) as raised:
        Dataset(spec(*paths)).table()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def write(path, table):
    """The table in a file of the format that its suffix says."""
    text = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist())
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (["in"], ["in/a.jsonl", "in/b.jsonl"]),
        (["in/b.jsonl"], ["in/b.jsonl"]),
        (["in/*.jsonl"], ["in/a.jsonl", "in/b.jsonl"]),
        (["in/**/*.jsonl"], ["in/a.jsonl", "in/b.jsonl", "in/deep/c.jsonl"]),
        (["in/[b]*", "in/deep"], ["in/b.jsonl", "in/deep/c.jsonl"]),
        (["in/b.jsonl", "in/a.jsonl"], ["in/b.jsonl", "in/a.jsonl"]),
        (["in/**"], ["in/a.jsonl", "in/b.jsonl", "in/deep/c.jsonl"]),
        (["**/deep/**/*.jsonl"], ["in/deep/c.jsonl"]),
        (["*/deep/c.jsonl"], ["in/deep/c.jsonl"]),
        (["in/*"], ["in/a.jsonl", "in/b.jsonl"]),
        (["in/_*"], ["in/_list.json"]),
    ],
)
def test_files_folders_patterns_and_lists(folder, paths, files):
    assert [str(path) for path in dataset_files(spec(*paths))] == files


HIDDEN = [".hidden.jsonl", "_tmp/a.jsonl", ".cache/a.jsonl", "out.run/a.jsonl", "deep/_list.jsonl"]


def check_hidden(above):
    for name in (*HIDDEN, "a.jsonl", "deep/a.jsonl", "deep/deeper/a.jsonl"):
        (above / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(above / name, "{}\n")

    def found(pattern):
        prefix = f"{above}/"
        return [str(file).removeprefix(prefix) for file in dataset_files(spec(prefix + pattern))]

    shown = ["a.jsonl", "deep/a.jsonl", "deep/deeper/a.jsonl"]
    assert found("**") == found("**/*.jsonl") == shown
    assert found("*") == found("*.jsonl") == found("[!x]*.jsonl") == ["a.jsonl"]
    assert found("*/*.jsonl") == found("*/*") == found("*/a.jsonl") == ["deep/a.jsonl"]
    for pattern, file in [
        (".*.jsonl", ".hidden.jsonl"),
        ("_*/*.jsonl", "_tmp/a.jsonl"),
        (".cache/*.jsonl", ".cache/a.jsonl"),
        ("*.run/*", "out.run/a.jsonl"),
        ("out.run/*", "out.run/a.jsonl"),
        ("**/_*", "deep/_list.jsonl"),
    ]:
        assert found(pattern) == [file]


def test_a_pattern_leaves_out_what_a_folder_leaves_out(tmp_path):
    check_hidden(tmp_path / "data")


def test_a_link_is_followed_but_not_by_any_number_of_folders(folder):
    (folder / "in/deep/again").symlink_to(folder / "in")
    (folder / "link.jsonl").symlink_to(folder / "in/a.jsonl")
    assert [str(file) for file in dataset_files(spec("in/deep/**/*.jsonl"))] == ["in/deep/c.jsonl"]
    found = dataset_files(spec("in/deep/*/*.jsonl"))
    assert [str(file) for file in found] == ["in/deep/again/a.jsonl", "in/deep/again/b.jsonl"]
    assert [str(file) for file in dataset_files(spec("*.jsonl"))] == ["link.jsonl"]


def test_a_link_to_itself_is_no_file(folder):
    (folder / "in/loop.jsonl").symlink_to(folder / "in/loop.jsonl")
    assert [str(file) for file in dataset_files(spec("in/*.jsonl"))] == ["in/a.jsonl", "in/b.jsonl"]


def test_a_link_to_nothing_is_not_passed_over(folder):
    (folder / "in/note").symlink_to(folder / "gone")
    assert len(dataset_files(spec("in/*"))) == len(dataset_files(spec("in"))) == 2
    (folder / "in/gone.jsonl").symlink_to(folder / "gone")
    for path in ("in", "in/*.jsonl", "*/gone.jsonl", "**/*.jsonl"):
        assert message(path) == (
            "in/gone.jsonl is a link to a file that does not exist; restore or remove it"
        )


def test_suffixes_in_capital_letters(folder):
    table = pa.table({"n": [1]})
    pq.write_table(table, folder / "in/D.Parquet")
    (folder / "in/E.JSONL").write_text('{"n": 2}\n')
    (folder / "in/F.Json.GZ").write_bytes(gzip.compress(b'{"n": 3}\n'))
    expected = ["in/D.Parquet", "in/E.JSONL", "in/F.Json.GZ", "in/a.jsonl", "in/b.jsonl"]
    for path in ("in", "in/*"):
        assert [str(file) for file in dataset_files(spec(path))] == expected
        assert Dataset(spec(path)).table()["n"].to_pylist() == [1, 2, 3, 1, 1]
    assert Dataset(spec("in/F.Json.GZ")).table()["n"].to_pylist() == [3]


def test_a_folder_that_cannot_be_read_is_not_passed_over(folder, monkeypatch):
    scan = os.scandir

    def refused(path):
        if str(path) == "in/deep":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert message("in/**/*.jsonl") == (
        "in/deep cannot be listed: Permission denied; make it readable, or give a pattern that does "
        "not search it"
    )


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(folder):
    (folder / "in/[b]*.jsonl").write_text('{"n": 2}\n')
    assert Dataset(spec("in/[b]*.jsonl")).table().to_pylist() == [{"n": 2}]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["in/*.parquet"], "no file matches in/*.parquet; correct the pattern in dataset_path"),
        (["in/a.jsonl", "no.jsonl"], "no.jsonl does not exist; set dataset_path to a file or a folder of files"),
        (["in/a.jsonl", "in/*.jsonl"], "in/a.jsonl is read by in/a.jsonl and by in/*.jsonl; let dataset_path name each file once"),
        (["in/a.jsonl", "in/a.jsonl"], "in/a.jsonl is read twice; let dataset_path name each file once"),
    ],
)  # fmt: skip
def test_lists_and_patterns_that_are_wrong(folder, paths, expected):
    assert message(*paths) == expected


def test_types_that_differ_between_formats(folder):
    write(folder / "a.parquet", pa.table({"n": [1]}))
    write(folder / "b.parquet", pa.table({"n": ["x"]}))
    write(folder / "c.jsonl", pa.table({"n": ["x"]}))
    for other in ("b.parquet", "c.jsonl"):
        expected = f"{other}: column 'n' is string, but int64 in earlier rows; give the column one type, or name only others in `columns`"
        assert message("a.parquet", other) == expected
        with pytest.raises(DataError) as raised:
            Dataset(spec("a.parquet", other)).chunks(folder / "cache", chunk_rows=9, group_by=())
        assert str(raised.value) == expected


def test_an_empty_file_among_others_is_no_error(folder):
    (folder / "empty.jsonl").write_text("")
    write(folder / "none.parquet", pa.table({"n": pa.array([], pa.string())}))
    found = Dataset(spec("empty.jsonl", "none.parquet", "in/a.jsonl")).table()
    assert found.to_pylist() == [{"prompt_id": "in/a.jsonl", "n": 1}]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_group_in_two_files_is_refused_before_anything_is_sampled(folder, suffix, monkeypatch):
    # That would wait for the server, which is not asked for a sample.
    monkeypatch.setattr(Run, "check_before_all", lambda _: None)
    rows = [["2 + 2?", "1 + 1?"], ["3 + 3?", "4 + 4?", "1 + 1?"]]
    for name, questions in zip("ab", rows, strict=True):
        table = pa.table({"question": questions, "answer": ["#### 2"] * len(questions)})
        write(folder / f"{name}{suffix}", table)
    steps = [
        {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
        {"policy_rollout_mapper": {"engine": "openai", "model": "m", "openai": {"base_url": "http://127.0.0.1:9/v1"}}},
    ]  # fmt: skip
    with pytest.raises(RejuiceError) as raised:
        run(Recipe(steps, [f"a{suffix}", f"b{suffix}"], export_path="out.parquet"))
    assert str(raised.value).startswith(
        f"a{suffix}, b{suffix}: row 2 of a{suffix} and row 3 of b{suffix} have the same prompt"
    )
    assert "`exact_deduplicator: {column: question, within: all}`" in raised.value.right


def test_a_torn_file_is_refused_before_anything_is_sampled(folder):
    lines = [json.dumps({"question": f"{n**50} + 1?", "answer": "#### 2"}) for n in range(9000)]
    packed = gzip.compress("\n".join(lines).encode())
    (folder / "a.jsonl.gz").write_bytes(packed[:-20])
    steps = [
        {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
        {"policy_rollout_mapper": {"engine": "openai", "model": "m", "openai": {"base_url": "http://127.0.0.1:9/v1"}}},
    ]  # fmt: skip
    with pytest.raises(RejuiceError, match=r"^a\.jsonl\.gz is cut off after line 8,\d\d\d"):
        run(Recipe(steps, "a.jsonl.gz", export_path="out.parquet"))


def test_an_export_is_not_written_where_it_would_be_read(folder):
    clash = spec("in/**/*.jsonl", "other").clashes
    assert clash(folder / "in/out.jsonl")
    assert clash(folder / "other/deep/out.parquet")
    assert not clash(folder / "in/out.parquet")
    assert not spec("*.jsonl").clashes(folder / "out/x.parquet")
    assert spec("out/*/*.parquet").clashes(folder / "out/curated")
    assert spec("out/**").clashes(folder / "out/curated")
    assert spec("out/*").clashes(folder / "out/curated.jsonl")
    assert not spec("out/*").clashes(folder / "out/curated")
    assert not spec("out/*/*.jsonl").clashes(folder / "out/curated")
    assert not spec("out/*.parquet").clashes(folder / "out/deep/curated.parquet")
    assert not spec("out/*.parquet").clashes(folder / "out/_curated.parquet")


# Any cut of rows into files


@pytest.mark.slow
@QUICK
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(1, 9))
def test_rows_in_any_files_give_the_same_table_and_the_same_chunks(
    tmp_path_factory, data, sizes, chunk_rows
):
    tmp_path = tmp_path_factory.mktemp("in")
    ids = [f"p{group}" for group, size in enumerate(sizes) for _ in range(size)]
    table = pa.table({"prompt_id": ids, "n": list(range(len(ids)))})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=3)))
    suffixes = st.sampled_from([".jsonl", ".json", ".jsonl.gz", ".parquet", ".arrow"])
    paths = []
    for at, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(ids)], strict=True)):
        path = tmp_path / f"{at}{data.draw(suffixes)}"
        paths.append(write(path, table.slice(begin, end - begin)))
    dataset = Dataset(
        DatasetSpec(tuple(map(DatasetPart, paths))), workers=data.draw(st.integers(1, 2))
    )
    assert dataset.table().equals(table)
    found = dataset.chunks(tmp_path / "cache", chunk_rows=chunk_rows, group_by=("prompt_id",))
    expected = Dataset(write(tmp_path / "all.jsonl", table)).chunks(
        tmp_path / "cache", chunk_rows=chunk_rows, group_by=("prompt_id",)
    )
    assert found.rows == expected.rows
    assert pa.concat_tables([found.chunk(at) for at in range(len(found.rows))]).equals(table)


# Columns


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".arrow", ".jsonl.gz"])
def test_columns_are_selected_and_renamed_in_every_format(tmp_path, suffix):
    path = write(
        tmp_path / f"a{suffix}", pa.table({"a": [1, 1, 2], "b": list("xyz"), "c": [0] * 3})
    )
    selected = replace(DatasetSpec.of(path), selection=Selection((("b", "text"), ("a", "id"))))
    dataset = Dataset(selected)
    rows = [{"text": "x", "id": 1}, {"text": "y", "id": 1}, {"text": "z", "id": 2}]
    assert dataset.first_rows.to_pylist() == dataset.table().to_pylist() == rows
    assert dataset.schema.names == ["text", "id"]
    found = dataset.chunks(tmp_path / "cache", chunk_rows=1, group_by=("id",))
    assert found.rows == (2, 1)
    assert found.chunk(1).to_pylist() == rows[2:]
    wrong = replace(selected, selection=Selection((("bb", "bb"),)))
    for ask in (lambda d: d.first_rows, lambda d: d.schema, Dataset.table):
        with pytest.raises(DataError) as raised:
            ask(Dataset(wrong))
        assert str(raised.value) == (
            f"{path} has no column 'bb', which `columns` selects; did you mean 'b'?"
        )


# Mixtures, as Data-Juicer reads them


def test_rows_are_drawn_as_data_juicer_draws_them():
    builder = pytest.importorskip("data_juicer.core.data.dataset_builder")
    from data_juicer.utils.sample import random_sample
    from datasets import Dataset as HfDataset

    for weights, most in [([1.0, 1.0], 7), ([0.3, 0.3, 0.4], 10), ([5, 0, 1], 3), ([0.1], 4)]:
        assert rows_by_weight(weights, most) == builder.get_sample_numbers(weights, most)
    for text in ("a.jsonl", "0.5 a.jsonl 0.5 b.jsonl", "'a b.jsonl' 2 c"):
        assert parse_mixture(text) == builder.parse_cli_datapath(text)[0]
    table = pa.table({"n": list(range(20))})
    for rows in (1, 7, 19, 20, 21, 45):
        expected = random_sample(HfDataset(table), 1.0, rows)["n"]
        found = sampled(lambda: iter([table.slice(0, 9), table.slice(9)]), rows)
        assert found["n"].to_pylist() == list(expected), rows


# In an object store


@pytest.fixture
def remote(store):
    return to_path(store)


@pytest.mark.slow
def test_every_kind_of_path_in_a_store(remote, tmp_path):
    table = pa.table({"prompt_id": ["p", "p", "q"], "n": [0, 1, 2]})
    for name in ("a.jsonl", "b.parquet", "deep/c.jsonl.gz", "d.arrow"):
        local = write(tmp_path / name.split("/")[-1], table)
        write_file(remote / name, local.read_bytes())
    for pattern, files in [
        ("*.jsonl", ["a.jsonl"]),
        ("**/*.jsonl*", ["a.jsonl", "deep/c.jsonl.gz"]),
        ("*.parquet", ["b.parquet"]),
        ("", ["a.jsonl", "b.parquet", "d.arrow"]),
    ]:
        dataset = Dataset(spec(f"{remote}/{pattern}"))
        assert [str(file) for file in dataset.files] == [f"{remote}/{name}" for name in files]
        assert dataset.table().equals(pa.concat_tables([table] * len(files)))
        found = dataset.chunks(tmp_path / "cache", chunk_rows=2, group_by=("prompt_id",))
        assert sum(found.rows) == 3 * len(files)
        assert (found.in_files is not None) == (pattern == "*.parquet")
        assert found.chunk(0).to_pylist() == table.to_pylist()[:2]


@pytest.mark.slow
def test_a_pattern_in_a_store_leaves_out_what_a_folder_leaves_out(remote):
    check_hidden(remote)


@pytest.mark.slow
def test_a_pattern_that_matches_nothing_in_a_store(remote):
    assert message(f"{remote}/*.jsonl") == (
        f"no file matches {remote}/*.jsonl; correct the pattern in dataset_path"
    )


def test_a_bucket_has_no_wildcards(s3):
    dataset = to_path("s3://roll*/rows.parquet")
    assert not DatasetSpec.of(dataset).clashes(to_path("s3://rollouts/out.parquet"))
    parts = DatasetSpec.of(to_path("s3://rollouts/out/*/*.parquet"))
    assert parts.clashes(to_path("s3://rollouts/out/curated"))
    assert not parts.clashes(to_path("s3://rollouts/other/curated"))
    with pytest.raises(DataError) as error:
        dataset_files(dataset)
    right = "there is no bucket 'roll*'; create it, or give another path"
    assert str(error.value) == f"{dataset} cannot be read: {right}"
