"""Files in sections: a range of them is read, and checked, without the rest of the file.

    section | section | ... | index | size of the index

The index is a record, see `operators/disk.py`, which belongs to this file of this folder. It has
the size and the checksum of each section. A file in an object store is fetched in
two requests: its end, where the index is, and the sections that are needed, one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

from ...operators import DataError
from ...operators.disk import HEADER_BYTES, Header, read_header
from .files import TABLE, damaged, owner, read_content, written
from .remote import AnyPath, RemotePath, store_errors

_SIZE = struct.Struct("<q")
_INDEX = pa.schema({"size": pa.int64(), "checksum": pa.uint64()})
_TAIL_BYTES = 16 << 10
"""What is fetched from the end of a file: the index, unless it is longer."""


def write_sections(
    path: AnyPath, sections: Iterable[bytes | pa.Buffer], metadata: Mapping[bytes, bytes]
) -> None:
    """Write a file, which appears complete."""
    sizes, checksums = [], []
    with written(path) as temporary, pa.OSFile(str(temporary), "wb") as file:
        for section in sections:
            file.write(section)
            sizes.append(len(section))
            checksums.append(xxhash.xxh3_64_intdigest(section))
        index = pa.table([sizes, checksums], _INDEX.with_metadata(dict(metadata)))
        content = arrow_stream(index)
        header = Header.of(owner(path), TABLE, [content]).packed()
        for part in (header, content, _SIZE.pack(len(header) + len(content))):
            file.write(part)


class Sections(NamedTuple):
    """A file in sections."""

    path: AnyPath  # of the file
    source: Any  # of a file in a store, what is read: a pyarrow file
    ends: tuple[int, ...]  # where each section begins, and where the last one ends, in bytes
    checksums: tuple[int, ...]  # of each section
    metadata: Mapping[bytes, bytes]  # as it was written

    @classmethod
    def open(cls, path: AnyPath) -> Sections:
        """Read the index of a file.

        Raises:
            DamagedError: the index is not as it was written.
            FileNotFoundError: there is no file.
        """
        source, size = _opened(path)
        tail = _read(path, source, max(0, size - _TAIL_BYTES), size)
        if tail.size < _SIZE.size:
            raise damaged(path)
        (index_bytes,) = _SIZE.unpack(tail[tail.size - _SIZE.size :])
        end = size - _SIZE.size
        start = end - index_bytes
        if not 0 <= start <= end:
            raise damaged(path)
        if size - start > tail.size:
            tail = _read(path, source, start, size)
        record = tail[tail.size - (size - start) : tail.size - _SIZE.size]
        header, content = read_header(memoryview(record)), record[HEADER_BYTES:]
        if header is None or header.key != owner(path) or not header.fits(content):
            raise damaged(path)
        index = pa.ipc.open_stream(content).read_all()
        ends = tuple(accumulate(index["size"].to_pylist(), initial=0))
        if ends[-1] != start:
            raise damaged(path)
        checksums = tuple(index["checksum"].to_pylist())
        return cls(path, source, ends, checksums, index.schema.metadata)

    def read(self, first: int, stop: int) -> list[pa.Buffer]:
        """Some neighbouring sections, once their checksums are right; mapped if they are on disk.

        Raises:
            DamagedError: one of them is not as it was written.
            FileNotFoundError: the file has been removed since it was opened.
        """
        content = _read(self.path, self.source, self.ends[first], self.ends[stop])
        sections = []
        for number in range(first, stop):
            start, end = (each - self.ends[first] for each in self.ends[number : number + 2])
            sections.append(content[start:end])  # Shorter where the file was cut off since.
            if xxhash.xxh3_64_intdigest(sections[-1]) != self.checksums[number]:
                raise damaged(self.path)
        return sections


def arrow_stream(table: pa.Table) -> pa.Buffer:
    """A table by itself, with its schema: `pa.ipc.open_stream` reads it without a copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _opened(path: AnyPath) -> tuple[Any, int]:
    """What keeps a file in a store open, None of one on disk, and its size."""
    if not isinstance(path, RemotePath):
        return None, path.lstat().st_size
    file = path.open_input()
    with store_errors(path, "read"):
        return file, file.size()


def _read(path: AnyPath, source: Any, start: int, stop: int) -> pa.Buffer:
    if not isinstance(path, RemotePath):
        # What was read of a mapped file counts as memory of this process until it is unmapped, so
        # it is mapped for each read. Nor does it stay open: there may be thousands.
        return read_content(path)[start:stop]
    if start == stop:
        return pa.py_buffer(b"")  # Google's store refuses to read at the end.
    try:
        with store_errors(path, "read"):
            source.seek(start)
            return source.read_buffer(stop - start)
    except (DataError, FileNotFoundError):
        # A client may report nothing clear of a file that was removed after it was opened.
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist") from None
        raise
