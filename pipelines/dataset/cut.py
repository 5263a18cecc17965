"""Where a dataset is cut into chunks: only where a group ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import add

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Groups
from .schemas import conform, unify

CHUNK_BYTES = 256 << 20
"""Chunks of long rows have fewer rows: Arrow concatenates at most 2 GB of text."""


def chunked(
    batches: Iterator[pa.Table], chunk_rows: int, group_by: Sequence[str]
) -> Iterator[pa.Table]:
    """Tables of about `chunk_rows` rows that end where a group ends."""
    rest: pa.Table | None = None
    for batch in batches:
        table = batch
        if rest is not None:
            schema = unify([rest.schema, batch.schema])
            table = pa.concat_tables([conform(rest, schema), conform(batch, schema)])
        begin = 0
        most = rows_within(chunk_rows, table.num_rows, table.nbytes)
        for at in cuts([_starts(table, group_by)], partial(add, most)):
            yield table.slice(begin, at - begin)
            begin = at
        rest = table.slice(begin)
    if rest is not None and rest.num_rows:
        yield rest


def rows_within(most: int, rows: int, size: int) -> int:
    """At most `most` rows, and about as many as fit into a chunk if `rows` of them have `size`."""
    return min(most, max(1, rows * CHUNK_BYTES // max(1, size)))


def cuts(starts: Iterable[NDArray[np.int64]], limit: Callable[[int], int]) -> Iterator[int]:
    """Rows to cut at: the last group start up to the limit of a chunk, else the first after it.

    Args:
        starts: int64[G] each, rows at which groups start, in order; the first is row 0.
        limit: of the first row of a chunk: the row at which the chunk should end, at the latest.

    The last group that is known may go on, so no cut comes after its start.
    """
    cut, open_G = 0, np.zeros(0, np.int64)
    for found in starts:
        open_G = np.concatenate([open_G, found])
        while len(open_G) and open_G[-1] >= (end := limit(cut)):
            within = int(np.searchsorted(open_G, end, side="right")) - 1
            if open_G[within] <= cut:
                within += 1
            cut = int(open_G[within])
            open_G = open_G[within:]
            yield cut


def starts_of_batches(batches: Iterable[pa.Table]) -> Iterator[NDArray[np.int64]]:
    """Rows at which groups of equal rows start, batch by batch; the batches have one schema."""
    first, last = 0, None
    for batch in batches:
        if not batch.num_rows:
            continue
        table = batch if last is None else pa.concat_tables([last, batch])
        # With the last row before it, the first row of a batch starts a group only if it differs.
        starts = _starts(table, table.column_names)
        yield starts + first if last is None else starts[1:] - 1 + first
        first += batch.num_rows
        last = batch.slice(batch.num_rows - 1)


def _starts(table: pa.Table, group_by: Sequence[str]) -> NDArray[np.int64]:
    """Rows at which a group starts: a change in any of the columns that are there."""
    names = [name for name in group_by if name in table.column_names]
    if not names:
        return np.arange(table.num_rows)
    of_columns = [Groups.of_column(table[name]).starts_G for name in names]
    return np.unique(np.concatenate(of_columns)).astype(np.int64)
