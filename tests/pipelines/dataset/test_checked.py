"""Files of the cache with a checksum: what is damaged is found."""

import os
import pickle

import pyarrow as pa
import pytest

from rejuice.pipelines.dataset import files
from rejuice.pipelines.dataset.files import DamagedError, damaged, read_checked, write_checked


def test_each_damaged_byte_of_a_checked_file_is_found(tmp_path):
    path, table = tmp_path / "000000.arrow", pa.table({"x": ["a", "b"] * 20, "n": range(40)})
    write_checked(path, table)
    right = path.read_bytes()
    assert read_checked(path).equals(table)
    for at in range(len(right)):
        path.write_bytes(right[:at] + bytes([right[at] ^ 4]) + right[at + 1 :])
        files._verified.clear()
        with pytest.raises(DamagedError):
            read_checked(path)
    path.write_bytes(right)
    assert read_checked(path).equals(table)


def test_each_end_of_a_checked_file_is_found(tmp_path):
    path, table = tmp_path / "000000.arrow", pa.table({"x": ["a", "b"] * 20})
    write_checked(path, table)
    right = path.read_bytes()
    for content in (*(right[:size] for size in range(len(right))), right + b"\0"):
        path.write_bytes(content)
        with pytest.raises(DamagedError):
            read_checked(path)


def test_a_file_without_a_checksum_is_not_read(tmp_path):
    path, table = tmp_path / "000000.arrow", pa.table({"x": [1, 2]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DamagedError, match="arrow is damaged; remove it"):
        read_checked(path)


def test_a_file_in_the_place_of_another_is_found(tmp_path):
    files = [tmp_path / name for name in ("a/000000.arrow", "a/000001.arrow", "b/000000.arrow")]
    for number, file in enumerate(files):
        write_checked(file, pa.table({"x": [number]}))
    contents = [file.read_bytes() for file in files]
    for file in files:
        for content in contents:
            file.write_bytes(content)
            if content == contents[files.index(file)]:
                assert read_checked(file).num_rows == 1
            else:
                with pytest.raises(DamagedError):
                    read_checked(file)


@pytest.mark.parametrize("kind", ["a link", "a FIFO", "a folder"])
def test_what_is_no_file_is_named(tmp_path, kind):
    path, elsewhere = tmp_path / "000000.arrow", tmp_path / "elsewhere.arrow"
    write_checked(elsewhere, pa.table({"x": [1]}))
    if kind == "a link":
        path.symlink_to(elsewhere)
    else:
        os.mkfifo(path) if kind == "a FIFO" else path.mkdir()
    with pytest.raises(DamagedError, match=f"000000.arrow is {kind}, not a file"):
        read_checked(path)


def test_thousands_of_files_may_be_mapped(tmp_path):
    path = tmp_path / "000000.arrow"
    write_checked(path, pa.table({"x": [1]}))
    before = len(os.listdir("/proc/self/fd"))
    tables = [read_checked(path) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) < before + 10
    assert tables[0].num_rows == 1


def test_the_error_keeps_its_file_between_processes(tmp_path):
    error = damaged(tmp_path)
    assert pickle.loads(pickle.dumps(error)).path == tmp_path
    assert error.at("step 3") is error
