"""Arrow files of the cache: each ends with a checksum, without which it counts as absent.

A flipped bit in a text is still an Arrow file, and would become another export in silence.

    the Arrow file | checksum of it, see `operators/disk.py`

Version 0.4 wrote no checksum: such files are read as they are.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ...operators import DataError
from ...operators.disk import CHECKSUM_BYTES, checksum, ends_with_checksum
from .files import open_input, written
from .remote import AnyPath, RemotePath

_ARROW = b"ARROW1"
"""How an Arrow file begins and ends."""

_verified: dict[Path, tuple[int, int, int]] = {}
"""Files whose checksum this process has computed: inode, time of the last change in ns, size."""


class DamagedError(DataError):
    """A file of the cache is not as it was written. Its content can be computed again.

    Attributes:
        path: of the file.
    """

    def __init__(
        self, found: str, right: str = "", *, where: str = "", path: AnyPath | None = None
    ) -> None:
        super().__init__(found, right, where=where)
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.found, self.right, self.where, self.path)

    def at(self, where: str) -> DamagedError:
        return self  # The file says where; no step and no recipe is at fault.


def _rebuild(found: str, right: str, where: str, path: AnyPath | None) -> DamagedError:
    return DamagedError(found, right, where=where, path=path)


def write_checked(path: AnyPath, table: pa.Table) -> None:
    """Write an Arrow file and its checksum; it appears complete."""
    with written(path) as temporary:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        with pa.memory_map(str(temporary)) as file:
            end = checksum(file.read_buffer())
        with temporary.open("ab") as file:
            file.write(end)


def read_checked(path: AnyPath, *, mapped: bool = True) -> pa.Table:
    """An Arrow file as a table, over mapped memory or in memory, once its checksum is right.

    The checksum of a mapped file is computed once in each process while the file does not change.

    Raises:
        DamagedError: it is not as it was written.
        FileNotFoundError: there is none.
    """
    with open_input(path, mapped=mapped) as source:
        buffer = source.read_buffer()
    try:
        return pa.ipc.open_file(pa.BufferReader(_content(path, buffer))).read_all()
    except (pa.ArrowInvalid, OSError):
        raise damaged(path) from None


def unchecked_content(path: AnyPath) -> pa.Buffer:
    """The bytes of the Arrow file without the trailer, whether they are as they were written."""
    with open_input(path) as source:
        buffer = source.read_buffer()
    start = max(0, buffer.size - CHECKSUM_BYTES - len(_ARROW))
    end = bytes(buffer[start:]).rfind(_ARROW)
    return buffer if end < 0 else buffer.slice(0, start + end + len(_ARROW))


def _content(path: AnyPath, buffer: pa.Buffer) -> pa.Buffer:
    """The bytes of the Arrow file, without the trailer."""
    end = bytes(buffer[max(0, buffer.size - CHECKSUM_BYTES) :])
    if not ends_with_checksum(end):
        if end.endswith(_ARROW):
            return buffer
        raise damaged(path)
    content = buffer.slice(0, buffer.size - CHECKSUM_BYTES)
    state = _state(path)
    if state is None or _verified.get(Path(str(path))) != state:
        if checksum(content) != end:
            raise damaged(path)
        if state is not None:
            _verified[Path(str(path))] = state
    return content


def _state(path: AnyPath) -> tuple[int, int, int] | None:
    """What changes when a file does; None where it is fetched each time it is read."""
    if isinstance(path, RemotePath):
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def damaged(path: AnyPath) -> DamagedError:
    """The error where a file of the cache is not as it was written."""
    return DamagedError(f"{path} is damaged", "remove it and run again", path=path)
