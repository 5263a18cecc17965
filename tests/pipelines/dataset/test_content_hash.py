"""The hashes of content that are kept: an unchanged file is not read, unless that is asked for."""

import json
import os

import pyarrow as pa
import pytest
from command import runner

from rejuice.pipelines.dataset import read
from rejuice.pipelines.dataset.files import DataFile
from rejuice.pipelines.dataset.read import fingerprint
from rejuice.pipelines.dataset.remote import to_path

LONG_AGO_NS = 10**18


@pytest.fixture
def hashed(monkeypatch):
    """The names of files that are read to be hashed, in order."""
    names, of_file = [], read._hash
    monkeypatch.setattr(read, "_hash", lambda file: names.append(file.path.name) or of_file(file))  # fmt: skip
    return names


def write(path, content, mtime_ns=LONG_AGO_NS):
    path.write_bytes(content)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return DataFile.of(path)


def test_an_unchanged_file_is_hashed_once(tmp_path, hashed):
    files = [write(tmp_path / name, name.encode()) for name in ("a.jsonl", "b.jsonl")]
    cache = tmp_path / "cache"
    found = fingerprint(files, cache)
    assert fingerprint(files, cache) == found == fingerprint(files)
    assert hashed == ["a.jsonl", "b.jsonl"] * 2, "the second time nothing; without a cache both"
    more = write(tmp_path / "c.jsonl", b"c")
    assert fingerprint([*files, more], cache) != found
    assert hashed[4:] == ["c.jsonl"]


@pytest.mark.parametrize(
    ("content", "mtime_ns"), [(b"other", LONG_AGO_NS), (b"bb", LONG_AGO_NS + 1)]
)
def test_a_file_of_another_size_or_time_is_hashed_again(tmp_path, hashed, content, mtime_ns):
    cache = tmp_path / "cache"
    found = fingerprint([write(tmp_path / "a.jsonl", b"aa")], cache)
    assert fingerprint([write(tmp_path / "a.jsonl", content, mtime_ns)], cache) != found
    assert len(hashed) == 2


def test_verify_hashes_a_file_whose_size_and_time_are_the_same(tmp_path, hashed):
    cache = tmp_path / "cache"
    found = fingerprint([write(tmp_path / "a.jsonl", b"aa")], cache)
    changed = write(tmp_path / "a.jsonl", b"bb")
    assert fingerprint([changed], cache) == found
    verified = fingerprint([changed], cache, verify=True)
    assert verified != found
    assert fingerprint([changed], cache) == verified, "what it found is kept"
    assert len(hashed) == 2


def test_the_hash_of_a_file_that_was_just_written_is_not_kept(tmp_path, hashed, monkeypatch):
    cache = tmp_path / "cache"
    file = write(tmp_path / "a.jsonl", b"aa", 2 * LONG_AGO_NS)
    for seconds, times in [(1, 1), (1, 2), (3, 3), (3, 3)]:
        now_ns = 2 * LONG_AGO_NS + seconds * 10**9
        monkeypatch.setattr(read.time, "time_ns", lambda now_ns=now_ns: now_ns)
        fingerprint([file], cache)
        assert len(hashed) == times


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"a": 3}', b'{"a": [1]}', b"\xff\xfe"])
def test_damaged_hashes_are_none(tmp_path, hashed, damage):
    cache = tmp_path / "cache"
    file = write(tmp_path / "a.jsonl", b"aa")
    found = fingerprint([file], cache)
    (cache / "content-hashes.json").write_bytes(damage)
    assert fingerprint([file], cache) == found
    assert fingerprint([file], cache) == found
    assert len(hashed) == 2
    assert list(json.loads((cache / "content-hashes.json").read_bytes())) == [str(file.path)]


@pytest.mark.slow
def test_hashes_of_files_in_a_store_are_kept(store, hashed, monkeypatch):
    path, cache = to_path(store) / "a.jsonl", to_path(store) / "cache"
    path.write_text("aa")
    file = DataFile.of(path)
    monkeypatch.setattr(read, "_RECENT_NS", -(10**12))
    assert fingerprint([file], cache) == fingerprint([file], cache)
    assert hashed == ["a.jsonl"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_run_with_verify_sees_a_dataset_that_changed_unnoticed(
    rollouts, recipe_file, monkeypatch, capsys, tmp_path, kind
):
    import pyarrow.parquet as pq

    rejuice, table = runner(monkeypatch, capsys, tmp_path), rollouts(4)
    data = tmp_path / f"rows.{kind}"

    def put(rows):
        if kind == "parquet":
            pq.write_table(rows, data)
        else:
            data.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))
        os.utime(data, ns=(LONG_AGO_NS, LONG_AGO_NS))
        return data.stat().st_size

    def exported():
        import pyarrow.parquet as pq

        return pq.read_table(tmp_path / "out" / "curated.parquet")["reward"]

    path = recipe_file([{"group_size_filter": {"min": 2}}], dataset_path=str(data))
    size = put(table)
    assert rejuice("run", path)[0] == 0
    before = exported()
    at = table.column_names.index("reward")
    other = pa.array([1.0 - value for value in table["reward"].to_pylist()])
    assert put(table.set_column(at, "reward", other)) == size
    code, _, err = rejuice("run", path)
    assert (code, "nothing to do" in err) == (0, True)
    assert exported().equals(before)
    code, _, err = rejuice("run", path, "--verify")
    assert (code, "nothing to do" in err) == (0, False)
    assert exported().to_pylist() == [1.0 - value for value in before.to_pylist()]
