"""What an operator wants done to a table, and how such changes are split and put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .columns import flat

Columns = tuple[str, ...]


class Change(NamedTuple):
    """What an operator wants done to a table of N rows.

    Attributes:
        columns: new or replaced columns, each as long as the output: N, or len(parents).
        reasons: string[N]; null keeps the row, a slug drops it. None keeps all.
        parents: int64[M]: the input row each output row comes from, for operators that expand
            rows. None means one output row per input row. Columns that are not written are
            copied from the parent. -1 is a new row without a parent: there they are null.
            Parents ascend, -1 aside. An input row without a child needs a reason.
        without: columns of the input that the output no longer has.
        notes: figures for the run report (a shortfall, a count); summed over chunks.
    """

    columns: Mapping[str, pa.Array] = {}
    reasons: pa.Array | None = None
    parents: NDArray[np.int64] | None = None
    without: Columns = ()
    notes: Mapping[str, float] = {}

    def drops_all(self) -> bool:
        """Whether every row is dropped."""
        return self.reasons is not None and not self.reasons.null_count


def surviving_rows(change: Change, n: int) -> NDArray[np.int64] | None:
    """For each output row of `change`, the input row it comes from; None: all n, in order."""
    if change.parents is not None:
        return np.asarray(change.parents, np.int64)
    if change.reasons is None or change.reasons.null_count == n:
        return None
    return np.flatnonzero(np.asarray(change.reasons.is_null()))


def split(change: Change, starts: Sequence[int]) -> Iterator[Change]:
    """The changes to parts of the rows, of which `change` is the change to all.

    Args:
        change: to all rows.
        starts: the first row of each part, and the end of the last part.
    """
    ends, notes = [int(at) for at in starts], change.notes
    if change.parents is not None:
        # A row without a parent goes with the row before it.
        nearest = np.maximum.accumulate(np.append(0, change.parents))[1:]
        ends = [int(at) for at in np.searchsorted(nearest, starts)]
    for (start, stop), (begin, end) in zip(pairwise(starts), pairwise(ends), strict=True):
        reasons = None if change.reasons is None else _copy(change.reasons, start, stop)
        parents = None
        if change.parents is not None:
            own = np.asarray(change.parents)[begin:end]
            parents = np.where(own < 0, -1, own - start)
        columns = {name: _copy(column, begin, end) for name, column in change.columns.items()}
        yield Change(columns, reasons, parents, change.without, notes)
        notes = {}  # They are about all rows, so they are counted once, with the first part.


def concatenate(changes: Sequence[Change], sizes: Sequence[int]) -> Change:
    """The change to all rows, from the changes to parts of `sizes` rows: the inverse of `split`."""
    first = changes[0]
    columns = {
        name: pa.chunked_array([part for change in changes for part in _chunks(change, name)])
        for name in first.columns
    }
    reasons = pa.concat_arrays(
        pa.nulls(size, pa.string()) if change.reasons is None else flat(change.reasons)
        for change, size in zip(changes, sizes, strict=True)
    )
    parents = None
    if any(change.parents is not None for change in changes):
        offsets = np.cumsum([0, *sizes[:-1]])
        own = [_parents(change, size) for change, size in zip(changes, sizes, strict=True)]
        moved = [np.where(r < 0, -1, r + at) for r, at in zip(own, offsets, strict=True)]
        parents = np.concatenate(moved)
    notes: Counter[str] = Counter()
    for change in changes:
        notes.update(change.notes)
    return Change(columns, reasons, parents, first.without, notes)


def _parents(change: Change, n: int) -> NDArray[np.int64]:
    return np.arange(n) if change.parents is None else np.asarray(change.parents)


def _copy(column: Any, start: int, stop: int) -> Any:
    # A slice would keep the whole column alive, in every worker and every file.
    return column.take(pa.array(np.arange(start, stop)))


def _chunks(change: Change, name: str) -> list[pa.Array]:
    column = change.columns[name]
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]
