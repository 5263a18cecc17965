"""Files that appear complete, on disk or in an object store, and stay when the power fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from ...operators import DataError, disk
from ...operators.disk import sync, temporary_path
from .remote import AnyPath, RemotePath, errors_of_store_alone


@contextmanager
def written(path: AnyPath) -> Iterator[Path]:
    """A temporary file to write, which becomes `path` when the block ends without an error.

    On disk it is renamed into place after its bytes have reached the disk; for a store it is
    written to a local folder, and sent whole.
    """
    if isinstance(path, RemotePath):
        with TemporaryDirectory(prefix="rejuice-") as folder:
            temporary = Path(folder) / path.name
            yield temporary
            with pa.memory_map(str(temporary)) as file:
                path.write_bytes(file.read_buffer())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        yield temporary
        sync(temporary)
        _check_is_no_folder(path)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: AnyPath, data: bytes | str) -> None:
    """Write a small file, which appears complete."""
    content = data.encode() if isinstance(data, str) else data
    if isinstance(path, RemotePath):
        path.write_bytes(content)
        return
    with written(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def open_input(path: AnyPath, *, mapped: bool = True) -> Iterator[Any]:
    """A file, to be read from any place: a pyarrow file, of mapped memory if it is on disk.

    Raises:
        FileNotFoundError: there is none.
        DataError: it is in a store, which fails while the file is open.
    """
    if isinstance(path, RemotePath):
        with errors_of_store_alone(path, "read"), path.open_input() as file:
            yield file
        return
    with pa.memory_map(str(path)) if mapped else pa.OSFile(str(path)) as file:
        yield file


def _check_is_no_folder(path: Path) -> None:
    if disk.kind_of(path) == "a folder":
        raise DataError(f"{path} is a folder, where rejuice keeps a file", "move it away")


def read_file(path: AnyPath) -> bytes:
    """What a file holds that rejuice has written.

    Raises:
        FileNotFoundError: there is none.
        NotAFileError: on disk, a link, a FIFO, a device or a folder is in its place.
    """
    return path.read_bytes() if isinstance(path, RemotePath) else disk.read_file(path)


def check_is_folder(path: AnyPath) -> None:
    """Check that what is at a path, itself, is a folder or nothing: no link to one elsewhere.

    Raises:
        DataError: it is something else.
    """
    if isinstance(path, Path) and (kind := disk.wrong_kind(path, "a folder")):
        raise DataError(f"{path} is {kind}, where rejuice keeps a folder", "remove it")


def remove_file(path: AnyPath) -> None:
    """Remove what is at a path, by its own name: of a link, not what it links to.

    Raises:
        DataError: it is a folder, which may hold anything.
    """
    if isinstance(path, Path):
        _check_is_no_folder(path)
    path.unlink(missing_ok=True)


def remove_folder(path: AnyPath) -> None:
    """Remove a folder with all that is in it; nothing where there is none."""
    if isinstance(path, RemotePath):
        path.remove_folder()
    else:
        shutil.rmtree(path, ignore_errors=True)
