"""Parquet files as they are: which rows of them make a chunk, and reading those rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Groups
from ...operators.arrow_compute import pc
from .files import DataFile, errors_of_format
from .remote import RemotePath
from .schemas import decoded, decoded_schema, one_table

# --- Where a dataset is cut into chunks: only where a group ends ----------------------

CHUNK_BYTES = 256 << 20
"""Chunks of long rows have fewer rows: Arrow concatenates at most 2 GB of text."""

GroupColumns: TypeAlias = Sequence[str] | Sequence[Sequence[str]]
"""Columns whose consecutive equal values make a group. Of several such lists, each is of some rows,
in which its columns are not all null: rows are of one group where those of any list are equal."""


def chunked(
    batches: Iterator[pa.Table], chunk_rows: int, group_by: GroupColumns
) -> Iterator[pa.Table]:
    """Tables of about `chunk_rows` rows that end where a group ends."""
    rest: pa.Table | None = None
    for found in _collected(batches, chunk_rows):
        table = found if rest is None else one_table([rest, found])
        begin = 0
        most = rows_within(chunk_rows, table.num_rows, table.nbytes)
        for at in cuts(_starts(table, group_by), most):
            yield table.slice(begin, at - begin)
            begin = at
        rest = table.slice(begin)
    if rest is not None and rest.num_rows:
        yield rest


def _collected(batches: Iterator[pa.Table], chunk_rows: int) -> Iterator[pa.Table]:
    """The rows of batches, those of small ones together, so that each is looked at once."""
    kept, rows, size = list[pa.Table](), 0, 0
    for batch in batches:
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= chunk_rows or size >= CHUNK_BYTES:
            yield one_table(kept).combine_chunks()
            kept, rows, size = [], 0, 0
    if kept:
        yield one_table(kept).combine_chunks()


def rows_within(most: int, rows: int, size: int) -> int:
    """At most `most` rows, and about as many as fit into a chunk if `rows` of them have `size`."""
    return min(most, max(1, rows * CHUNK_BYTES // max(1, size)))


def cuts(starts_G: NDArray[np.int64], most: int) -> Iterator[int]:
    """Rows to cut at: the last group start within `most` rows, else the first after them.

    The last group may go on in further rows, so no cut comes after its start.
    """
    cut = 0
    while len(starts_G) and starts_G[-1] >= cut + most:
        within = int(np.searchsorted(starts_G, cut + most, side="right")) - 1
        within += starts_G[within] <= cut
        cut = int(starts_G[within])
        starts_G = starts_G[within:]
        yield cut


def _starts(table: pa.Table, group_by: GroupColumns) -> NDArray[np.int64]:
    """Rows at which a group starts, by the columns that are there; all, if none are."""
    starts_N = np.ones(table.num_rows, bool)
    lists = lists_of(group_by)
    for each in lists:
        names = [name for name in each if name in table.column_names]
        if not names:
            continue
        changes_N = np.zeros(table.num_rows, bool)
        for name in names:
            changes_N[Groups.of_column(table[name]).starts_G] = True
        if len(lists) > 1:  # Where all are null, the row is one of another list.
            nulls = (np.asarray(pc.is_null(table[name])) for name in names)
            changes_N |= np.logical_and.reduce(list(nulls))
        starts_N &= changes_N
    return np.flatnonzero(starts_N)


def lists_of(group_by: GroupColumns) -> list[Sequence[str]]:
    """The lists of columns, where only one may be given as it is."""
    plain = [each for each in group_by if isinstance(each, str)]
    return [plain] if plain else [each for each in group_by if not isinstance(each, str)]


# --- Parquet --------------------------------------------------------------------------

_SAMPLED_ROWS = 64
"""Rows of each row group that are read to know how large its rows are in memory."""
_FETCHED_BYTES = 64 * 1024
"""Fetched at once of a column in a store, where only its first rows are read."""
_TOGETHER_BYTES = 1 << 25
"""Row groups of a store are fetched together until they have so many bytes."""
_MOST_DECODED = 2.0
"""A row group can only be decoded from its start. Chunks are read from the file itself unless that
would decode its rows more often than this."""


class RowRange(NamedTuple):
    file: int  # its number among the files of the dataset
    first: int  # the first of the rows, from 0
    rows: int  # how many


class RowGroups(NamedTuple):
    # int64[F+1], the row of the dataset at which each file starts, and the end
    first_rows: NDArray[np.int64]
    groups: NDArray[np.int64]  # int64[R+1], the rows at which row groups start, and the end
    size: float  # bytes of all rows in memory, about

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> RowGroups:
        first_rows, groups, size = [0], [0], 0.0
        for file in files:
            with parquet_file(file, few_rows=True) as parquet:
                for number in range(parquet.num_row_groups):
                    if rows := parquet.metadata.row_group(number).num_rows:
                        groups.append(groups[-1] + rows)
                        size += _size_in_memory(file, parquet, number)
            first_rows.append(groups[-1])
        return cls(np.array(first_rows), np.array(groups), size)

    def chunks(
        self, columns: Iterator[pa.Table] | None, chunk_rows: int, group_by: GroupColumns
    ) -> tuple[tuple[RowRange, ...], ...]:
        """The rows of each chunk; none where most rows would be decoded several times.

        `columns` are those of `group_by`, of all rows; None: each row is a group.
        """
        if columns is None:
            columns = (pa.table({"": pa.nulls(rows)}) for rows in np.diff(self.groups))
        most = rows_within(chunk_rows, int(self.groups[-1]), int(self.size))
        sizes = (table.num_rows for table in chunked(columns, most, group_by))
        bounds = np.fromiter(accumulate(sizes, initial=0), np.int64)
        first = self.groups[np.searchsorted(self.groups, bounds[:-1], side="right") - 1]
        last = self.groups[np.searchsorted(self.groups, bounds[1:], side="left")]
        if (last - first).sum() > _MOST_DECODED * self.groups[-1]:
            return ()
        return tuple(tuple(self._ranges(*edges)) for edges in pairwise(bounds.tolist()))

    def _ranges(self, row: int, end: int) -> Iterator[RowRange]:
        while row < end:
            file = int(np.searchsorted(self.first_rows, row, side="right")) - 1
            first = int(self.first_rows[file])
            rows = min(end, int(self.first_rows[file + 1])) - row
            yield RowRange(file, row - first, rows)
            row += rows


def read_schema(file: DataFile) -> pa.Schema:
    """The schema of a file's rows as they are read; empty where it has no row."""
    with parquet_file(file) as parquet:
        if not parquet.metadata.num_rows:
            return pa.schema([])
        return decoded_schema(file, parquet.schema_arrow)


def read_batches(
    file: DataFile, *, rows: int = 65_536, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Tables of at most `rows` rows of a file, fewer where rows are long."""
    with parquet_file(file) as parquet:
        groups = (parquet.metadata.row_group(i) for i in range(parquet.num_row_groups))
        size = sum(group.total_byte_size for group in groups)
        rows = rows_within(rows, parquet.metadata.num_rows, size)
        there = None if columns is None else _there(parquet, columns)
        for numbers in _read_together(file, parquet):
            for batch in parquet.iter_batches(rows, row_groups=numbers, columns=there):
                yield _picked(file, pa.Table.from_batches([batch]), columns)


def _read_together(file: DataFile, parquet: Any) -> Iterator[list[int]]:
    """The row groups of a file, in order: from a store, those of a list are fetched at once."""
    numbers, size = list[int](), 0
    for number in range(parquet.num_row_groups):
        numbers.append(number)
        size += parquet.metadata.row_group(number).total_byte_size
        if size >= _TOGETHER_BYTES and _is_far(file):
            yield numbers
            numbers, size = [], 0
    if numbers:
        yield numbers


def read_range(file: DataFile, found: RowRange, columns: Sequence[str]) -> pa.Table:
    """Some columns of consecutive rows; columns that the file lacks are left out."""
    file.check_unchanged()
    with parquet_file(file) as parquet:
        firsts = _first_rows(file)
        group = bisect_right(firsts, found.first) - 1
        groups = [group]
        while firsts[groups[-1] + 1] < found.first + found.rows:
            groups.append(groups[-1] + 1)
        # Row groups without a row are between others of the same first row.
        table = parquet.read_row_groups(groups, columns=_there(parquet, columns))
        picked = _picked(file, table, columns)
        rows = picked.slice(found.first - firsts[group], found.rows)
    if rows.num_columns and rows.num_rows != found.rows:
        raise file.changed()
    return rows


@contextmanager
def parquet_file(file: DataFile, *, few_rows: bool = False) -> Iterator[Any]:
    import pyarrow.parquet as pq  # It loads clients of object stores, which `check` does not need.

    # The parts of a row group are fetched from a store at once, and not one after another.
    with (
        errors_of_format(file, "Parquet"),
        file.open() as source,
        pq.ParquetFile(
            source,
            metadata=_footer(file),
            pre_buffer=_is_far(file) and not few_rows,
            buffer_size=_FETCHED_BYTES if _is_far(file) and few_rows else 0,
        ) as parquet,
    ):
        yield parquet


def schema_metadata(file: DataFile) -> Mapping[bytes, bytes]:
    with errors_of_format(file, "Parquet"):
        return _footer(file).schema.to_arrow_schema().metadata or {}


def _is_far(file: DataFile) -> bool:
    return isinstance(file.path, RemotePath)


@lru_cache(maxsize=64)
def _footer(file: DataFile) -> Any:
    """The metadata of a file as it was when it was opened: each column is read by itself."""
    import pyarrow.parquet as pq

    with file.open() as source:
        return pq.read_metadata(source)


@lru_cache(maxsize=16)
def _first_rows(file: DataFile) -> list[int]:
    footer = _footer(file)
    rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    return list(accumulate(rows, initial=0))


def _there(parquet: Any, columns: Sequence[str]) -> list[str]:
    names = set(parquet.schema_arrow.names)
    return [name for name in columns if name in names]


def _picked(file: DataFile, table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """Exactly some columns: Parquet also reads `a.b` when it is asked for `a`."""
    table.validate(full=True)  # A flipped bit may leave texts that are none.
    table = decoded(file, table)
    if columns is None:
        return table
    return table.select([name for name in columns if name in table.column_names])


def _size_in_memory(file: DataFile, parquet: Any, number: int) -> float:
    """Bytes that the rows of a row group take in memory, about.

    Parquet stores a text that is repeated once, as are the prompts of many responses, and counts
    it once. So a few rows are read, too.
    """
    group = parquet.metadata.row_group(number)
    batches = parquet.iter_batches(batch_size=_SAMPLED_ROWS, row_groups=[number])
    batch = next(batches, None)
    if batch is None:
        raise pa.ArrowInvalid(f"row group {number + 1} has no rows")
    sample = decoded(file, pa.Table.from_batches([batch]))
    sampled: float = sample.nbytes / sample.num_rows * group.num_rows
    return max(float(group.total_byte_size), sampled)
