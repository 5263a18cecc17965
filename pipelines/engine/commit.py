"""Commits: what one step did to one chunk, in one file, put in place by one rename.

A commit's columns are what the step wrote. Its schema metadata carries the rest of the change:
which rows it dropped and why, what was taken away, notes, seconds. Nothing else is stored of a
step, so a chain of commits is as small as what the steps did.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ...operators import Change, DataError
from ...operators.columns import flat
from ...operators.disk import HEADER_BYTES, Header, NotAFileError, read_file, read_header
from ...operators.groups import Array
from ..dataset.files import (
    LINK,
    TABLE,
    DamagedError,
    check_is_folder,
    checked_header,
    damaged,
    owner,
    read_content,
    table_in,
    write_checked,
    write_file,
    written,
)
from ..dataset.remote import AnyPath, RemotePath, store_errors
from .steps import StepResult

_PARENT = "__parent__"
_META = b"rejuice"
_FAILED = b"failed_rows"
_LINKED = re.compile(r"(kept-[\w-]+)/([0-9a-f]{32}[.]arrow)")
"""What a link names: nothing outside the cache."""


def save(path: AnyPath, commit: StepResult, retries: int = 0) -> None:
    """Write a commit; it is there whole or not at all."""
    write_checked(path, as_table(commit, retries))


def load(path: AnyPath, *, mapped: bool = True) -> StepResult:
    """Read a commit; mapped, its columns stay on disk until they are used.

    Raises:
        DamagedError: it is not as it was saved; or the counter of the retries is gone, and is
            there again.
        FileNotFoundError: there is none.
    """
    return _load(path, read_content(path, mapped=mapped))


def load_or_target(path: AnyPath) -> StepResult | AnyPath:
    """Return what `load` gives of a commit, or `target_of` of a link; the file is read once.

    Raises:
        DamagedError: see `load`.
        FileNotFoundError: there is none.
    """
    content = read_content(path)
    return _target(path, content) or _load(path, content)


def _load(path: AnyPath, content: pa.Buffer) -> StepResult:
    table = table_in(path, content)
    check_retries(path, table.schema)
    return of_table(table)


class RetriesGoneError(DamagedError):
    """The counter of a step's retries was gone, and is there again; the commit itself is whole."""


def check_retries(path: AnyPath, schema: pa.Schema) -> None:
    """Check that the retries are counted after which a commit was written.

    Else later steps would find what they made of the failures. The counter is put right.

    Raises:
        RetriesGoneError: they were not.
    """
    retries = json.loads(schema.metadata[_META]).get("retries", 0)
    if not retries or (counter := counter_of(path.parent, retries)).exists():
        return
    if retry_count(path.parent) < retries:
        write_retry_count(path.parent, retries)
        raise RetriesGoneError(f"{counter} was gone, and is there again", "run again", path=path)


def link(path: AnyPath, target: AnyPath) -> None:
    """Put a record in place that names a chunk in another folder of the cache."""
    payload = f"{target.parent.name}/{target.name}".encode()
    write_file(path, Header.of(owner(path), LINK, [payload]).packed() + payload)


def target_of(path: AnyPath) -> AnyPath | None:
    """Return the chunk that `link` named, in the same cache; None: the file is a commit itself.

    Raises:
        DamagedError: it is not as it was written.
        FileNotFoundError: there is none.
    """
    return _target(path, read_content(path))


def _target(path: AnyPath, content: pa.Buffer) -> AnyPath | None:
    header = checked_header(path, content)
    if header is None:
        raise damaged(path)
    if header.kind != LINK:
        return None
    found = _LINKED.fullmatch(bytes(content[HEADER_BYTES:]).decode("ascii", "replace"))
    if found is None:
        raise damaged(path)
    folder = path.parent.parent / found[1]
    check_is_folder(folder)
    return folder / found[2]


def as_table(commit: StepResult, retries: int = 0) -> pa.Table:
    """Return a commit as it is in its file: columns and metadata."""
    change = commit.change
    rows, slugs, codes = _dropped(change)
    meta = {
        "rows_in": commit.rows_in,
        "seconds": commit.seconds,
        "summary": commit.summary,
        "notes": {name: float(figure) for name, figure in change.notes.items()},
        "logged": dict(change.logged),
        "without": change.without,
        "slugs": slugs,
        "retries": retries,
    }
    schema_meta = {
        _META: json.dumps(meta).encode(),
        b"dropped_rows": rows.astype("<i4").tobytes(),
        b"dropped_slugs": codes.astype("<i4").tobytes(),
    }
    if change.failed is not None:
        schema_meta[_FAILED] = change.failed.astype("<i4").tobytes()
    return pa.table(pack(change)).replace_schema_metadata(schema_meta)


def of_table(table: pa.Table) -> StepResult:
    """Return the commit of which `as_table` made a table."""
    meta = json.loads(table.schema.metadata[_META])
    rows = np.frombuffer(table.schema.metadata[b"dropped_rows"], "<i4")
    codes = np.frombuffer(table.schema.metadata[b"dropped_slugs"], "<i4")
    reasons = None
    if len(rows):
        at_N = np.full(meta["rows_in"], -1, np.int32)
        at_N[rows] = codes
        reasons = pa.array(meta["slugs"], pa.string()).take(pa.array(at_N, mask=at_N < 0))
    columns, parents = unpack(table)
    kept = table.schema.metadata.get(_FAILED)
    failed = None if kept is None else np.frombuffer(kept, "<i4").astype(np.int64)
    # Version 0.4 recorded no messages.
    logged = meta.get("logged", {})
    without = tuple(meta["without"])
    change = Change(columns, reasons, parents, without, meta["notes"], logged, failed)
    return StepResult(change, meta["rows_in"], meta["seconds"], meta["summary"])


def pack(change: Change) -> dict[str, pa.Array]:
    """Return what a change writes, and its parents as a column beside it."""
    columns = {name: flat(column) for name, column in change.columns.items()}
    if change.parents is not None:
        columns[_PARENT] = pa.array(change.parents, pa.int32())
    return columns


def unpack(table: pa.Table | pa.RecordBatch) -> tuple[dict[str, Any], Array | None]:
    """Return the columns and the parents that `pack` put together."""
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    parents = columns.pop(_PARENT, None)
    return columns, None if parents is None else np.asarray(parents).astype(np.int64)


def _dropped(change: Change) -> tuple[np.ndarray[Any, Any], list[str], np.ndarray[Any, Any]]:
    if change.reasons is None:
        return np.zeros(0, np.int32), [], np.zeros(0, np.int32)
    encoded = flat(change.reasons).dictionary_encode()
    rows = np.flatnonzero(np.asarray(encoded.is_valid()))
    codes = np.asarray(encoded.indices.fill_null(-1))[rows]
    return rows, encoded.dictionary.to_pylist(), codes


# --- How often failures of a step were computed again: keys of later steps depend on it ---
#
# It is in the name of a file in the step's folder, where no damage to its content can change it.

_COUNTER = "generation"
_AFTER_DAMAGE = 1_000_000
"""A number of retries that no earlier run has counted to."""


def retry_count(folder: AnyPath) -> int:
    """Return how often failures of the step with this folder were computed again.

    Version 0.4 wrote it into a file: where that is damaged, later steps get keys that no run had
    before.
    """
    numbers = (file.name.rpartition("-")[2] for file in folder.glob(f"{_COUNTER}-*"))
    counts = [int(number) for number in numbers if number.isdecimal()]
    old = folder / _COUNTER
    if old.exists():
        try:
            content = old.read_bytes() if isinstance(old, RemotePath) else read_file(old)
        except NotAFileError:
            content = b""
        text = content.decode("ascii", "replace")
        counts.append(int(text) if text.isdecimal() else _AFTER_DAMAGE)
    return max(counts, default=0)


def count_retry(folder: AnyPath) -> None:
    """Count one more retry of a step, so that later steps get other keys."""
    write_retry_count(folder, retry_count(folder) + 1)


def write_retry_count(folder: AnyPath, number: int) -> None:
    """Keep how often failures of a step were computed again."""
    write_file(counter_of(folder, number), f"{number}\n")


def counter_of(folder: AnyPath, number: int) -> AnyPath:
    """Return the file that keeps so many retries of a step."""
    return folder / f"{_COUNTER}-{number}"


def counts_retries(file: AnyPath) -> bool:
    """Return whether a file of the folder of a step keeps how often its results were retried."""
    return file.name.partition("-")[0] == _COUNTER


# --- Files in sections: a range is read, and checked, without the rest of the file ---
#
#     section | section | ... | index | size of the index
#
# The index is a record, see `operators/disk.py`, which belongs to this file of this folder. It
# has the size and the checksum of each section. A file in an object store is fetched in two
# requests: its end, where the index is, and the sections that are needed, one after the other.

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
    """Return a table by itself, with its schema: `pa.ipc.open_stream` reads it without a copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _opened(path: AnyPath) -> tuple[Any, int]:
    """Return what keeps a file in a store open, None of one on disk, and its size."""
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
