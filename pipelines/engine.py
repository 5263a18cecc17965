"""Run a recipe over chunks: stage by stage, each step of each chunk committed once.

    source chunks ──> [row and group steps, in workers] ──> barrier: all digests, one decision
                  ──> [row and group steps, in workers] ──> ... ──> export and books

A killed run leaves whole commits behind; the next run computes what is not there yet.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..operators import Change, DataError, Groups, RejuiceError
from ..operators.groups import Array, hash_each
from .apply import decide, digest, view
from .books import write_books
from .commit import Commit, load, read_arrow, save, write_arrow
from .export import check_export_path
from .frame import Frame
from .plan import Plan, Stage, check_columns, group_columns
from .progress import Progress
from .recipe import Recipe, Step
from .report import Report
from .source import peek_schema, prepare
from .summary import summarise
from .workers import Workers

CHUNK_ROWS = 65_536
_SECONDS = b"seconds"


class _Done(NamedTuple):
    """What a worker reports of a chunk: its prompts, for the check that groups are whole."""

    heads_G: Array
    source_rows_G: Array


def run(
    recipe: Recipe,
    *,
    overwrite: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run a recipe and write its export, decisions and report.

    Args:
        recipe: what to run.
        overwrite: replace an export that this very run did not make.
        chunk_rows: rows per chunk, about; memory is bounded by `np` chunks.
        cache: where commits are kept; `.rejuice` beside the export by default.
        progress: where progress is shown.

    Raises:
        RejuiceError: bad recipe, bad data, a failing operator or a full disk, in one line.
    """
    head = recipe.head
    progress = progress or Progress(quiet=True)
    cache = cache or head.export_path.parent / ".rejuice"
    schema = peek_schema(head.dataset_path)
    check_columns(recipe, schema)
    try:
        with progress.task("read", None):
            grouping = group_columns(recipe, schema)
            source = prepare(head.dataset_path, cache, chunk_rows=chunk_rows, group_by=grouping)
        plan = Plan.of(recipe, source, cache)
        check_export_path(head.export_path, plan.keys[-1], overwrite)
        cached = {step.name: plan.is_done(step) for step in plan.steps}
        with Workers(recipe, len(source.rows)) as workers:
            for stage in plan.stages():
                _run_stage(recipe, plan, stage, workers, progress)
        return write_books(recipe, plan, cached, progress)
    except OSError as error:
        raise _full_disk(error, cache) or error from error


def _run_stage(
    recipe: Recipe, plan: Plan, stage: Stage, workers: Workers, progress: Progress
) -> None:
    work = partial(_run_chunk, recipe, plan, stage)
    steps = [step for step in (*stage.steps, stage.barrier) if step]
    names = [step.name for step in steps]
    title = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    done: dict[int, _Done] = {}
    with progress.task(title, sum(plan.source.rows)) as advance:
        for chunk, result in workers.map(steps, work, len(plan.source.rows)):
            done[chunk] = result
            advance(plan.source.rows[chunk])
    _check_groups(recipe, plan, [done[chunk] for chunk in sorted(done)])
    if stage.barrier and not plan.is_done(stage.barrier):
        _cross(recipe, plan, stage.barrier)


def _run_chunk(recipe: Recipe, plan: Plan, stage: Stage, chunk: int) -> _Done:
    """Run the steps of a stage on one chunk, and digest it for the step behind them."""
    last = stage.barrier or stage.steps[-1]
    first = stage.steps[0] if stage.steps else last
    frame = plan.frame_before(chunk, first)
    done = _prompts(plan, frame, chunk) if first.number == 1 else None
    for step in stage.steps:
        before, frame = frame, _commit(recipe, plan, step, frame, chunk)
        if done is None and "prompt_id" not in before.column_names:
            done = _prompts(plan, frame, chunk)
    if stage.barrier and not plan.path(stage.barrier, chunk).exists():
        path = plan.digest_path(stage.barrier, chunk)
        if not path.exists():
            start = time.perf_counter()
            with _at(recipe, stage.barrier):
                table = digest(stage.barrier.operator, frame)
            seconds = f"{time.perf_counter() - start}".encode()
            write_arrow(path, table.replace_schema_metadata({_SECONDS: seconds}))
    return done or _Done(np.zeros(0, np.uint64), np.zeros(0, np.int64))


def _commit(recipe: Recipe, plan: Plan, step: Step, frame: Frame, chunk: int) -> Frame:
    path = plan.path(step, chunk)
    if path.exists():
        return frame.after(load(path).change)
    start = time.perf_counter()
    with _at(recipe, step):
        change = decide(step.operator, view(step.operator, frame), frame.num_rows)
    seconds = time.perf_counter() - start
    save(path, Commit(change, frame.num_rows, seconds, summarise(change.columns)))
    return frame.after(change)


def _cross(recipe: Recipe, plan: Plan, step: Step) -> None:
    """Decide a step of dataset scope from all digests, and commit each chunk's part."""
    chunks = range(len(plan.source.rows))
    start = time.perf_counter()
    digests = [read_arrow(plan.digest_path(step, chunk)) for chunk in chunks]
    sizes = [table.num_rows for table in digests]
    with _at(recipe, step):
        whole = decide(step.operator, pa.concat_tables(digests), sum(sizes))
    seconds = time.perf_counter() - start
    seconds += sum(float(table.schema.metadata[_SECONDS]) for table in digests)
    begin = 0
    for chunk, size in zip(chunks, sizes, strict=True):
        part = _part(whole, begin, size)
        # What belongs to the whole is told once, with the first chunk.
        notes = whole.notes if chunk == 0 else {}
        commit = Commit(part._replace(notes=notes), size, seconds if chunk == 0 else 0.0, {})
        save(plan.path(step, chunk), commit._replace(summary=summarise(part.columns)))
        begin += size
    for chunk in chunks:
        plan.digest_path(step, chunk).unlink()


def _part(whole: Change, begin: int, size: int) -> Change:
    """What a change to all rows does to the rows from `begin`."""
    reasons = None if whole.reasons is None else whole.reasons.slice(begin, size)
    if whole.parents is None:
        columns = {name: column.slice(begin, size) for name, column in whole.columns.items()}
        return Change(columns, reasons, None, whole.without)
    low, high = np.searchsorted(whole.parents, [begin, begin + size])
    columns = {name: column.slice(low, high - low) for name, column in whole.columns.items()}
    return Change(columns, reasons, whole.parents[low:high] - begin, whole.without)


def _prompts(plan: Plan, frame: Frame, chunk: int) -> _Done | None:
    if "prompt_id" not in frame.column_names:
        return None
    prompt_ids = frame.select(["prompt_id"])["prompt_id"]
    starts_G = Groups.of_column(prompt_ids).starts_G
    offset = sum(plan.source.rows[:chunk])
    heads_G = hash_each(prompt_ids.take(pa.array(starts_G)))
    return _Done(heads_G, frame.source_rows[starts_G] + offset)


def _check_groups(recipe: Recipe, plan: Plan, done: Sequence[_Done]) -> None:
    """Every prompt must be one run of rows; a second run would be a second, smaller group."""
    heads = np.concatenate([part.heads_G for part in done])
    order = np.argsort(heads, kind="stable")
    again = np.flatnonzero(np.diff(heads[order]) == 0)
    if len(again):
        rows = np.concatenate([part.source_rows_G for part in done])[order]
        first, second = int(rows[again[0]]) + 1, int(rows[again[0] + 1]) + 1
        raise DataError(
            f"rows {first} and {second} have the same prompt but are not next to each other",
            "sort the rows by prompt, or begin with "
            "exact_deduplicator: {column: question, within: all}",
            where=str(recipe.head.dataset_path),
        )


class _at:  # noqa: N801 (used as a function)
    """Put the file and the step in front of an error."""

    def __init__(self, recipe: Recipe, step: Step) -> None:
        self._recipe, self._step = recipe, step

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RejuiceError):
            in_data = isinstance(error, DataError)
            file = self._recipe.head.dataset_path if in_data else self._recipe.path
            where = f"{file}, step {self._step.number} {self._step.name}"
            raise error.at(where) from error.__cause__


def _full_disk(error: OSError, cache: Path) -> RejuiceError | None:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return RejuiceError(
        f"no space left for {cache}", "free some and run again: finished chunks are kept"
    )
