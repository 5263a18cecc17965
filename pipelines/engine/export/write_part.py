"""Write one part of an export: its rows, and the decisions about the chunks that it begins.

Whatever writes a part, and how often, it has the same bytes: a worker may be killed and the part
written again, by another worker too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa

from ...data_juicer.run_columns import filled
from ...dataset.run_folder import PART, PART_SUFFIX
from ...dataset.schemas import conform
from ...dataset.write import writer
from .. import decision_files
from ..audit_log import DECISIONS, AuditLog
from ..plan import Plan
from ..steps import apply_steps
from .parts import ExportPart, ExportSlice
from .place import RunPlace


class WrittenPart(NamedTuple):
    """What was written of an export.

    Attributes:
        rows: of the part.
        logs: by chunk, the counts of all steps on it; its decisions are written.
    """

    rows: int
    logs: dict[int, AuditLog]


class _Finished(NamedTuple):
    """Rows of a chunk after the last step, and the log of all steps on the chunk."""

    table: pa.Table
    log: AuditLog


def write_part(
    plan: Plan,
    place: RunPlace,
    schema: pa.Schema,
    part: ExportPart,
    count: Callable[[int], object] = lambda _: None,
) -> WrittenPart:
    """Write a part of an export from the commits of its chunks.

    Args:
        plan: of the run.
        place: where to write.
        schema: of the export.
        part: the part.
        count: called with the number of each chunk whose decisions are written.

    Raises:
        RejuiceError: in a store, another run has taken the export.
    """
    rows, logs = 0, dict[int, AuditLog]()
    path = place.export
    if part.number is not None:
        path = path / part.name_of(PART, PART_SUFFIX)
    decisions = part.name_of(decision_files.STEM, decision_files.SUFFIX)
    with ExitStack() as stack:
        write = stack.enter_context(writer(path, schema))
        write_decisions = {
            step.name: stack.enter_context(writer(place.folder / step.label / decisions, DECISIONS))
            for step in plan.steps
        }
        for piece, finished in _prefetched(plan, part):
            write(filled(conform(finished.table, schema)))
            rows += finished.table.num_rows
            if piece.with_log:
                for name, write_step in write_decisions.items():
                    write_step(finished.log.step(name).take_decisions())
                logs[piece.chunk] = finished.log
                count(piece.chunk)
        place.hold.check()  # In a store the files of the part appear now.
    return WrittenPart(rows, logs)


def _prefetched(plan: Plan, part: ExportPart) -> Iterator[tuple[ExportSlice, _Finished]]:
    """The rows of a part in order; the next ones are gathered while these are written."""
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[tuple[ExportSlice, Future[_Finished]]] = deque()
        for piece in part.slices:
            waiting.append((piece, pool.submit(_finish, plan, piece)))
            if len(waiting) > 1:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


def _finish(plan: Plan, piece: ExportSlice) -> _Finished:
    log = AuditLog()
    frame = apply_steps(
        plan.steps,
        plan.source_frame(piece.chunk),
        run=plan.committed(piece.chunk),
        log=log,
        first_row=plan.source.first_row(piece.chunk),
    )
    table = frame.select(plan.recipe.head.exported(frame.column_names))
    end = table.num_rows if piece.end is None else piece.end
    return _Finished(table.slice(piece.begin, end - piece.begin), log)
