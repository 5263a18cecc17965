"""What steps of dataset scope keep of chunks, in files of which a range of buckets is read alone.

    rows of the first buckets | rows of the next buckets | ... | their numbers in the chunk

A bucket is a hash of what `Operator.shard` gives for a row, so rows that must be decided together
are in one bucket. Each part of a file is a section, see `dataset/sections.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators.groups import Array
from ..dataset.remote import AnyPath
from ..dataset.sections import Sections, arrow_stream, write_sections

BUCKETS = 1024
_PART_BYTES = 32 << 10
"""A part has at most so much, unless one bucket of it has more. Smaller ones take longer to parse
and have a longer index; of larger ones more is read that is not of the shard."""
_WORKING_BYTES = 64
"""Per row, beside its digest: row numbers, hashes, an order of them, reasons."""

_SECONDS = b"seconds"
_BYTES = b"bytes"
_SCHEMA = b"schema"
_BUCKET_ENDS = b"bucket_ends"
_PART_ENDS = b"part_ends"


class Shard(NamedTuple):
    """A range of buckets whose rows are decided together."""

    first: int
    stop: int


ALL_ROWS = Shard(0, BUCKETS)


class Digest(NamedTuple):
    """What a step keeps of a chunk.

    Attributes:
        sections: its file.
        schema: of the digest.
        part_ends: the bucket after the last one of each part.
        ends_B: int32[BUCKETS + 1], how many rows come before each bucket, and all of them.
        table_bytes: of all rows, in memory.
        seconds: that it took.
    """

    sections: Sections
    schema: pa.Schema
    part_ends: list[int]
    ends_B: Array
    table_bytes: int
    seconds: float

    @classmethod
    def open(cls, path: AnyPath) -> Digest:
        """Read all but the rows.

        Raises:
            DamagedError: what was read is not as it was written.
            FileNotFoundError: there is none.
        """
        sections = Sections.open(path)
        metadata = sections.metadata
        return cls(
            sections,
            pa.ipc.read_schema(pa.py_buffer(metadata[_SCHEMA])),
            np.frombuffer(metadata[_PART_ENDS], "<i4").tolist(),
            np.frombuffer(metadata[_BUCKET_ENDS], "<i4"),
            int(metadata[_BYTES]),
            float(metadata[_SECONDS]),
        )

    @property
    def num_rows(self) -> int:
        """Rows of the chunk."""
        return int(self.ends_B[-1])

    @property
    def is_sharded(self) -> bool:
        """Whether the rows are in order of their buckets; else they are in that of the chunk."""
        return len(self.sections.checksums) > len(self.part_ends)

    @property
    def bytes_B(self) -> Array:
        """Memory for the rows of each bucket, float64[BUCKETS]."""
        per_row = self.table_bytes / max(1, self.num_rows) + _WORKING_BYTES
        bytes_B: Array = np.diff(self.ends_B) * per_row
        return bytes_B

    def within(self, shard: Shard) -> slice:
        """The rows of a shard."""
        return slice(int(self.ends_B[shard.first]), int(self.ends_B[shard.stop]))

    def rows_of(self, shard: Shard) -> pa.Table:
        """The digest of these rows: mapped if they are of one part on disk, else in memory.

        Raises:
            DamagedError: a part of it is not as it was written.
            FileNotFoundError: the file has been removed since it was opened.
        """
        rows = self.within(shard)
        if rows.start == rows.stop:
            return self.schema.empty_table()
        ends_P = self.ends_B[self.part_ends]
        first = int(np.searchsorted(ends_P, rows.start, side="right"))
        last = int(np.searchsorted(ends_P, rows.stop))
        parts = self.sections.read(first, last + 1)
        table = pa.concat_tables(pa.ipc.open_stream(part).read_all() for part in parts)
        before = int(ends_P[first - 1]) if first else 0
        table = table.slice(rows.start - before, rows.stop - rows.start)
        # Operators loop over chunks. A shard of many parts is small: see `cut`.
        return table if len(parts) == 1 else table.combine_chunks()

    def chunk_rows(self) -> Array | None:
        """The row of the chunk for each row, int32[N]; None: they are in its order.

        Raises:
            DamagedError: they are not as they were written.
            FileNotFoundError: the file has been removed since it was opened.
        """
        if not self.is_sharded:
            return None
        parts = len(self.part_ends)
        (section,) = self.sections.read(parts, parts + 1)
        return np.frombuffer(section, "<i4")


def save_digest(path: AnyPath, table: pa.Table, bucket_N: Array | None, seconds: float) -> None:
    """Write the digest of a chunk.

    Args:
        path: of the file.
        table: a row for each row of the chunk, in its order.
        bucket_N: of each row, below `BUCKETS`; None: all are decided together.
        seconds: that it took.
    """
    if bucket_N is None:
        ends_B = np.array([0, *[table.num_rows] * BUCKETS])
        parts, numbers = [ALL_ROWS], []
    else:
        rows_N = np.argsort(bucket_N, kind="stable").astype("<i4")
        table = table.take(pa.array(rows_N))
        ends_B = np.cumsum([0, *np.bincount(bucket_N, minlength=BUCKETS)])
        parts, numbers = _parts(table, ends_B), [rows_N.tobytes()]
    table = table.replace_schema_metadata()
    starts = [int(ends_B[part.first]) for part in parts]
    tables = (
        table.slice(start, int(ends_B[part.stop]) - start)
        for start, part in zip(starts, parts, strict=True)
    )
    metadata = {
        _SECONDS: f"{seconds}".encode(),
        _BYTES: f"{table.nbytes}".encode(),
        _SCHEMA: table.schema.serialize().to_pybytes(),
        _BUCKET_ENDS: ends_B.astype("<i4").tobytes(),
        _PART_ENDS: np.array([part.stop for part in parts], "<i4").tobytes(),
    }
    write_sections(path, [*map(arrow_stream, tables), *numbers], metadata)


def cut(bytes_B: Iterable[float], most_bytes: float) -> list[Shard]:
    """Ranges of buckets that have at most so many bytes; a bucket that has more is alone.

    Args:
        bytes_B: of each bucket.
        most_bytes: of a range.
    """
    first, size, ranges = 0, 0.0, []
    for bucket, more in enumerate(bytes_B):
        if size and more and size + more > most_bytes:
            ranges.append(Shard(first, bucket))
            first, size = bucket, 0.0
        size += more
    return [*ranges, Shard(first, BUCKETS)]


def _parts(table: pa.Table, ends_B: Array) -> list[Shard]:
    if any(pa.types.is_dictionary(kind) for kind in table.schema.types):
        return [ALL_ROWS]  # Else each part would have the whole dictionary.
    per_row = table.nbytes / max(1, table.num_rows)
    return cut((np.diff(ends_B) * per_row).tolist(), _PART_BYTES)
