"""Our operators on Ray Data, as `dj-process` runs them with `executor_type: ray`.

Blocks are cut anew so that each holds whole groups; then every block is one task. No row is
shuffled and none leaves its order; the driver sees how blocks begin and end, and digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray

from ..operators import Change, Groups, Operator, RejuiceError, Scope
from .apply import change_of, decide, digest
from .books import DECISIONS, decisions
from .data_juicer import plain
from .frame import Frame

_GROUP = "prompt_id"


class Ends(NamedTuple):
    """How a block begins and ends.

    Attributes:
        rows: its rows.
        head: rows of its first group.
        first: `prompt_id` of its first group.
        last: `prompt_id` of its last group.
    """

    rows: int
    head: int
    first: Any
    last: Any


class Slice(NamedTuple):
    """Some rows of a block: `start` to `stop`."""

    block: int
    start: int
    stop: int


def run(operator: Operator, step: str, dataset: Any) -> tuple[Any, pa.Table]:
    """The dataset after one step, and the decisions that step made.

    Raises:
        RejuiceError: what the operator raised, in whichever worker it was.
    """
    for context in (dataset.context, ray.data.DataContext.get_current()):
        # Steps of Data-Juicer that are still to be run must not reorder blocks either.
        context.execution_options.preserve_order = True
    blocks = dataset.to_arrow_refs()
    ends = _get([_ends.remote(block) for block in blocks])
    if operator.scope is not Scope.ROW:
        blocks, ends = _aligned(blocks, ends)
    return _applied(operator, step, blocks, [end.rows for end in ends])


def cuts(ends: Sequence[Ends]) -> list[list[Slice]]:
    """Slices of blocks that make blocks of whole groups, in the order of the rows.

    A block gives the rows at its head that go on with the group before to where that group is.

    Example:
        >>> cuts([Ends(3, 2, "a", "b"), Ends(1, 1, "b", "b"), Ends(4, 1, "b", "c")])
        [[(0, 0, 3), (1, 0, 1), (2, 0, 1)], [(2, 1, 4)]]
    """
    made: list[list[Slice]] = []
    last: Any = None
    for block, end in enumerate(ends):
        if end.rows == 0:
            continue
        head = end.head if made and end.first == last else 0
        if head:
            made[-1].append(Slice(block, 0, head))
        if head < end.rows:
            made.append([Slice(block, head, end.rows)])
        last = end.last
    return made


def _aligned(blocks: list[Any], ends: list[Ends]) -> tuple[list[Any], list[Ends]]:
    out = []
    for slices in cuts(ends):
        first = slices[0]
        if len(slices) == 1 and (first.start, first.stop) == (0, ends[first.block].rows):
            out.append((blocks[first.block], ends[first.block]))
            continue
        rows = sum(part.stop - part.start for part in slices)
        whole = _join.remote(
            [(part.start, part.stop) for part in slices], *(blocks[part.block] for part in slices)
        )
        out.append((whole, ends[first.block]._replace(rows=rows)))
    if not out:  # No rows at all: one block keeps the columns.
        return blocks[:1], ends[:1]
    return [block for block, _ in out], [end for _, end in out]


def _applied(
    operator: Operator, step: str, blocks: list[Any], rows: list[int]
) -> tuple[Any, pa.Table]:
    starts = [int(start) for start in np.cumsum([0, *rows])]
    changes: list[Any] = [None] * len(blocks)
    if operator.scope is Scope.DATASET:
        digests = _get([_digest.remote(operator, block) for block in blocks])
        whole = decide(
            operator, pa.concat_tables(digests, promote_options="permissive"), starts[-1]
        )
        changes = list(_shares(whole, starts))
    after = _change.options(num_returns=2)
    pairs = [
        after.remote(operator, step, block, start, change)
        for block, start, change in zip(blocks, starts, changes, strict=False)
    ]
    dropped = _get([books for _, books in pairs])
    out = ray.data.from_arrow_refs([block for block, _ in pairs])
    return out, pa.concat_tables([DECISIONS.empty_table(), *dropped])


def _shares(change: Change, starts: Sequence[int]) -> Iterator[Change]:
    """The part of a change that is about each block."""
    for start, stop in zip(starts, starts[1:], strict=False):
        reasons = None if change.reasons is None else _copy(change.reasons, start, stop)
        begin, end, parents = start, stop, None
        if change.parents is not None:
            begin, end = (int(at) for at in np.searchsorted(change.parents, [start, stop]))
            parents = change.parents[begin:end] - start
        columns = {name: _copy(column, begin, end) for name, column in change.columns.items()}
        yield Change(columns, reasons, parents, change.without)


def _copy(column: Any, start: int, stop: int) -> pa.Array:
    # A slice would take the whole column with it to every worker.
    return column.take(pa.array(np.arange(start, stop)))


def _get(refs: list[Any]) -> list[Any]:
    """Results of tasks. Of several errors, the one of the first block is raised."""
    results = list(ray.get(refs))
    for result in results:
        if isinstance(result, RejuiceError):
            raise result
    return results


@ray.remote
def _ends(block: pa.Table) -> Ends:
    if block.num_rows == 0 or _GROUP not in block.column_names:
        return Ends(block.num_rows, 0, None, None)  # Nothing goes on from block to block.
    groups = Groups.of(block)
    ids = block[_GROUP]
    return Ends(block.num_rows, int(groups.sizes_G[0]), ids[0].as_py(), ids[-1].as_py())


@ray.remote
def _join(slices: list[tuple[int, int]], *blocks: pa.Table) -> pa.Table:
    parts = [b.slice(start, stop - start) for b, (start, stop) in zip(blocks, slices, strict=True)]
    return pa.concat_tables(parts, promote_options="permissive").combine_chunks()


# A task gives its error as its result: raised in a worker, Ray would print a trace per block.
@ray.remote
def _digest(operator: Operator, block: pa.Table) -> pa.Table | RejuiceError:
    try:
        return digest(operator, Frame.of(plain(block)))
    except RejuiceError as error:
        return error


@ray.remote
def _change(
    operator: Operator, step: str, block: pa.Table, first_row: int, change: Change | None
) -> tuple[pa.Table | None, pa.Table | RejuiceError]:
    frame = Frame.of(plain(block))
    try:
        change = change_of(operator, frame) if change is None else change
    except RejuiceError as error:
        return None, error
    return frame.after(change).table(), decisions(frame, change, step, first_row)
