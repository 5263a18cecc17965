"""Files of the cache with a checksum: what is damaged is found."""

import pickle

import pyarrow as pa
import pytest

from rejuice.operators.disk import CHECKSUM_BYTES
from rejuice.pipelines.filesystem import checked
from rejuice.pipelines.filesystem.checked import DamagedError, read_checked, write_checked


def test_each_damaged_byte_of_a_checked_file_is_found(tmp_path):
    path, table = tmp_path / "000000.arrow", pa.table({"x": ["a", "b"] * 20, "n": range(40)})
    write_checked(path, table)
    right = path.read_bytes()
    assert read_checked(path).equals(table)
    for at in range(len(right)):
        path.write_bytes(right[:at] + bytes([right[at] ^ 4]) + right[at + 1 :])
        checked._verified.clear()
        with pytest.raises(DamagedError):
            read_checked(path)
    path.write_bytes(right)
    assert read_checked(path).equals(table)


def test_each_end_of_a_checked_file_is_found_or_does_not_matter(tmp_path):
    path, table = tmp_path / "000000.arrow", pa.table({"x": ["a", "b"] * 20})
    write_checked(path, table)
    right = path.read_bytes()
    for size in range(len(right)):
        path.write_bytes(right[:size])
        if size == len(right) - CHECKSUM_BYTES:  # Only the checksum is gone.
            assert read_checked(path).equals(table)
        else:
            with pytest.raises(DamagedError):
                read_checked(path)


def test_files_without_a_checksum_are_read(tmp_path):
    path, table = tmp_path / "000000.arrow", pa.table({"x": [1, 2]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert read_checked(path).equals(table)


def test_the_error_keeps_its_file_between_processes(tmp_path):
    error = DamagedError("found", "right", path=tmp_path)
    assert pickle.loads(pickle.dumps(error)).path == tmp_path
    assert error.at("step 3") is error
