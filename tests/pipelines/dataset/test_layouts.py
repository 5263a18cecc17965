"""Files as others write them: read as they were meant, or one line that says what to do."""

import csv
import gzip
import io
import json
import lzma
import re
import subprocess
import sys
import tarfile
import tracemalloc
from decimal import Decimal

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from rejuice.operators import DataError
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.schemas import plain_type
from rejuice.pipelines.dataset.spec import DatasetPart, DatasetSpec, Selection
from rejuice.pipelines.dataset.write import writer


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def message(path, **spec):
    with pytest.raises(DataError) as raised:
        Dataset(DatasetSpec((DatasetPart(path),), **spec)).table()
    return str(raised.value).replace(f"{path.parent}/", "")


def selected(path, *names, suffixes=()):
    pairs = tuple(name if isinstance(name, tuple) else (name, name) for name in names)
    return DatasetSpec((DatasetPart(path),), suffixes, Selection(pairs))


def command_of(text):
    """The command between backticks."""
    return re.search("`(.*)`", text)[1].replace("python ", f"{sys.executable} ", 1)


# What is not JSON lines


def test_a_json_array_says_how_to_write_lines(tmp_path):
    path = tmp_path / "data.json"
    rows = [{"a": 1, "b": "x\ny"}, {"a": 2, "b": None}]
    for text in (json.dumps(rows), json.dumps(rows, indent=1)):
        path.write_text(text)
        found = message(path)
        assert found.startswith(
            "data.json is a JSON array; write one object per line: `python -c '"
        )


@pytest.mark.slow
def test_the_commands_of_the_messages(tmp_path):
    rows = [{"a": 1, "b": "x\ny"}, {"a": 2, "b": "ü"}]
    array, utf16 = (tmp_path / name for name in ("data.json", "wide.jsonl"))
    array.write_text(json.dumps(rows, indent=1))
    utf16.write_bytes(lines(*rows).encode("utf-16"))
    for path, new in ((array, "data-lines.jsonl"), (utf16, "wide-utf8.jsonl")):
        found = converted(path, new)
        assert [row["a"] for row in found] == [1, 2]
        assert found[1]["b"] == "ü" or path is array


def converted(path, new):
    """The rows of the file that the command of a message writes, in the same folder."""
    subprocess.run(command_of(message(path)), shell=True, check=True, cwd=path.parent)
    return Dataset(path.parent / new).table().to_pylist()


TABLE = [{"q": "line 1\nline 2, ü", "answer": "007"}, {"q": "1e3", "answer": ""}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["it's a.csv", "a.tsv", "a.csv.gz", "A.TSV.GZ", "a.txt", "a.tar", "a.xlsx"]
)
def test_tables_of_other_kinds_are_converted_with_their_texts(tmp_path, name):
    path, expected = tmp_path / name, TABLE
    if re.search(r"[ct]sv", name.lower()):
        opened = gzip.open if name.lower().endswith(".gz") else open
        with opened(path, "wt", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, ["q", "answer"], delimiter=",\t"["tsv" in name.lower()])
            table.writeheader()
            table.writerows([*TABLE, {"q": "n/a", "answer": "None"}])
        expected = [*TABLE, {"q": "n/a", "answer": "None"}]
    elif path.suffix == ".txt":
        path.write_text("1 + 1?\n007\n", "utf-8")
        expected = [{"question": "1 + 1?"}, {"question": "007"}]
    elif path.suffix == ".tar":
        with tarfile.open(path, "w") as tar:
            for at, row in enumerate(TABLE):
                text = json.dumps(row).encode()
                member = tarfile.TarInfo(f"{at}.json")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))
        expected = [{"json": row} for row in TABLE]
    else:
        pytest.importorskip("openpyxl")
        pandas.DataFrame(TABLE).to_excel(path, index=False)
    found = converted(path, f"{name}.parquet")
    assert [{key: row[key] for key in expected[0]} for row in found] == expected


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["", "*.csv"])
def test_one_command_converts_all_tables_of_a_folder_or_pattern(tmp_path, pattern):
    for name in ("a", "it's b"):
        (tmp_path / f"{name}.csv").write_text(f"a\n{name}\n")
    (tmp_path / "README.txt").touch()
    path = tmp_path / pattern
    found = message(path)
    subprocess.run(command_of(found), shell=True, check=True, cwd=path.parent)
    assert found.endswith("`, and read the .parquet")
    rows = Dataset(tmp_path / (pattern and "*.csv.parquet")).table()
    assert rows["a"].to_pylist() == ["a", "it's b"]


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("a.zip", "one of .jsonl, .*; unpack or convert it"),
        ("a.tar.gz", "one of .jsonl, .*; unpack or convert it"),
        ("a.xls", "convert it, with pandas and xlrd: `python -c "),
        ("a.doc", "one of .jsonl, .json, .ndjson, .parquet, "),
    ],
)
def test_what_is_done_with_files_of_other_kinds(tmp_path, name, right):
    (tmp_path / name).touch()
    for path in (tmp_path / name, tmp_path):
        assert re.search(f"; {right}", message(path))


def test_ndjson_is_json_lines(tmp_path):
    (tmp_path / "a.ndjson").write_text('{"a": 1}\n')
    assert Dataset(tmp_path).table().to_pylist() == [{"a": 1}]


def test_other_encodings_and_formats_are_named(tmp_path):
    path = tmp_path / "data.jsonl"
    for codec in ("utf-16", "utf-16-le", "utf-16-be"):
        path.write_bytes(lines({"a": 1}).encode(codec))
        assert message(path).startswith(
            "data.jsonl is UTF-16; convert it to UTF-8: `iconv -f UTF-16"
        )
    path.write_bytes(b"\xef\xbb\xbf" + lines({"a": 1}).encode())
    assert Dataset(path).table().to_pylist() == [{"a": 1}]
    (tmp_path / "data.csv").write_text("a\n1\n")
    assert message(tmp_path / "data.csv").startswith("data.csv is not a dataset file; convert it,")


LINE = b'{"a": 1}\n'
MISNAMED = [
    ("a.jsonl", gzip.compress(LINE), "is gzip; rename it to a.jsonl.gz"),
    ("a.json", zstandard.compress(LINE), "is Zstandard; rename it to a.json.zst"),
    ("a.jsonl", lzma.compress(LINE), "is xz; unpack it"),
    ("a.jsonl", b"PAR1" + bytes(9), "is Parquet; rename it to a.parquet"),
    ("a.jsonl", b"ARROW1" + bytes(9), "is Arrow; rename it to a.arrow"),
    ("a.jsonl", b"PK\x03\x04" + bytes(9), "is zip; unpack it"),
    ("a.jsonl.gz", LINE, "is JSON lines; rename it to a.jsonl"),
    ("a.json.zst", b"\n" + LINE, "is JSON lines; rename it to a.json"),
    ("a.jsonl.gz", zstandard.compress(LINE), "is Zstandard; rename it to a.jsonl.zst"),
    ("a.parquet", LINE, "is JSON lines; rename it to a.jsonl"),
    ("a.parquet", gzip.compress(LINE), "is gzip; unpack it"),
    ("a.arrow", b"PAR1" + bytes(9), "is Parquet; rename it to a.parquet"),
]


@pytest.mark.parametrize(("name", "content", "expected"), MISNAMED, ids=range(len(MISNAMED)))
def test_a_file_of_another_format_than_its_name_says(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    assert message(tmp_path / name) == f"{name} {expected}"


def test_a_file_that_is_packed_twice(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.compress(LINE)))
    assert message(path) == "what is packed in a.jsonl.gz is gzip; unpack it"


# Columns that are left out, and objects with many keys


def test_columns_that_are_left_out_are_not_looked_at(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [
        {"q": f"{n}?", "meta": n if n % 2 else str(n), "odd": {f"{n}-{k}": k for k in range(20)}}
        for n in range(40)
    ]
    path.write_text(lines(*rows))
    assert "line 2: column 'meta' is number, but string in earlier rows" in message(path)
    spec = selected(path, ("q", "question"))
    dataset = Dataset(spec)
    assert dataset.table().to_pylist() == [{"question": row["q"]} for row in rows]
    assert dataset.schema.names == dataset.first_rows.schema.names == ["question"]
    with pytest.raises(DataError, match=r"has no column 'question', .* there are: meta, odd, q"):
        Dataset(selected(path, "question")).table()


@pytest.mark.parametrize("before", ["", "\u0120"], ids=["plain", "escaped"])
def test_dictionaries_by_token_are_refused_before_they_take_memory(tmp_path, before):
    path = tmp_path / "data.jsonl"
    few = [{"n": n, "odd": {f"key{n % 900}": n}} for n in range(2000)]
    path.write_text(lines(*few))
    assert Dataset(path).table().schema.field("odd").type.num_fields == 900
    many = [
        {
            "q": f"{n}?",
            "outputs": [{"logprobs": [{f"{before}{n * 50 + k}": {"rank": 1}} for k in range(50)]}],
        }
        for n in range(3000)
    ]
    path.write_text(lines(*many))
    tracemalloc.start()
    allocated = pa.total_allocated_bytes()
    found = message(path)
    assert found == (
        "data.jsonl, line 21: the objects in column 'outputs.logprobs' have more than 1,000 different "
        "keys; write lists of objects, or text, or leave the column out by `columns`"
    )
    assert pa.total_allocated_bytes() - allocated < 1 << 26
    assert tracemalloc.get_traced_memory()[1] < 1 << 28
    tracemalloc.stop()
    assert Dataset(selected(path, "q")).table().num_rows == 3000


def test_keys_are_counted_over_all_blocks(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(lines(*({"odd": {f"k{n}": 1}} for n in range(700))))
    other = tmp_path / "other.jsonl"
    other.write_text(lines(*({"odd": {f"l{n}": 1}} for n in range(700))))
    assert Dataset(path).table().num_rows == 700
    spec = DatasetSpec((DatasetPart(path), DatasetPart(other)))
    with pytest.raises(DataError, match=r"the objects in column 'odd' have more than 1,000"):
        Dataset(spec).chunks(tmp_path / "cache", chunk_rows=1000, group_by=())


# Paths


def test_paths_are_selected_and_names_with_dots_are_names(tmp_path):
    path = tmp_path / "data.jsonl"
    choices = [{"message": {"content": "a"}}, {"message": {"content": "b"}}]
    rows = [
        {"response": {"body": {"choices": choices}}, "a.b": 1, "q": "x"},
        {"response": {"body": {"error": "too long"}}, "a.b": 2, "q": "y"},
        {"response": None, "a.b": 3, "q": "z"},
    ]
    path.write_text(lines(*rows))
    parquet = tmp_path / "data.parquet"
    pq.write_table(Dataset(path).table(), parquet, row_group_size=1)
    names = (("response.body.choices.message.content", "texts"), "a.b", ("q", "question"))
    expected = [
        {"texts": ["a", "b"], "a.b": 1, "question": "x"},
        {"texts": None, "a.b": 2, "question": "y"},
        {"texts": None, "a.b": 3, "question": "z"},
    ]
    for file in (path, parquet):
        dataset = Dataset(selected(file, *names))
        assert dataset.table().to_pylist() == expected
        for group_by in ((), ("texts",), ("question",)):
            source = dataset.chunks(
                tmp_path / f"{file.name}-cache", chunk_rows=1, group_by=group_by
            )
            chunks = [source.chunk(at) for at in range(len(source.rows))]
            assert [row for chunk in chunks for row in chunk.to_pylist()] == expected
            assert len(chunks) == (2 if group_by == ("texts",) else 3)
    with pytest.raises(
        DataError, match=r"no column 'response.header', .* a field of column 'response'"
    ):
        Dataset(selected(path, "response.header")).table()


# Types of Arrow and Parquet


def test_types_of_other_writers_become_plain_ones(tmp_path):
    role = pa.array(["user", "user", "assistant"]).dictionary_encode()
    messages = pa.StructArray.from_arrays(
        [role, pa.array(["a", "b", "c"], pa.large_string())], ["role", "content"]
    )
    columns = {
        "chat": pa.LargeListArray.from_arrays(pa.array([0, 2, 3], pa.int64()), messages),
        "pair": pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2),
        "kind": pa.array(["x", "y"]).dictionary_encode(),
        "view": pa.array(["x", None], pa.string_view()),
        "json": pa.ListArray.from_arrays([0, 1, 1], pa.array(['{"role":"user"}']).cast(pa.json_())),
        "price": pa.array([Decimal("1.5"), None], pa.decimal128(3, 1)),
    }
    table = pa.table(columns)
    expected = {
        "chat": [[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], [{"role": "assistant", "content": "c"}]],
        "pair": [[1, 2], [3, 4]],
        "kind": ["x", "y"],
        "view": ["x", None],
        "json": [['{"role":"user"}'], []],
        "price": [Decimal("1.5"), None],
    }  # fmt: skip
    arrow, parquet = tmp_path / "a.arrow", tmp_path / "a.parquet"
    with pa.OSFile(str(arrow), "wb") as sink, pa.ipc.new_file(sink, table.schema) as stream:
        stream.write_table(table)
    pq.write_table(table.drop_columns(["view"]), parquet)
    for path, names in ((arrow, list(expected)), (parquet, [n for n in expected if n != "view"])):
        dataset = Dataset(path)
        found = dataset.table()
        assert {name: found[name].to_pylist() for name in names} == {n: expected[n] for n in names}
        assert dataset.schema.types == [plain_type(table.schema.field(name).type) for name in names]
        some = Dataset(selected(path, "chat.content", "pair")).table()
        assert some.to_pylist()[0] == {"chat.content": ["a", "b"], "pair": [1, 2]}


def test_files_whose_nested_numbers_differ(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"m": [{"n": 1, "s": [2]}]}), folder / "a.parquet")
    pq.write_table(pa.table({"m": [{"n": 0.5, "s": [0.25]}]}), folder / "b.parquet")
    source = Dataset(folder).chunks(tmp_path / "cache", chunk_rows=9, group_by=())
    assert source.chunk(0).to_pylist() == [{"m": {"n": 1.0, "s": [2.0]}}, {"m": {"n": 0.5, "s": [0.25]}}]  # fmt: skip
    pq.write_table(pa.table({"m": [{"n": 2**60 + 1, "s": [2]}]}), folder / "a.parquet")
    with pytest.raises(DataError, match=r"column 'm' is struct<n: int64, .*, but struct<n: double"):
        Dataset(folder).table()
    pq.write_table(pa.table({"m": [{"n": "x", "s": [2]}]}), folder / "a.parquet")
    assert message(folder) == (
        "in/b.parquet: column 'm.n' is double, but string in earlier rows; give the column one type, or name only others in `columns`"
    )


def test_empty_objects_and_bytes_are_exported(tmp_path):
    table = pa.table(
        {
            "none": pa.array([{}, None], pa.struct([])),
            "list": pa.array([[{}], []], pa.list_(pa.struct([]))),
            "image": pa.array([{"bytes": b"\xff\x00"}, None]),
        }
    )
    for suffix in (".parquet", ".jsonl", ".arrow"):
        path = tmp_path / f"out{suffix}"
        with writer(path, table.schema) as write:
            write(table)
    parquet = pq.read_table(tmp_path / "out.parquet")
    assert parquet["none"].to_pylist() == [None, None]
    assert parquet["list"].to_pylist() == [[None], []]
    row = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert row == {"none": {}, "list": [{}], "image": {"bytes": "/wA="}}


# Folders of Hugging Face's datasets


def test_folders_of_save_to_disk(tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for at, name in enumerate(names):
        table = pa.table({"q": [f"{at}"]})
        with (
            pa.OSFile(str(folder / name), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as stream,
        ):
            stream.write_table(table)
    (folder / "dataset_info.json").write_text('{"features": {}}')
    (folder / "cache-1234.arrow").write_bytes(b"of a map")
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": n} for n in names]})
    )
    assert Dataset(folder).table().to_pylist() == [{"q": "0"}, {"q": "1"}]
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["saved"]}')
    name = tmp_path.name
    assert message(tmp_path) == (
        f"{name} has the splits saved; say `split: saved` in the recipe, or name its files, such as {name}/saved"
    )
    assert "has no split 'test'; there are: saved" in message(tmp_path, split="test")
    of_split = DatasetSpec((DatasetPart(tmp_path),), split="saved")
    assert Dataset(of_split).table().to_pylist() == [{"q": "0"}, {"q": "1"}]
    assert Dataset(DatasetSpec((DatasetPart(folder),), split="train")).table().num_rows == 2
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "_split": "test"}))
    assert "has no split 'train'; there are: test" in message(folder, split="train")
    (folder / "state.json").write_text("{")
    assert message(folder) == "saved/state.json is damaged; save the dataset again"
