"""Tables that rejuice keeps in its cache: each is a record, without which it counts as absent.

A flipped bit in a text is still an Arrow file, and would become another export in silence. The key
of the record is of the names of the file and of its folder, see `operators/records.py`: what is
copied or renamed into the place of another file is found out as well.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ...operators import DataError
from ...operators.disk import wrong_kind
from ...operators.records import HEADER_BYTES, Header, key_of, read_header
from .files import open_input, written
from .remote import AnyPath, RemotePath

TABLE, LINK = 0, 1
"""Kinds of records: an Arrow stream, and the path of a file of the cache, from the folder of the
record."""

_FORMER = b"ARROW1"
"""How files begin that were written before they were records."""

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
        return _rebuild, (type(self), self.found, self.right, self.where, self.path)

    def at(self, where: str) -> DamagedError:
        return self  # The file says where; no step and no recipe is at fault.


def _rebuild(
    kind: type[DamagedError], found: str, right: str, where: str, path: AnyPath | None
) -> DamagedError:
    return kind(found, right, where=where, path=path)


def damaged(path: AnyPath, found: str = "damaged") -> DamagedError:
    """The error where a file of the cache is not as it was written."""
    return DamagedError(f"{path} is {found}", "remove it and run again", path=path)


def check_own_folder(path: AnyPath) -> None:
    """Check that a folder of the cache is one, or is not there: no link to one elsewhere.

    Raises:
        DamagedError: something else is in its place.
    """
    if isinstance(path, Path) and (kind := wrong_kind(path, "a folder")):
        raise damaged(path, f"{kind}, not a folder")


def owner(path: AnyPath) -> bytes:
    """The key of what a file of the cache holds: of its name, and of that of its folder."""
    return key_of(path.parent.name, path.name)


def write_checked(path: AnyPath, table: pa.Table) -> None:
    """Write a table as a record; the file appears complete."""
    with written(path) as temporary:
        with pa.OSFile(str(temporary), "wb") as sink:
            sink.write(bytes(HEADER_BYTES))
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        with pa.memory_map(str(temporary)) as file:
            payload = file.read_buffer()[HEADER_BYTES:]
            header = Header.of(owner(path), TABLE, [payload])
        with temporary.open("r+b") as file:
            file.write(header.packed())


def read_checked(path: AnyPath, *, mapped: bool = True) -> pa.Table:
    """The table in a file, over mapped memory or in memory, once its checksum is right.

    Raises:
        DamagedError: it is not as it was written.
        FileNotFoundError: there is none.
    """
    return table_in(path, read_content(path, mapped=mapped))


def table_in(path: AnyPath, content: pa.Buffer) -> pa.Table:
    """The table in what `read_content` gives, without a copy.

    Raises:
        DamagedError: the file is not as it was written.
    """
    header = checked_header(path, content)
    if header is None or header.kind != TABLE:
        former = bytes(content[: len(_FORMER)]) == _FORMER
        raise damaged(path, "of a former version of rejuice" if former else "damaged")
    try:
        return pa.ipc.open_stream(content[HEADER_BYTES:]).read_all()
    except (pa.ArrowInvalid, OSError):
        raise damaged(path) from None


def checked_header(path: AnyPath, content: pa.Buffer) -> Header | None:
    """The header of the record that a file is; None: it is not one, or not as it was written.

    The checksum of a file on disk is computed once in each process while the file does not change.
    """
    header = read_header(memoryview(content))
    if header is None or header.key != owner(path) or header.size != content.size - HEADER_BYTES:
        return None
    if not is_verified(path):
        if not header.fits(content[HEADER_BYTES:]):
            return None
        verified(path)
    return header


def read_content(path: AnyPath, *, mapped: bool = True) -> pa.Buffer:
    """What a file of the cache holds, mapped or in memory.

    Raises:
        DamagedError: a link, a FIFO, a device or a folder is in its place.
        FileNotFoundError: there is none.
    """
    if not isinstance(path, RemotePath):
        if kind := wrong_kind(path, "a file"):
            raise damaged(path, f"{kind}, not a file")
        if not path.stat().st_size:  # Nothing can be mapped.
            return pa.py_buffer(b"")
    # Of a mapped file, no descriptor stays open: there may be thousands.
    with open_input(path, mapped=mapped) as source:
        return source.read_buffer()


def is_verified(path: AnyPath) -> bool:
    """Whether this process has found a file to be undamaged, and it has not changed since."""
    state = _state(path)
    return state is not None and _verified.get(Path(str(path))) == state


def verified(path: AnyPath) -> None:
    """Note that a file is undamaged."""
    state = _state(path)
    if state is not None:
        _verified[Path(str(path))] = state


def _state(path: AnyPath) -> tuple[int, int, int] | None:
    """What changes when a file does; None where it is fetched each time it is read."""
    if isinstance(path, RemotePath):
        return None
    found = path.lstat()
    return found.st_ino, found.st_mtime_ns, found.st_size
