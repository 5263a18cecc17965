"""A dataset in parts: each part's share of a change, and prompts that must be in one piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Change, DataError, Groups
from ...operators.groups import Array, hash_each
from .frame import Frame


def shares(change: Change, starts: Sequence[int]) -> Iterator[Change]:
    """The part of a change that is about each part of the rows.

    Args:
        change: what is done to all rows.
        starts: where parts begin, and where the last one ends.
    """
    ends, notes = [int(at) for at in starts], change.notes
    if change.parents is not None:
        # A row without a parent goes with the row before it.
        behind = np.maximum.accumulate(np.append(0, change.parents))[1:]
        ends = [int(at) for at in np.searchsorted(behind, starts)]
    for (start, stop), (begin, end) in zip(pairwise(starts), pairwise(ends), strict=True):
        reasons = None if change.reasons is None else _copy(change.reasons, start, stop)
        parents = None
        if change.parents is not None:
            own = change.parents[begin:end]
            parents = np.where(own < 0, -1, own - start)
        columns = {name: _copy(column, begin, end) for name, column in change.columns.items()}
        yield Change(columns, reasons, parents, change.without, notes)
        notes = {}  # They are about the whole: they are told once, with the first part.


def _copy(column: pa.Array, start: int, stop: int) -> pa.Array:
    # A slice would take the whole column with it, to every worker or file.
    return column.take(pa.array(np.arange(start, stop)))


def joined(changes: Sequence[Change], sizes: Sequence[int]) -> Change:
    """The change to all rows, from those to parts of `sizes` rows: the reverse of `shares`."""
    first = changes[0]
    columns = {
        name: pa.chunked_array([part for change in changes for part in _chunks(change, name)])
        for name in first.columns
    }
    reasons = pa.concat_arrays(
        pa.nulls(size, pa.string()) if change.reasons is None else change.reasons
        for change, size in zip(changes, sizes, strict=True)
    )
    parents = None
    if first.parents is not None:
        offsets = np.cumsum([0, *sizes[:-1]])
        own = [
            (np.asarray(change.parents), at) for change, at in zip(changes, offsets, strict=True)
        ]
        parents = np.concatenate([np.where(rows < 0, -1, rows + at) for rows, at in own])
    notes: Counter[str] = Counter()
    for change in changes:
        notes.update(change.notes)
    return Change(columns, reasons, parents, first.without, notes)


def _chunks(change: Change, name: str) -> list[pa.Array]:
    column = change.columns[name]
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


class Heads(NamedTuple):
    """Where the groups of a part begin.

    Attributes:
        hashes_G: uint64, a hash of each group's `prompt_id`.
        rows_G: int64, its first row in the dataset, from 0.
    """

    hashes_G: Array
    rows_G: Array


NO_HEADS = Heads(np.zeros(0, np.uint64), np.zeros(0, np.int64))


def heads(frame: Frame, first_row: int) -> Heads:
    """The groups of a part, before which the dataset has `first_row` rows.

    Groups of rows that an operator made are left out: they have no row in the dataset.
    """
    if "prompt_id" not in frame.column_names:
        return NO_HEADS
    prompt_ids = frame.select(["prompt_id"])["prompt_id"]
    starts_G = Groups.of_column(prompt_ids).starts_G
    starts_G = starts_G[frame.source_rows[starts_G] >= 0]
    hashes_G = hash_each(prompt_ids.take(pa.array(starts_G)))
    return Heads(hashes_G, frame.source_rows[starts_G] + first_row)


def check_groups(parts: Sequence[Heads]) -> None:
    """Every prompt must be one run of rows; a second run would be a second, smaller group.

    Args:
        parts: the groups of all parts, in order.

    Raises:
        DataError: a prompt comes up again; the message names both rows, from 1.
    """
    hashes = np.concatenate([part.hashes_G for part in parts])
    order = np.argsort(hashes, kind="stable")
    again = np.flatnonzero(np.diff(hashes[order]) == 0)
    if len(again):
        rows = np.concatenate([part.rows_G for part in parts])[order]
        first, second = int(rows[again[0]]) + 1, int(rows[again[0] + 1]) + 1
        raise DataError(
            f"rows {first} and {second} have the same prompt but are not next to each other",
            "sort the dataset by prompt, see docs/recipes.md",
        )
