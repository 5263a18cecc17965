"""Files that rejuice keeps on disk: what may stand in their place, and names of temporary ones."""

import os
from pathlib import Path

import pytest

from rejuice.operators.disk import NotAFileError, kind_of, open_file, read_file, temporary_path


@pytest.mark.parametrize("kind", ["a link", "a FIFO", "a folder", "a device"])
def test_what_is_no_file_is_not_opened(tmp_path, kind):
    path, other = tmp_path / "rows.arrow", tmp_path / "other"
    other.write_bytes(b"another's")
    if kind == "a link":
        path.symlink_to(other)
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    path = Path("/dev/null") if kind == "a device" else path
    assert kind_of(path) == kind
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
        with pytest.raises(NotAFileError, match=f"{kind} is where rejuice keeps a file"):
            open_file(path, flags)
    assert other.read_bytes() == b"another's"


def test_a_file_is_read_and_nothing_is_none(tmp_path):
    path = tmp_path / "rows.arrow"
    assert kind_of(path) is None
    with pytest.raises(FileNotFoundError):
        read_file(path)
    path.write_bytes(b"rows")
    assert (kind_of(path), read_file(path)) == ("a file", b"rows")


def test_two_writers_have_two_temporary_files(tmp_path):
    path = tmp_path / "rows.arrow"
    assert temporary_path(path) != temporary_path(path)
    assert temporary_path(path).parent == path.parent
