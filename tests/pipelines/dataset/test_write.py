"""An export holds what it was given, and appears whole or not at all."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import RecipeError
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.write import check_export_path, writer

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SCHEMA = pa.schema([("s", pa.string()), ("i", pa.int64()), ("f", pa.float64()), ("p", MESSAGES)])
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "s": TEXT,
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "p": st.none() | st.lists(st.fixed_dictionaries({"role": TEXT, "content": TEXT}), max_size=2),
        }
    ),
    max_size=4,
)  # fmt: skip


def write(path, *tables):
    with writer(path, tables[0].schema) as append:
        for table in tables:
            append(table)


def table(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ROWS, ROWS)
def test_every_format_holds_what_it_was_given(tmp_path, one, other):
    for suffix in (".parquet", ".arrow", ".jsonl"):
        write(tmp_path / f"x{suffix}", table(one), table(other))
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == one + other
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all().to_pylist() == one + other
    lines = (tmp_path / "x.jsonl").read_text("utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == one + other
    assert lines[-1] == ""


def test_jsonl_is_readable_text_and_comes_back(tmp_path):
    rows = [{"s": 'é "\n\u2028', "i": 2**53 + 1, "f": 0.1, "p": [{"role": None, "content": ""}]}]
    write(tmp_path / "x.jsonl", table(rows))
    assert "é" in (tmp_path / "x.jsonl").read_text("utf-8")
    back = Dataset(tmp_path / "x.jsonl").chunks(tmp_path / "cache", chunk_rows=9, group_by=())
    assert back.chunk(0).to_pylist() == [{**rows[0], "p": [{"role": None, "content": ""}]}]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_a_failure_leaves_what_was_there(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_text("precious")
    with pytest.raises(ZeroDivisionError), writer(path, SCHEMA) as append:
        append(table([]))
        raise ZeroDivisionError
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(path.name, "precious")]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_an_export_without_rows(tmp_path, suffix):
    path = tmp_path / "new" / f"x{suffix}"
    write(path, table([]))
    if suffix == ".parquet":
        assert pq.read_schema(path) == SCHEMA
    elif suffix == ".arrow":
        assert pa.ipc.open_file(path).read_all().schema == SCHEMA
    else:
        assert path.read_bytes() == b""


def test_the_same_rows_are_the_same_bytes(tmp_path):
    rows = table([{"s": "a", "i": 1, "f": 0.5, "p": []}])
    for suffix in (".parquet", ".arrow", ".jsonl"):
        for stem in "xy":
            write(tmp_path / f"{stem}{suffix}", rows)
        assert (tmp_path / f"x{suffix}").read_bytes() == (tmp_path / f"y{suffix}").read_bytes()


def test_an_export_never_goes_over_the_dataset(tmp_path):
    folder = tmp_path / "data"
    for dataset, export in [
        (folder / "a.jsonl", folder / "a.jsonl"),
        (folder / "a.jsonl", folder / ".." / "data" / "a.jsonl"),
        (folder, folder / "curated.parquet"),
    ]:
        with pytest.raises(RecipeError, match="would write over the dataset, or into its folder"):
            check_export_path(tmp_path / "r.yaml", export, dataset)
    check_export_path(tmp_path / "r.yaml", folder / "b.jsonl", folder / "a.jsonl")


@pytest.mark.parametrize("name", ["x.csv", "x.1", "x.parquet.gz"])
def test_formats_that_are_not_known(tmp_path, name):
    with pytest.raises(RecipeError, match=r"has no known format; end it in \.parquet, \.arrow"):
        check_export_path(tmp_path / "r.yaml", tmp_path / name, tmp_path / "data.jsonl")
