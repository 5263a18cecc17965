"""The end of a run: its export, and beside it the audit log: every decision, and the funnel.

curated.parquet                                the rows that are left; or, of a folder,
curated/part-00000.parquet                     files of whole groups, written side by side
curated.run/report.json                        the funnel, figures of each column, timing
curated.run/recipe.yaml                        the recipe with every default and absolute paths
curated.run/03_pass_rate_filter/decisions.parquet  row_id, step, reason of each dropped row
curated.run/manifest.json                      written last, see `finished_export`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import DataError, Groups, OperatorError, RecipeError
from ...operators.disk import kind_of
from ...operators.json_text import parse_json
from ..dataset.files import (
    PART,
    PART_SUFFIX,
    check_is_folder,
    is_folder,
    read_file,
    run_folder,
    unfinished_made_by,
    unfinished_run_folder,
)
from ..dataset.parquet import cuts
from ..dataset.remote import AnyPath, to_path
from ..dataset.schemas import conform
from ..dataset.write import filled, mark_written, write_parts_list, writer, written_of
from ..recipe.columns import computed_from
from ..recipe.head import Head
from ..recipe.recipe import Recipe
from .finished_export import RunPlace, read_manifest, recipe_mark
from .plan import Plan
from .progress import Progress
from .report import DECISIONS, DECISIONS_STEM, DECISIONS_SUFFIX, AuditLog, Report
from .steps import apply_steps
from .workers import Workers

# --- The files of an export, cut at groups: which rows of which chunks go into each ---
# chunk   0          1          2
# rows    aabbbc  |  ddeeff  |  gghhhh
# parts   0: aabbb   1: cdd ee    2: ffgg    3: hhhh         at most 5 rows each


class ExportSlice(NamedTuple):
    """Consecutive rows of a chunk after the last step."""

    chunk: int  # its number
    begin: int  # the first of them
    end: int | None  # the first that is not; None: all of them
    with_log: bool  # whether the decisions about the chunk go with these rows


class ExportPart(NamedTuple):
    number: int | None  # from 0; None: it is the only one, as the recipe names it
    slices: tuple[ExportSlice, ...]  # its rows, in order

    def name_of(self, stem: str, suffix: str) -> str:
        """`part-00003.parquet` of `part` and `.parquet`."""
        return f"{stem}{suffix}" if self.number is None else f"{stem}-{self.number:05d}{suffix}"


def cut_parts(sizes: Sequence[NDArray[np.int64]], most: int) -> list[ExportPart]:
    """The parts of an export: at least one, where a reader finds the columns."""
    rows = np.array([int(sizes_G.sum()) for sizes_G in sizes], np.int64)
    starts = np.concatenate([[0], np.cumsum(rows)])
    ends_G = np.cumsum(np.concatenate([np.zeros(0, np.int64), *sizes]))
    ends_G = ends_G[np.diff(ends_G, prepend=0) > 0]
    bounds = [0, *cuts(np.append(0, ends_G), most)]
    if bounds[-1] < starts[-1] or len(bounds) == 1:
        bounds.append(int(starts[-1]))
    # Chunks without a row belong to the part of the row before them.
    owners = np.searchsorted(bounds[1:], starts[:-1], side="right").clip(max=len(bounds) - 2)
    parts = []
    for number, (begin, end) in enumerate(pairwise(bounds)):
        holds_rows = (starts[:-1] < end) & (starts[1:] > begin)
        chunks = np.flatnonzero(holds_rows | (owners == number))
        slices = (
            ExportSlice(
                int(chunk),
                int(max(begin - starts[chunk], 0)),
                int(min(end, starts[chunk + 1]) - starts[chunk]),
                bool(owners[chunk] == number),
            )
            for chunk in chunks
        )
        parts.append(ExportPart(number, tuple(slices)))
    return parts


# --- What an export will be: its parts and its schema, from the commits of all chunks ---
# Each chunk is looked at by a worker, which reads all of its commits: the checksum of a commit is
# of all its bytes. What it returns of a chunk is small.


class Outline(NamedTuple):
    parts: list[ExportPart]
    schema: pa.Schema


class _OfChunk(NamedTuple):
    schema: pa.Schema  # of its rows after the last step
    written: frozenset[str]  # the columns that steps wrote
    # int64, rows of each of its groups; empty where the export is one file
    sizes_G: NDArray[np.int64]


def outline(plan: Plan, workers: Workers) -> Outline:
    """The parts and the schema of the export of a run, all of whose steps are committed."""
    head = plan.recipe.head
    work = partial(_of_chunk, plan)
    found = dict(workers.map((), work, len(plan.source.rows)))
    chunks = [found[chunk] for chunk in range(len(found))]
    if is_folder(head.export_path):
        parts = cut_parts([each.sizes_G for each in chunks], head.max_rows_per_file)
    else:
        slices = (ExportSlice(chunk, 0, None, True) for chunk in range(len(chunks)))
        parts = [ExportPart(None, tuple(slices))]
    before = written_of(head.dataset_spec)
    written = before.columns.union(*(each.written for each in chunks))
    schema = _schema(head, [each.schema for each in chunks])
    origins = computed_from(plan.steps, plan.source.schema.names, before.origins)
    return Outline(parts, mark_written(schema, written, origins))


def _of_chunk(plan: Plan, chunk: int) -> _OfChunk:
    frame = plan.frame_before(chunk, None)
    sizes_G = np.zeros(0, np.int64)
    if is_folder(plan.recipe.head.export_path):
        sizes_G = np.ones(frame.num_rows, np.int64)  # Where there are no groups, each row is one.
        if "prompt_id" in frame.column_names:
            sizes_G = Groups.of(frame.select(["prompt_id"])).sizes_G
    return _OfChunk(frame.schema, frozenset(frame.written_columns), sizes_G)


def _schema(head: Head, chunks: list[pa.Schema]) -> pa.Schema:
    # A chunk that lost its last row early lacks columns of later steps: the others give the order.
    fullest = sorted(chunks, key=len, reverse=True)
    try:
        schema = pa.unify_schemas(fullest, promote_options="permissive")
    except pa.ArrowTypeError as error:
        found = f"a step wrote a column in two types: {error}"
        raise OperatorError(found, "let it write one type always") from None
    return pa.schema([schema.field(name) for name in head.exported(schema.names)])


# --- Write part -----------------------------------------------------------------------
# Write one part of an export: its rows, and the decisions about the chunks that it begins.
#
# Whatever writes a part, and how often, it has the same bytes: a worker may be killed and the part
# written again, by another worker too.


def write_part(
    plan: Plan,
    place: RunPlace,
    schema: pa.Schema,
    parts: Sequence[ExportPart],
    number: int,
    *,
    count: Callable[[int], object] = lambda _: None,
) -> tuple[int, dict[int, AuditLog]]:
    """Write one of the parts of an export from the commits of its chunks, and its decisions: how
    many rows it has, and by chunk the counts of all steps."""
    rows, logs = 0, dict[int, AuditLog]()
    part, path = parts[number], place.export
    if part.number is not None:
        path = path / part.name_of(PART, PART_SUFFIX)
    decisions = part.name_of(DECISIONS_STEM, DECISIONS_SUFFIX)
    with ExitStack() as stack:
        write = stack.enter_context(writer(path, schema))
        write_decisions = {
            step.name: stack.enter_context(writer(place.folder / step.label / decisions, DECISIONS))
            for step in plan.steps
        }
        for piece, table, log in _prefetched(plan, part):
            write(filled(conform(table, schema)))
            rows += table.num_rows
            if piece.with_log:
                for name, write_step in write_decisions.items():
                    write_step(log.step(name).take_decisions())
                logs[piece.chunk] = log
                count(piece.chunk)
        place.hold.check()  # In a store the files of the part appear now.
    return rows, logs


def _prefetched(plan: Plan, part: ExportPart) -> Iterator[tuple[ExportSlice, pa.Table, AuditLog]]:
    """Yield the rows of a part in order; the next ones are gathered while these are written."""
    with ThreadPoolExecutor(1) as pool:
        waiting = deque[Future[tuple[ExportSlice, pa.Table, AuditLog]]]()
        for piece in part.slices:
            waiting.append(pool.submit(_finish, plan, piece))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()


def _finish(plan: Plan, piece: ExportSlice) -> tuple[ExportSlice, pa.Table, AuditLog]:
    log = AuditLog()
    frame = apply_steps(
        plan.steps,
        plan.source_frame(piece.chunk),
        run=plan.committed(piece.chunk),
        log=log if piece.with_log else None,
        first_row=plan.source.first_row(piece.chunk),
    )
    table = frame.select(plan.recipe.head.exported(frame.column_names))
    end = table.num_rows if piece.end is None else piece.end
    return piece, table.slice(piece.begin, end - piece.begin), log


def write_parts(plan: Plan, place: RunPlace, workers: Workers, progress: Progress) -> AuditLog:
    """Write the export and the decisions, side by side where it is in parts; the counts of all
    steps."""
    export = plan.recipe.head.export_path
    parts, schema = outline(plan, workers)
    rows, logs = [0] * len(parts), dict[int, AuditLog]()
    with progress.task("export", sum(plan.source.rows)) as advance:

        def count(chunk: int) -> None:
            advance(plan.source.rows[chunk])

        if not is_folder(export):
            _, logs = write_part(plan, place, schema, parts, 0, count=count)
        else:
            work = partial(write_part, plan, place, schema, parts)
            for number, (count_of_rows, written) in workers.map((), work, len(parts)):
                rows[number] = count_of_rows
                logs |= written
                for chunk in written:
                    count(chunk)
            names = [part.name_of(PART, PART_SUFFIX) for part in parts]
            place.hold.check()
            write_parts_list(place.export, dict(zip(names, rows, strict=True)))
    totals = AuditLog()
    for chunk in sorted(logs):  # Not as they finish: sums of floats depend on the order.
        totals.merge(logs[chunk])
    return totals


# --- Which exports may be replaced ----------------------------------------------------


def check_may_write(recipe: Recipe, *, overwrite: bool) -> None:
    """Refuse an export, or a report, that would take the place of another one."""
    export = recipe.head.export_path
    # Ray Data writes a folder of such a name; this would fail after hours.
    if isinstance(export, Path) and not is_folder(export) and kind_of(export) == "a folder":
        right = "move it away, or give another export_path"
        raise RecipeError(f"export_path {export} is a folder", right)
    _check_run_folder_is_free(export)
    if not overwrite:
        check_may_replace_export(recipe, export)


def _check_run_folder_is_free(export_path: AnyPath) -> None:
    """Refuse to replace the report and the decisions of an export with another suffix."""
    folder = run_folder(export_path)
    check_is_folder(folder)
    check_is_folder(unfinished_run_folder(export_path))
    try:
        report = parse_json(read_file(folder / "report.json"))
        other = export_path.with_suffix(to_path(report["export_path"]).suffix)
    except (OSError, ValueError, KeyError, TypeError):
        return  # There is none, or nothing can be known of it.
    if other != export_path and other.exists():
        found = f"the report of {other} is in {folder}, where that of {export_path} would be"
        raise RecipeError(found, f"give an export_path with another name, or remove {other}")


def check_may_replace_export(recipe: Recipe, export_path: AnyPath) -> None:
    mark = recipe_mark(recipe)
    if not export_path.exists() or unfinished_made_by(export_path) == mark:
        return
    with suppress(DataError):  # Both are damaged, or it is no export of a run.
        manifest = read_manifest(run_folder(export_path))
        made_by = Report.read(export_path).recipe if manifest is None else manifest.made_by
        if made_by == mark:
            return
    right = "give another --export_path, or --overwrite"
    raise RecipeError(f"export_path {export_path} exists", right)
