"""Every row of every kind of file arrives once, in order, in chunks of whole groups."""

import gzip
import json
from itertools import groupby, pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import dataset_files
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.pipelines.dataset import json_lines, parquet
from rejuice.pipelines.dataset import read as read_module
from rejuice.pipelines.dataset.files import DataFile
from rejuice.pipelines.dataset.read import Dataset, fingerprint
from rejuice.pipelines.dataset.schemas import conform
from rejuice.pipelines.dataset.spec import DatasetPart, DatasetSpec

QUICK = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def lines(*rows):
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def write(path, content):
    """A file of a table (by suffix; .arrow as a file, .stream.arrow as a stream), text or bytes."""
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8", newline="")
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif path.suffix == ".parquet":
        pq.write_table(content, path, row_group_size=3)
    elif path.suffix == ".jsonl":
        write(path, lines(*content.to_pylist()))
    else:
        new = pa.ipc.new_stream if path.name.endswith(".stream.arrow") else pa.ipc.new_file
        with new(path, content.schema) as writer:
            writer.write_table(content, max_chunksize=2)
    return path


@pytest.fixture
def dataset(tmp_path):
    """A factory of folders with the given files; gives the folder."""

    def make(**files):
        folder = tmp_path / "in"
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            stem, suffix = name.split("_", 1)
            write(folder / f"{stem}.{suffix.replace('_', '.')}", content)
        return folder

    return make


def read(path, tmp_path, chunk_rows=65_536, group_by=()):
    """All chunks of a dataset as lists of rows."""
    found = Dataset(path).chunks(tmp_path / "cache", chunk_rows=chunk_rows, group_by=group_by)
    chunks = [found.chunk(at) for at in range(len(found.rows))]
    assert [chunk.num_rows for chunk in chunks] == list(found.rows)
    assert all(chunk.schema == found.schema for chunk in chunks)
    return [chunk.to_pylist() for chunk in chunks]


def rows(path, tmp_path, **options):
    return [row for chunk in read(path, tmp_path, **options) for row in chunk]


def message(path, tmp_path):
    with pytest.raises(DataError) as caught:
        read(path, tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    return line.replace(f"{tmp_path}/", "")


# Chunks


@QUICK
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.integers(1, 20),
    st.sampled_from(["jsonl", "parquet", "arrow", "stream_arrow"]),
    st.integers(8, 200),
)
def test_chunks_end_only_where_groups_end(tmp_path_factory, sizes, chunk_rows, kind, block):
    tmp_path = tmp_path_factory.mktemp("source")
    table = pa.Table.from_pylist([{"prompt_id": f"p{g}", "k": k} for g, n in enumerate(sizes) for k in range(n)])  # fmt: skip
    path = write(tmp_path / f"data.{kind.replace('_', '.')}", table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_module, "BLOCK", block)
        patch.setitem(read_module.read_batches.__kwdefaults__, "rows", 3)
        chunks = read(path, tmp_path, chunk_rows, ("prompt_id",))
    assert [row for chunk in chunks for row in chunk] == table.to_pylist()
    first_ids = [
        first for chunk in chunks for first, _ in groupby(row["prompt_id"] for row in chunk)
    ]
    assert first_ids == [f"p{g}" for g in range(len(sizes))], "no group is in two chunks"
    for chunk, after in pairwise(chunks):
        assert len(chunk) <= chunk_rows or len({row["prompt_id"] for row in chunk}) == 1
        group = sum(row["prompt_id"] == after[0]["prompt_id"] for row in after)
        assert len(chunk) + group > chunk_rows, "a chunk takes all the groups that fit"


def test_several_grouping_columns_a_change_in_any_starts_a_group(dataset, tmp_path):
    folder = dataset(a_jsonl=lines(*({"q": q, "r": r} for q, r in ["xx", "xx", "xy", "yy"])))
    chunks = read(folder, tmp_path, 1, ("q", "r", "absent"))
    assert [len(chunk) for chunk in chunks] == [2, 1, 1]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_each_list_of_grouping_columns_is_of_the_rows_that_have_them(tmp_path, kind):
    """`x` differs in each row, and is of no list."""
    columns = {
        "q": ["a", "a", "b", "b", None, None, None, None, None],
        "i": ["k", "k", "k", None, None, None, None, None, None],
        "p": [None, None, None, None, "a", "a", "b", None, None],
        "x": list(range(9)),
    }
    path = write(tmp_path / f"data.{kind}", pa.table(columns))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(read_module.read_batches.__kwdefaults__, "rows", 2)
        chunks = read(path, tmp_path, 1, (("q", "i"), ("p",), ("absent",)))
    assert [len(chunk) for chunk in chunks] == [2, 1, 1, 2, 1, 1, 1]


def test_groups_of_messages_and_nulls(dataset, tmp_path):
    prompts = [None, None, [{"role": "user"}], [{"role": "user"}], []]
    folder = dataset(a_jsonl=lines(*({"p": p} for p in prompts)))
    assert [len(chunk) for chunk in read(folder, tmp_path, 1, ("p",))] == [2, 2, 1]


def test_a_group_goes_on_in_the_next_file(dataset, tmp_path):
    folder = dataset(a_jsonl=lines({"p": 1}, {"p": 2}), b_jsonl=lines({"p": 2}, {"p": 3}))
    assert [len(chunk) for chunk in read(folder, tmp_path, 1, ("p",))] == [1, 2, 1]


@pytest.mark.parametrize("kind", ["jsonl", "arrow"])
def test_many_small_files_are_looked_at_once(dataset, tmp_path, monkeypatch, kind):
    starts, looked_at = parquet._starts, []
    monkeypatch.setattr(parquet, "_starts", lambda table, by: looked_at.append(table.num_rows) or starts(table, by))  # fmt: skip
    for files in (20, 200):
        looked_at.clear()
        parts = {f"{at:03d}_{kind}": pa.table({"p": [at, at]}) for at in range(files)}
        chunks = read(dataset(**parts), tmp_path / str(files), 100, ("p",))
        assert sum(map(len, chunks)) == 2 * files
        assert sum(looked_at) <= 4 * files, "each row at most twice"


# Formats


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "arrow", "stream_arrow"])
def test_every_format_gives_the_same_rows(dataset, tmp_path, kind):
    expected = [
        {"i": 2**53 + 1, "f": 0.1, "s": "日本 \u2028 🙂", "l": [], "d": {"x": None}},
        {"i": -(2**63), "f": None, "s": "", "l": [1, None], "d": {"x": "y"}},
        {"i": None, "f": -0.0, "s": None, "l": None, "d": None},
    ]
    content = lines(*expected) if kind.startswith("json") else pa.Table.from_pylist(expected)
    assert rows(dataset(**{f"a_{kind}": content}), tmp_path) == expected


def test_a_folder_is_read_by_name_whatever_the_formats(dataset, tmp_path):
    folder = dataset(
        b_jsonl=lines({"a": 2}), c_parquet=pa.table({"a": [3]}), a_arrow=pa.table({"a": [1]})
    )
    (folder / "README.md").write_text("not data")
    assert rows(folder, tmp_path) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert [file.name for file in dataset_files(folder)] == ["a.arrow", "b.jsonl", "c.parquet"]


def test_a_folder_without_data(tmp_path):
    (tmp_path / "in").mkdir()
    assert message(tmp_path / "in", tmp_path) == (
        "in holds no dataset file; one of .jsonl, .json, .ndjson, .parquet, .arrow, .jsonl.gz, .json.gz, .ndjson.gz, .jsonl.zst, .json.zst, .ndjson.zst is needed; unpack or convert it"
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"a": 2}\n',
        '{"a": 1}\n{"a": 2}',
        '{"a": 1}\r\n\r\n{"a": 2}\r\n',
        '\n\n  \n{"a": 1}\n\n\n  {"a": 2}  \n\t\n',
        '\ufeff{"a": 1}\n{"a": 2}\n',
        '{\n "a": 1\n}\n{"a":\n2}\n',
    ],
)
def test_lines_however_they_are_set(dataset, tmp_path, text):
    assert rows(dataset(a_jsonl=text), tmp_path) == [{"a": 1}, {"a": 2}]


def test_a_huge_line_and_lines_across_blocks(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(read_module, "BLOCK", 10)
    expected = [{"a": "x" * n} for n in (3, 100_000, 0, 17)]
    assert rows(dataset(a_jsonl=lines(*expected)), tmp_path) == expected


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_a_line_that_would_fill_the_memory(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(json_lines, "_LONGEST_LINE", 1 << 20)
    file = tmp_path / f"a.{suffix}"
    for size, block in [(3 << 19, 1 << 16), (3 << 19, 64), (1 << 22, 1 << 16)]:
        text = '\n{"a": 1}\n' + '{"a": "' + size * "x" + '"}\n{"a": 2}\n'
        packed = text.encode() if suffix == "jsonl" else gzip.compress(text.encode())
        file.write_bytes(packed)
        with pytest.raises(DataError) as error:
            list(json_lines.batches(DataFile.of(file), block))
        assert str(error.value) == (
            f"{file}, line 3: it has more than 1 MiB; make several rows of it, or convert the file "
            "to Parquet"
        )
    fits = '{"a": "' + ((1 << 20) - 20) * "x" + '"}\n{"a": "2"}\n'
    file.write_bytes(fits.encode() if suffix == "jsonl" else gzip.compress(fits.encode()))
    found = [table.num_rows for table in json_lines.batches(DataFile.of(file), 64)]
    assert sum(found) == 2


# Types


def two_ways(dataset, tmp_path, *parts):
    """Rows of files of one part each, once in one chunk and once in a chunk per row."""
    folder = dataset(**{f"{chr(97 + at)}_jsonl": lines(*part) for at, part in enumerate(parts)})
    one = rows(folder, tmp_path)
    assert rows(folder, tmp_path, chunk_rows=1) == one
    return one


def test_null_whole_and_broken_numbers_across_files(dataset, tmp_path):
    parts = [{"a": None}], [{"a": 3}], [{"a": 0.5}], [{"a": 2**60 + 1}]
    found = [row["a"] for row in two_ways(dataset, tmp_path, *parts)]
    assert found == [None, "3", "0.5", "1152921504606846977"], "digits, where a number loses some"


def test_missing_fields_and_fields_that_come_later(dataset, tmp_path):
    assert two_ways(dataset, tmp_path, [{"a": 1}, {}], [{"b": "x"}], [{"b": "y", "a": 2}]) == [
        {"a": 1, "b": None},
        {"a": None, "b": None},
        {"a": None, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_structs_gain_fields(dataset, tmp_path):
    found = two_ways(
        dataset,
        tmp_path,
        [{"s": {"a": 1}, "l": [{"a": 1}]}],
        [{"s": {"b": "x"}, "l": []}],
        [{"s": None, "l": [{"b": ["y"], "a": 0.5}]}],
        [{"s": {}, "l": None}],
    )
    assert found == [
        {"s": {"a": 1, "b": None}, "l": [{"a": 1.0, "b": None}]},
        {"s": {"a": None, "b": "x"}, "l": []},
        {"s": None, "l": [{"a": 0.5, "b": ["y"]}]},
        {"s": {"a": None, "b": None}, "l": None},
    ]


def test_dates_are_text_wherever_they_stand(dataset, tmp_path):
    day = "2020-01-01"
    parts = [{"d": day, "l": [day], "s": {"x": [{"y": day}]}}], [{"d": "?", "l": ["?"], "s": None}]
    assert two_ways(dataset, tmp_path, *parts) == [*parts[0], *parts[1]]


def test_numbers_that_json_does_not_have(dataset, tmp_path):
    found = rows(dataset(a_jsonl='{"a": NaN}\n{"a": -Infinity}\n'), tmp_path)
    assert str(found) == "[{'a': nan}, {'a': -inf}]"


def test_storage_encodings_become_plain_text(dataset, tmp_path):
    def words(*values):
        return pa.table({"a": pa.array(values).dictionary_encode()})

    views = pa.table({"a": pa.array(["v"]).cast(pa.string_view())})
    folder = dataset(a_parquet=words("x", "y"), b_arrow=words("z", "x"), c_jsonl=lines({"a": "k"}), d_arrow=views)  # fmt: skip
    assert [row["a"] for row in rows(folder, tmp_path)] == ["x", "y", "z", "x", "k", "v"]
    assert Dataset(folder).chunks(tmp_path / "cache", chunk_rows=9, group_by=()).schema.field("a").type == pa.string()  # fmt: skip


def test_large_strings_of_other_tools(dataset, tmp_path):
    large = pa.table({"a": pa.array(["x"], pa.large_string())})
    assert rows(dataset(a_parquet=large, b_jsonl=lines({"a": "y"})), tmp_path) == [{"a": "x"}, {"a": "y"}]  # fmt: skip


def test_conform_fills_orders_and_casts():
    schema = pa.schema([("b", pa.string()), ("a", pa.float64())])
    assert conform(pa.table({"a": [1]}), schema).to_pylist() == [{"b": None, "a": 1.0}]
    assert conform(pa.table({"a": pa.array([], pa.int64())}), schema).schema == schema


# Errors are reported with file and line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b'{"a": 1}\n{"a": "\xff"}\n', "in/a.jsonl, line 2: not UTF-8: byte 0xff at 7; write the file as UTF-8"),
        (b'{"a": 1, "a": 2}\n', "in/a.jsonl, line 1: not JSON (an object has the key 'a' twice); fix or remove the line"),
        (b'\n\n{"a": {"b": 1}}\n\n{"a": {"b": "x"}}\n', "in/a.jsonl, line 5: column 'a.b' is string, but number in earlier rows; give the column one type, or name only others in `columns`"),
        (b'{"a": [[-3.2, false]]}\n', "in/a.jsonl, line 1: column 'a.[].[]' is boolean, but number in earlier rows; log-likelihoods of choices are no responses: name only others in `columns`"),
        (b'{"a": ["x"]}\n{"a": "[\\"x\\"]"}\n', "in/a.jsonl, line 2: column 'a' is string, but array in earlier rows; give the column one type, or name only others in `columns`; lists that are all JSON texts are read by lists_as_text: true"),
        (b'{"a": 1}\n{"a": 1e400}\n', "in/a.jsonl, line 2: not JSON (1e400 is beyond the largest number, 1.8e308); fix or remove the line"),
        (b'{"a": 1}\n{"a": true}\n', "in/a.jsonl, line 2: column 'a' is boolean, but number in earlier rows; give the column one type, or name only others in `columns`"),
        (b'[1]\n{"a": 1}\n', "in/a.jsonl, line 1: list instead of an object; give one object per line"),
        (b'{"a": 1}\n{"a": 2, "b": "cu', "in/a.jsonl, line 2: the file is cut off here; copy it again"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_taken(dataset, tmp_path, text, line):
    assert message(dataset(a_jsonl=text), tmp_path) == line


def test_the_line_is_right_in_a_later_block(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(read_module, "BLOCK", 30)
    text = '{"a": 1}\n\n' * 20 + '{"a": \n'
    assert message(dataset(a_jsonl=text), tmp_path).startswith("in/a.jsonl, line 41: not JSON")


@pytest.mark.parametrize(("kind", "title"), [("parquet", "Parquet"), ("arrow", "Arrow")])
def test_files_that_are_broken(dataset, tmp_path, kind, title):
    folder = dataset(**{f"a_{kind}": b"junk"})
    assert message(folder, tmp_path).startswith(f"in/a.{kind} is not {title}: ")
    with pytest.raises(DataError, match=f"is not {title}"):
        _ = Dataset(folder).first_rows.schema


def test_damaged_offsets_of_an_arrow_file_do_not_end_the_process(dataset, tmp_path):
    # A list in a list: Arrow aborts where it cuts the inner one by offsets that are outside.
    table = pa.table({"a": [[[1, 2], [3]], [[4]], [[]]] * 4})
    folder = dataset(a_arrow=table)
    content = (folder / "a.arrow").read_bytes()
    _, offsets, *_ = pa.ipc.open_file(content).get_batch(0)["a"].buffers()
    begin = content.index(offsets.to_pybytes())
    for at in range(begin, begin + offsets.size, 4):
        (folder / "a.arrow").write_bytes(
            content[:at] + bytes([content[at] ^ 1 << 6]) + content[at + 1 :]
        )
        assert message(folder, tmp_path).startswith("in/a.arrow is not Arrow: ")


@pytest.mark.parametrize("kind", ["arrow", "stream.arrow", "parquet"])
@QUICK
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@example(place=0.16015625, bit=7)  # Of Parquet, in a text.
def test_a_file_with_a_flipped_bit_is_read_or_named(dataset, tmp_path, kind, place, bit):
    words = pa.array(["p", "q", "r"]).dictionary_encode()
    table = pa.table({"a": [[[1, 2], [3]], [[4]], [[]]], "s": words})
    folder = dataset(**{f"a_{kind.replace('.', '_')}": table})
    content = bytearray((folder / f"a.{kind}").read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    (folder / f"a.{kind}").write_bytes(content)
    found = ""
    try:
        rows(folder, tmp_path)
    except DataError as error:
        found = str(error)
    assert not found or f"in/a.{kind}" in found


def test_a_parquet_file_cut_short(dataset, tmp_path):
    folder = dataset(a_parquet=pa.table({"a": list(range(1000))}))
    whole = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(whole[: len(whole) // 2])
    assert message(folder, tmp_path).startswith("in/a.parquet is not Parquet: ")


def test_columns_of_the_same_name(dataset, tmp_path):
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    line = "in/a.parquet has two columns 'a'; rename one"
    assert message(dataset(a_parquet=twice), tmp_path) == line


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ([1], ["x"], "column 'a' is list<item: string>, but list<item: int64> in earlier rows"),
        ({"b": 1}, {"b": True}, "column 'a.b' is bool, but int64 in earlier rows"),
        (1, False, "column 'a' is bool, but int64 in earlier rows"),
    ],
)  # fmt: skip
def test_types_that_do_not_go_together(dataset, tmp_path, one, other, found):
    folder = dataset(a_jsonl=lines({"a": one}), b_jsonl=lines({"a": other}))
    assert (
        message(folder, tmp_path)
        == f"in/b.jsonl: {found}; give the column one type, or name only others in `columns`"
    )


def test_no_rows(dataset, tmp_path):
    folder = dataset(a_jsonl="", b_parquet=pa.table({"a": pa.array([], pa.int64())}))
    line = "in/a.jsonl, in/b.parquet is empty; a dataset needs at least one row"
    assert message(folder, tmp_path) == line


def test_an_empty_file_among_others(dataset, tmp_path):
    folder = dataset(a_jsonl="\n", b_jsonl=lines({"a": 1}))
    assert rows(folder, tmp_path) == [{"a": 1}]
    assert Dataset(folder).first_rows.schema == pa.schema([("a", pa.int64())])


def test_each_question_is_answered_from_the_files_once(dataset):
    folder = dataset(a_jsonl=lines({"a": 1}), b_jsonl=lines({"b": 2}))
    opened = Dataset(folder)
    assert opened.first_rows.schema.names == opened.schema.names == ["a", "b"]
    mark = opened.fingerprint
    assert opened.table().to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    (folder / "a.jsonl").write_text(lines({"c": 1}))
    (folder / "c.jsonl").write_text(lines({"d": 1}))
    assert (opened.first_rows.schema.names, opened.schema.names) == (["a", "b"], ["a", "b"])
    assert (opened.fingerprint, len(opened.files)) == (mark, 2)
    assert Dataset(folder).fingerprint != mark


def test_nothing_is_read_before_it_is_requested(tmp_path):
    opened = Dataset(tmp_path / "no.jsonl")
    with pytest.raises(DataError, match=r"no.jsonl does not exist"):
        opened.chunks(tmp_path / "cache", chunk_rows=1, group_by=())


# The cache


def prepared(path, tmp_path, chunk_rows=2, group_by=()):
    return Dataset(path).chunks(tmp_path / "cache", chunk_rows=chunk_rows, group_by=group_by).folder


def test_the_key_is_the_content_and_the_cutting(dataset, tmp_path):
    path = dataset(a_jsonl=lines({"a": 1})) / "a.jsonl"
    first = prepared(path, tmp_path)
    renamed = path.rename(path.with_name("z.jsonl"))
    renamed.touch()
    assert prepared(renamed, tmp_path) == first
    assert prepared(renamed.parent, tmp_path) == first
    assert prepared(renamed, tmp_path, chunk_rows=3) != first
    assert prepared(renamed, tmp_path, group_by=("a",)) != first
    renamed.write_text(lines({"a": 2}))
    assert prepared(renamed, tmp_path) != first


def test_the_fingerprint_sees_the_format_and_the_order(tmp_path):
    paths = [DataFile.of(write(tmp_path / name, b"x")) for name in ("a.jsonl", "b.parquet")]
    assert fingerprint(paths) != fingerprint(paths[::-1])
    assert fingerprint(paths[:1]) != fingerprint(paths[1:])


def test_an_unchanged_file_is_read_once(dataset, tmp_path, monkeypatch):
    folder = dataset(a_jsonl=lines({"a": 1}))
    prepared(folder, tmp_path)
    monkeypatch.setattr(Dataset, "_cut", lambda *_: pytest.fail("read again"))
    prepared(folder, tmp_path)


def test_reading_that_was_stopped_is_done_again(dataset, tmp_path):
    folder = dataset(a_jsonl=lines({"a": 1}, {"a": 2}, {"a": 3}))
    at = prepared(folder, tmp_path, chunk_rows=1)
    (at / "schema.arrow").unlink()
    (at / "000001.arrow").write_bytes(b"half")
    assert rows(folder, tmp_path, chunk_rows=1) == [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_chunks_of_long_rows_have_fewer_of_them(dataset, tmp_path, monkeypatch, kind):
    table = pa.table({"a": [f"{n:0100d}" for n in range(60)], "group": [n // 3 for n in range(60)]})
    folder = dataset(**{f"a_{kind}": table})
    monkeypatch.setattr(parquet, "CHUNK_BYTES", 1_000)
    chunks = read(folder, tmp_path, group_by=("group",))
    assert max(map(len, chunks)) == 6
    assert [row for chunk in chunks for row in chunk] == table.to_pylist()


def test_suffixes_say_which_files_of_a_folder_are_read(tmp_path):
    for name in ("a.jsonl", "b.json", "c.jsonl"):
        (tmp_path / name).write_text(json.dumps({"n": name}) + "\n")

    def of(path, suffix):
        return DatasetSpec((DatasetPart(path),), suffixes=(suffix,))

    assert [file.name for file in dataset_files(of(tmp_path, ".jsonl"))] == ["a.jsonl", "c.jsonl"]
    assert Dataset(of(tmp_path, ".json")).table().to_pylist() == [{"n": "b.json"}]
    for path, found in [(tmp_path, "holds no"), (tmp_path / "a.jsonl", "is not a")]:
        with pytest.raises(DataError) as raised:
            dataset_files(of(path, ".parquet"))
        assert (
            str(raised.value)
            == f"{path} {found} dataset file; one of .parquet is needed; unpack or convert it"
        )
