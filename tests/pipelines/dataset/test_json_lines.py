"""JSON lines in parallel and compressed: the rows and the errors are those of plain reading."""

import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.operators.json_text import is_very_deep
from rejuice.pipelines.dataset import json_lines
from rejuice.pipelines.dataset.files import DataFile
from rejuice.pipelines.dataset.read import Dataset

QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PACKED = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
VALUES = st.one_of(st.none(), st.text(max_size=9), st.just("2020-01-01"))


def written(path, text, times=1):
    """A file with a text, compressed as its suffix says, in several members."""
    pack = PACKED.get(path.suffix, bytes)
    step = -(-len(text) // times) or 1
    path.write_bytes(b"".join(pack(text[at : at + step]) for at in range(0, len(text), step)))
    return DataFile.of(path)


def tables(file, size, workers):
    return list(json_lines.batches(file, size, workers=workers))


@QUICK
@given(
    st.lists(st.fixed_dictionaries({"a": VALUES, "n": st.integers(-9, 9)}), min_size=1),
    st.integers(1, 300),
    st.integers(2, 4),
    st.sampled_from(sorted(PACKED)),
    st.integers(1, 3),
)
def test_threads_and_compression_change_nothing(tmp_path_factory, rows, size, workers, suffix, n):
    folder = tmp_path_factory.mktemp("in")
    text = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    plain = tables(written(folder / "a.jsonl", text), size, 1)
    found = tables(written(folder / f"a.jsonl{suffix}", text, n), size, workers)
    assert [table.schema for table in found] == [table.schema for table in plain]
    assert [table.to_pylist() for table in found] == [table.to_pylist() for table in plain]
    assert [row for table in plain for row in table.to_pylist()] == rows


@pytest.mark.parametrize("suffix", sorted(PACKED))
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_first_bad_line_is_named(tmp_path, suffix, workers):
    lines = [b'{"a": 1}'] * 90
    lines[40] = b'{"a": '
    lines[80] = b"[]"
    file = written(tmp_path / f"a.jsonl{suffix}", b"\n".join(lines))
    with pytest.raises(DataError) as raised:
        tables(file, 30, workers)
    assert str(raised.value) == (
        f"{file}, line 41: not JSON (Expecting value: line 1 column 7 (char 6)); "
        "fix or remove the line"
    )


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_is_cut_off_says_how_many_lines_it_has(tmp_path, suffix, workers):
    text = b"".join(json.dumps({"a": f"{n**40:x}"}).encode() + b"\n" for n in range(3000))
    whole = PACKED[suffix](text)
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(DataError) as raised:
        tables(DataFile.of(path), 4096, workers)
    decompress = pa.CompressedInputStream(pa.BufferReader(path.read_bytes()), {".gz": "gzip", ".zst": "zstd"}[suffix])  # fmt: skip
    there = bytearray()
    with pytest.raises(OSError, match="Truncated"):
        while True:
            there += decompress.read(1)
    found = re.fullmatch(
        rf"{path} is cut off after line ([\d,]+) or soon after it; copy it again, .*",
        str(raised.value),
    )
    line = int(found[1].replace(",", ""))
    assert 0 < line <= there.count(b"\n") < line + 200


def test_a_file_that_is_cut_off_at_once_or_is_not_compressed(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    for content, found in [
        (gzip.compress(b'{"a": 1}\n')[:15], "is cut off"),
        (b'"a": 1}\n{"a": 2}\n', "is damaged"),
    ]:
        path.write_bytes(content)
        with pytest.raises(DataError) as raised:
            Dataset(path).table()
        assert str(raised.value).startswith(f"{path} {found} after line 0 ")


def test_a_line_before_the_tear_is_the_first_error(tmp_path):
    text = b'{"a": 1}\nno\n' + b"".join(b'{"a": "%x"}\n' % n**9 for n in range(3000))
    path = tmp_path / "a.jsonl.gz"
    whole = gzip.compress(text)
    path.write_bytes(whole[:-9])
    for workers in (1, 4):
        with pytest.raises(DataError, match="line 2: not JSON"):
            tables(DataFile.of(path), 256, workers)


def test_a_bad_member_in_the_middle_is_damage(tmp_path):
    text = b"".join(b'{"a": "%x"}\n' % n**9 for n in range(5000))
    packed = bytearray(gzip.compress(text))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(packed)
    with pytest.raises(DataError) as raised:
        Dataset(path).table()
    found = str(raised.value)
    assert found.startswith((f"{path} is damaged after line ", f"{path}, line "))


NULL = "null instead of an object; give one object per line"


@pytest.mark.parametrize("suffix", sorted(PACKED))
@pytest.mark.parametrize("line", [b"null", b" \tnull\r"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_line_that_is_null_is_refused(tmp_path, suffix, line, workers):
    path = tmp_path / f"a.jsonl{suffix}"
    for at in (0, 1, 4, 9):
        lines = [b'{"a": null, "b": 1}'] * 10
        lines[at] = line
        file = written(path, b"\n".join(lines))
        for size in (1, 1 << 20):
            for columns in (None, ["a"]):
                with pytest.raises(DataError) as raised:
                    list(json_lines.batches(file, size, workers=workers, columns=columns))
                assert str(raised.value) == f"{path}, line {at + 1}: {NULL}"


def test_lines_of_nulls_are_not_null(tmp_path):
    rows = [{"a": None, "b": "}null"}, {"a": "}\nnull", "b": None}]
    file = written(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)).encode())
    assert tables(file, 1 << 20, 1)[0].to_pylist() == rows


def nested(opens, value, closes, levels):
    return opens * levels + value + closes * levels


@pytest.mark.parametrize("levels", [50, 64, 200, 1100, 20_000, 300_000])
@pytest.mark.parametrize(
    ("opens", "closes"), [(b"[", b"]"), (b'{"a": ', b"}"), (b'[{"b": "]}", "a": ', b"}]")]
)
def test_values_that_no_file_can_hold_are_refused(tmp_path, levels, opens, closes):
    if levels == 50 and opens.startswith(b"{"):
        return
    line = b'{"x": [1, "}"], "d": ' + nested(opens, b"1", closes, levels) + b"}"
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"x": [2, null]}\n' + line + b"\n")
    with pytest.raises(DataError) as raised:
        Dataset(path).table()
    found = str(raised.value)
    assert found.startswith(f"{path}, line 2: ")
    assert "nested too deeply" in found
    assert "write them as text, or remove the" in found
    assert levels > 200 or "column 'd'" in found


@pytest.mark.parametrize(("opens", "closes", "levels"), [(b"[", b"]", 49), (b'{"a": ', b"}", 63)])
def test_the_deepest_values_are_written_and_read_again(tmp_path, opens, closes, levels):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"d": ' + nested(opens, b"1", closes, levels) + b"}\n")
    table = Dataset(path).table()
    pq.write_table(table, tmp_path / "b.parquet")
    with pa.ipc.new_file(tmp_path / "b.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("b.parquet", "b.arrow"):
        assert Dataset(tmp_path / name).table().equals(table)


def test_a_parquet_file_that_is_too_deep_is_refused(tmp_path):
    kind = pa.int64()
    for _ in range(70):
        kind = pa.struct([("a", kind)])
    pq.write_table(pa.table({"d": pa.nulls(2, kind)}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: the values of column 'd' are nested too"):
        Dataset(tmp_path / "a.parquet").first_rows  # noqa: B018 - It reads.


def test_many_short_lists_in_a_line_are_not_deep():
    line = json.dumps({"a": [["]", n] for n in range(9000)]}).encode()
    assert not is_very_deep(line + b"\n" + line)
    assert is_very_deep(line + b"\n" + nested(b"[", b"1", b"]", 3000))
