"""Our operators on Ray Data, as `dj-process` runs them with `executor_type: ray`.

Blocks are cut again so that each holds whole groups; then every block is one task. No row is
shuffled and none leaves its order; the driver sees how blocks begin and end, and digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray

from ...operators import Change, Groups, RejuiceError, ResumableOperator, Scope
from ..data_juicer.tables import plain
from ..dataset.write import filled
from ..engine.frame import Frame, GroupStarts, check_contiguous
from ..engine.report import AuditLog
from ..engine.steps import (
    apply_operator,
    apply_steps,
    apply_to_digests,
    digest,
    known_change,
    prefix_errors_with_step,
    run_step,
)
from ..recipe.steps import Step

_GROUP = "prompt_id"


class Ends(NamedTuple):
    rows: int  # its rows
    head: int  # rows of its first group
    first: Any  # `prompt_id` of its first group
    last: Any  # `prompt_id` of its last group


class Slice(NamedTuple):
    block: int
    start: int
    stop: int


def run(step: Step, dataset: Any) -> tuple[Any, AuditLog]:
    for context in (dataset.context, ray.data.DataContext.get_current()):
        # Steps of Data-Juicer that are still to be run must not reorder blocks either.
        context.execution_options.preserve_order = True
    blocks = dataset.to_arrow_refs()
    look = ray.remote(_ends)
    pairs = zip(blocks, _get([look.remote(block) for block in blocks]), strict=True)
    # A block without rows may have lost its columns too, on the way through Data-Juicer's steps.
    full = [(block, end) for block, end in pairs if end.rows]
    if not full:
        return dataset, AuditLog()
    blocks, ends = [block for block, _ in full], [end for _, end in full]
    has_groups = step.operator.scope is not Scope.ROW
    if has_groups:
        blocks, ends = _aligned(blocks, ends)
    starts = [int(start) for start in np.cumsum([0, *(end.rows for end in ends)])]
    if has_groups:
        begin = ray.remote(_group_starts)
        found = [begin.remote(*pair) for pair in zip(blocks, starts, strict=False)]
        with prefix_errors_with_step(step):
            check_contiguous(_get(found))
    return _apply(step, blocks, starts)


def cuts(ends: Sequence[Ends]) -> list[list[Slice]]:
    """Slices of blocks that make blocks of whole groups, in the order of the rows.

    A block, none of which is empty, gives the rows at its head that go on with the group before
    to where that group is.

    Example:
        >>> cuts([Ends(3, 2, "a", "b"), Ends(1, 1, "b", "b"), Ends(4, 1, "b", "c")])
        [[(0, 0, 3), (1, 0, 1), (2, 0, 1)], [(2, 1, 4)]]
    """
    made: list[list[Slice]] = []
    last: Any = None
    for block, end in enumerate(ends):
        head = end.head if made and end.first == last else 0
        if head:
            made[-1].append(Slice(block, 0, head))
        if head < end.rows:
            made.append([Slice(block, head, end.rows)])
        last = end.last
    return made


def _aligned(blocks: list[Any], ends: list[Ends]) -> tuple[list[Any], list[Ends]]:
    join = ray.remote(_join)
    out = []
    for slices in cuts(ends):
        first = slices[0]
        if len(slices) == 1 and (first.start, first.stop) == (0, ends[first.block].rows):
            out.append((blocks[first.block], ends[first.block]))
            continue
        rows = sum(part.stop - part.start for part in slices)
        whole = join.remote(
            [(part.start, part.stop) for part in slices], *(blocks[part.block] for part in slices)
        )
        out.append((whole, ends[first.block]._replace(rows=rows)))
    return [block for block, _ in out], [end for _, end in out]


def _apply(step: Step, blocks: list[Any], starts: list[int]) -> tuple[Any, AuditLog]:
    operator = step.operator
    changes: list[Any] = [None] * len(blocks)
    if operator.scope is Scope.DATASET:
        digests = _digests(step, blocks)
        with prefix_errors_with_step(step):
            changes = list(apply_to_digests(operator, digests))
    elif isinstance(operator, ResumableOperator):
        # Here, block by block: it has workers of its own, and a task would open another engine.
        for at, block in enumerate(blocks):
            (view,) = _digests(step, [block])
            with prefix_errors_with_step(step):
                changes[at] = ray.put(apply_operator(operator, view, view.num_rows))
    task = ray.remote(num_returns=2)(_apply_to_block)
    pairs = [
        task.remote(step, block, start, change)
        for block, start, change in zip(blocks, starts, changes, strict=False)
    ]
    log = AuditLog()
    for part in _get([part for _, part in pairs]):
        log.merge(part)
    return ray.data.from_arrow_refs([block for block, _ in pairs]), log


def _digests(step: Step, blocks: list[Any]) -> list[pa.Table]:
    reduce = ray.remote(_digest)
    return _get([reduce.remote(step, block) for block in blocks])


def _get(refs: list[Any]) -> list[Any]:
    """Results of tasks. Of several errors, the one of the first block is raised."""
    results = list(ray.get(refs))
    for result in results:
        if isinstance(result, RejuiceError):
            raise result
    return results


def _ends(block: pa.Table) -> Ends:
    if block.num_rows == 0 or _GROUP not in block.column_names:
        return Ends(block.num_rows, 0, None, None)  # Nothing goes on from the block before.
    groups = Groups.of(block)
    ids = block[_GROUP]
    return Ends(block.num_rows, int(groups.sizes_G[0]), ids[0].as_py(), ids[-1].as_py())


def _join(slices: list[tuple[int, int]], *blocks: pa.Table) -> pa.Table:
    parts = [b.slice(start, stop - start) for b, (start, stop) in zip(blocks, slices, strict=True)]
    return pa.concat_tables(parts, promote_options="permissive").combine_chunks()


def _group_starts(block: pa.Table, first_row: int) -> GroupStarts:
    return GroupStarts.of(Frame.of(plain(block)), first_row)


# A task returns its error: raised in a worker, Ray would print a trace per block.
def _digest(step: Step, block: pa.Table) -> pa.Table | RejuiceError:
    try:
        with prefix_errors_with_step(step):
            return digest(step.operator, Frame.of(plain(block)))
    except RejuiceError as error:
        return error


def _apply_to_block(
    step: Step, block: pa.Table, first_row: int, change: Change | None
) -> tuple[pa.Table | None, AuditLog | RejuiceError]:
    log = AuditLog()
    run = partial(run_step, first_row=first_row) if change is None else known_change(change)
    try:
        frame = apply_steps([step], Frame.of(plain(block)), run=run, log=log, first_row=first_row)
    except RejuiceError as error:
        return None, error
    return filled(frame.table()), log
