"""Paths in object stores, against servers of S3 and of Google's on this machine."""

import pickle
import random
from pathlib import Path

import pyarrow as pa
import pytest

from rejuice.operators import DataError
from rejuice.pipelines.dataset.files import (
    DamagedError,
    read_checked,
    remove_folder,
    write_checked,
    write_file,
    written,
)
from rejuice.pipelines.dataset.remote import RemotePath, is_of_store, to_path

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(store):
    return to_path(store)


def test_a_text_is_a_path_on_disk_or_in_a_store():
    assert to_path("data/rows.jsonl") == Path("data/rows.jsonl")
    assert to_path("file:///data/rows.jsonl") == Path("/data/rows.jsonl")
    assert to_path("s3://b/rows.jsonl/") == RemotePath("s3", "b/rows.jsonl")
    path = to_path("s3://b/run/rows.parquet?endpoint_override=localhost:9000&scheme=http")
    assert str(path.with_suffix(".run") / "report.json") == (
        "s3://b/run/rows.run/report.json?endpoint_override=localhost:9000&scheme=http"
    )
    assert (path.name, path.stem, path.suffix) == ("rows.parquet", "rows", ".parquet")
    assert to_path("s3://b").parent == to_path("s3://b")
    assert [str(each) for each in to_path("s3://b/x/y").parents] == ["s3://b/x", "s3://b"]
    assert to_path(path) is path


def test_a_file_is_written_listed_read_and_removed(folder):
    assert not folder.exists()
    assert list(folder.iterdir()) == []
    write_file(folder / "a.txt", "one")
    write_file(folder / "deep" / "b.txt", b"two")
    assert folder.is_dir()
    assert (folder / "a.txt").is_file()
    assert (folder / "a.txt").stat().st_size == 3
    assert (folder / "a.txt").stat().st_mtime_ns > 1_700_000_000 * 10**9
    assert {path.name for path in folder.iterdir()} == {"a.txt", "deep"}
    assert [str(path) for path in folder.glob("*.txt")] == [str(folder / "a.txt")]
    assert (folder / "deep" / "b.txt").read_text() == "two"
    (folder / "a.txt").unlink()
    (folder / "a.txt").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (folder / "a.txt").unlink()
    with pytest.raises(FileNotFoundError):
        (folder / "a.txt").read_bytes()
    remove_folder(folder)
    assert list(folder.iterdir()) == []
    assert not folder.exists()
    remove_folder(folder)


def test_a_file_of_several_parts(folder):
    """Arrow sends parts of 10 MiB to S3, and more requests than one to Google's store."""
    path, content = folder / "deep" / "rows.bin", random.Random(0).randbytes((25 << 20) + 1)
    with written(path) as temporary:
        temporary.write_bytes(content)
    assert path.stat().st_size == len(content)
    assert path.read_bytes() == content
    with path.open_input() as file:
        assert file.read_at(9, 20 << 20) == content[20 << 20 : (20 << 20) + 9]
    for less in ("less", ""):
        write_file(path, less)
        assert path.read_text() == less


def test_a_bucket_is_listed_as_a_folder_is(folder):
    write_file(folder / "deep" / "deeper" / "a.txt", "one")
    write_file(folder / "deep" / "b.txt", "two")
    assert folder in set(folder.parent.iterdir())
    assert [path.name for path in folder.iterdir()] == ["deep"]
    assert {path.name: path.is_dir() for path in (folder / "deep").iterdir()} == {
        "deeper": True,
        "b.txt": False,
    }


def test_a_file_whose_writer_fails_does_not_appear(folder):
    with pytest.raises(ZeroDivisionError), written(folder / "a.txt") as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert not (folder / "a.txt").exists()


def test_a_path_works_in_another_process(folder):
    write_file(folder / "a.txt", "one")
    assert pickle.loads(pickle.dumps(folder / "a.txt")).read_text() == "one"


def test_a_checked_file_in_a_store(folder):
    path, table = folder / "000000.arrow", pa.table({"x": ["a", "b"]})
    write_checked(path, table)
    assert read_checked(path).equals(table)
    path.write_bytes(path.read_bytes().replace(b"b", b"c"))
    with pytest.raises(DamagedError, match=r"000000\.arrow is damaged"):
        read_checked(path)


@pytest.mark.parametrize(
    ("uri", "right"),
    [
        (
            "s3://no-such-bucket/a.txt",
            "cannot be written: there is no bucket 'no-such-bucket'; create it, or give another path",
        ),
        (
            "gs://anonymous@rollouts/a.txt?endpoint_override=127.0.0.1:9&scheme=http&retry_limit_seconds=1",
            "cannot be written: the store cannot be reached; check the network and the endpoint",
        ),
        (
            "s3://rollouts/a.txt?endpoint_override=127.0.0.1:9&scheme=http",
            "cannot be written: the store cannot be reached; check the network and the endpoint",
        ),
    ],
)
def test_errors_are_one_line(s3, monkeypatch, uri, right):
    monkeypatch.delenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", raising=False)
    with pytest.raises(DataError) as found:
        to_path(uri).write_text("x")
    assert str(found.value) == f"{uri} {right}"


def test_a_bucket_of_google_that_is_not_there(gcs):
    path = to_path("gs://anonymous@no-such-bucket/a.txt")
    right = "there is no bucket 'no-such-bucket'; create it, or give another path"
    with pytest.raises(DataError) as found:
        path.write_text("x")
    assert str(found.value) == f"{path} cannot be written: {right}"
    with pytest.raises(DataError) as found:
        path.check_bucket()
    assert str(found.value) == f"{path} cannot be read: {right}"


def test_a_scheme_that_nobody_knows():
    with pytest.raises(
        DataError, match=r"^nope://bucket cannot be opened: .*; give a path on disk"
    ):
        to_path("nope://bucket/x").exists()


@pytest.mark.parametrize(
    ("message", "of_store"),
    [
        ("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 18", True),
        ("AWS Error UNKNOWN (HTTP status 502) during GetObject operation: No response body.", True),
        ("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)", True),
        ("Corrupt snappy compressed data.", False),
    ],
)
def test_errors_of_a_store_are_not_those_of_a_format(message, of_store):
    assert is_of_store(OSError(message)) == of_store
