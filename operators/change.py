"""What an operator wants done to a table, and how such changes are split and put together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .columns import flat

Columns = tuple[str, ...]

CALL_FAILED = "llm_call_failed"
"""The reason of a row that a server gave no answer for, or the note that counts such rows, of an
operator that `asks_server`."""
OTHER_MESSAGES = "other messages"
_MOST_KINDS = 20
_VARYING = re.compile(r"\b(?:0x)?[0-9a-fA-F-]{12,}\b|\d+")
"""Ids and numbers in a message."""


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
        logged: WARNING and ERROR messages of a library that does the work, and how often each was
            logged; added up over chunks by `merge_logged`.
        failed: int64[K]: the input rows that the operator failed on for a reason that another
            attempt may not meet. A filter drops them, a mapper leaves them as they are. None: it
            does not say; reasons in columns `..._missing` may.
    """

    columns: Mapping[str, pa.Array] = {}
    reasons: pa.Array | None = None
    parents: NDArray[np.int64] | None = None
    without: Columns = ()
    notes: Mapping[str, float] = {}
    logged: Mapping[str, int] = {}
    failed: NDArray[np.int64] | None = None

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


def split(
    change: Change, starts: Sequence[int], only: Container[int] | None = None
) -> Iterator[Change]:
    """The changes to parts of the rows, of which `change` is the change to all.

    Args:
        change: to all rows.
        starts: the first row of each part, and the end of the last part.
        only: the numbers of the parts that are given, from 0 on; None: all.
    """
    ends, notes, logged = [int(at) for at in starts], change.notes, change.logged
    if change.parents is not None:
        # A row without a parent goes with the row before it.
        nearest = np.maximum.accumulate(np.append(0, change.parents))[1:]
        ends = [int(at) for at in np.searchsorted(nearest, starts)]
    parts = zip(pairwise(starts), pairwise(ends), strict=True)
    for number, ((start, stop), (begin, end)) in enumerate(parts):
        if only is not None and number not in only:
            notes, logged = {}, {}
            continue
        reasons = None if change.reasons is None else _copy(change.reasons, start, stop)
        parents = None
        if change.parents is not None:
            own = np.asarray(change.parents)[begin:end]
            parents = np.where(own < 0, -1, own - start)
        columns = {name: _copy(column, begin, end) for name, column in change.columns.items()}
        failed = change.failed
        if failed is not None:
            failed = failed[(failed >= start) & (failed < stop)] - start
        yield Change(columns, reasons, parents, change.without, notes, logged, failed)
        notes, logged = {}, {}  # About all rows: they are counted once, with the first part.


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
    failed = None
    if any(change.failed is not None for change in changes):
        at_K = zip(changes, np.cumsum([0, *sizes[:-1]]), strict=True)
        failed = np.concatenate([c.failed + at for c, at in at_K if c.failed is not None])
    logged = merge_logged(change.logged for change in changes)
    return Change(columns, reasons, parents, first.without, notes, logged, failed)


def interleave(changes: Sequence[Change], rows: Sequence[NDArray[np.integer]]) -> Change:
    """The change to all rows, from the changes to parts whose rows lie between each other.

    Args:
        changes: to each part, without parents.
        rows: int[n], the rows of each part; together they are all rows, each once.
    """
    joined = concatenate(changes, [len(part) for part in rows])
    rows_N = np.concatenate(rows)
    order = pa.array(np.argsort(rows_N))
    columns = {name: column.take(order) for name, column in joined.columns.items()}
    failed = None if joined.failed is None else np.sort(rows_N[joined.failed]).astype(np.int64)
    reasons = None if joined.reasons is None else joined.reasons.take(order)
    return joined._replace(columns=columns, reasons=reasons, failed=failed)


def merge_logged(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """How often each kind of message was logged in all parts, the most frequent first.

    Messages that differ only in numbers and ids are of one kind, which has the text of that one of
    them that sorts first. Of too many kinds, the rarer ones are counted together.
    """
    texts: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for part in parts:
        for message, n in part.items():
            kind = _VARYING.sub("#", message)
            texts[kind] = min(texts.get(kind, message), message)
            counts[kind] += n
    # Not `most_common`, which leaves the order of equal counts to that of the threads.
    kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))
    others = sum(counts[kind] for kind in kinds[_MOST_KINDS:])
    found = {texts[kind]: counts[kind] for kind in kinds[:_MOST_KINDS]}
    return {**found, OTHER_MESSAGES: found.get(OTHER_MESSAGES, 0) + others} if others else found


def _parents(change: Change, n: int) -> NDArray[np.int64]:
    return np.arange(n) if change.parents is None else np.asarray(change.parents)


def _copy(column: Any, start: int, stop: int) -> Any:
    # A slice would keep the whole column alive, in every worker and every file.
    return column.take(pa.array(np.arange(start, stop)))


def _chunks(change: Change, name: str) -> list[pa.Array]:
    column = change.columns[name]
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]
