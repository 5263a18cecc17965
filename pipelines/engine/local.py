"""Run a recipe over chunks: stage by stage, each step of each chunk committed once.

    source chunks ──> [row and group steps, in workers] ──> barrier: all digests, one decision
                  ──> [row and group steps, in workers] ──> ... ──> export and books

A killed run leaves whole commits behind; the next run computes what is not there yet.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
from filelock import FileLock, Timeout

from ...operators import DataError, RejuiceError, ResumableOperator
from ..apply.apply import decide, digest, view
from ..apply.frame import Frame
from ..apply.parts import NO_HEADS, Heads, check_groups, heads, shares
from ..apply.report import Report
from ..apply.summary import summarise
from ..dataset.arrow_files import read_arrow, write_arrow
from ..dataset.read import prepare
from ..dataset.write import check_export_is_ours
from ..recipe.recipe import Recipe, Step
from .commit import Commit, load, save
from .finish import write_books
from .plan import Plan, Stage, checked_schema, group_columns, kept_folder
from .progress import Progress
from .streaming import reopen, stream
from .workers import Workers

CHUNK_ROWS = 65_536
STREAM_CHUNK_ROWS = 2_048
"""Where a step samples: one row becomes many, with all their tokens."""
_SECONDS = b"seconds"


def run(
    recipe: Recipe,
    *,
    overwrite: bool = False,
    retry_dropped: bool = False,
    chunk_rows: int | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run a recipe and write its export, decisions and report.

    Args:
        recipe: what to run.
        overwrite: replace an export that another recipe made.
        retry_dropped: sample prompts again that an earlier run gave up on.
        chunk_rows: rows per chunk, about; memory is bounded by `np` chunks. None: `CHUNK_ROWS`, or
            `STREAM_CHUNK_ROWS` where a step samples.
        cache: where commits are kept; `.rejuice` beside the export by default.
        progress: where progress is shown.

    Raises:
        RejuiceError: bad recipe, bad data, a failing operator or a full disk, in one line.
    """
    head = recipe.head
    progress = progress or Progress(quiet=True)
    cache = cache or head.export_path.parent / ".rejuice"
    if chunk_rows is None:
        samples = any(isinstance(step.operator, ResumableOperator) for step in recipe.steps)
        chunk_rows = STREAM_CHUNK_ROWS if samples else CHUNK_ROWS
    schema = checked_schema(recipe)
    if not overwrite:
        check_export_is_ours(recipe.path, head.export_path)
    try:
        with progress.task("read", None):
            grouping = group_columns(recipe, schema)
            source = prepare(head.dataset_path, cache, chunk_rows=chunk_rows, group_by=grouping)
        plan = Plan.of(recipe, source, cache)
        for step in recipe.steps if retry_dropped else ():
            if isinstance(step.operator, ResumableOperator):
                reopen(kept_folder(cache, step.operator), plan.paths(step))
                plan = Plan.of(recipe, source, cache)  # What follows has other keys now.
        cached = {step.name: plan.is_done(step) for step in plan.steps}
        with sole_writer(head.export_path), Workers(recipe, len(source.rows)) as workers:
            for stage in plan.stages():
                if stage.stream:
                    done = _run_stream(plan, stage.steps[0], stage.stream, progress)
                    cached[stage.steps[0].name] |= done == 0
                else:
                    _run_stage(plan, stage, workers, progress)
            return write_books(plan, cached, chunk_rows, progress)
    except OSError as error:
        raise _plain(error, cache) from error


def _run_stage(plan: Plan, stage: Stage, workers: Workers, progress: Progress) -> None:
    work = partial(_run_chunk, plan, stage)
    steps = [step for step in (*stage.steps, stage.barrier) if step]
    names = [step.name for step in steps]
    title = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    found: dict[int, Heads] = {}
    with progress.task(title, sum(plan.source.rows)) as advance:
        todo = [step for step in steps if not plan.is_done(step)]
        for chunk, result in workers.map(todo, work, len(plan.source.rows)):
            found[chunk] = result
            advance(plan.source.rows[chunk])
    _check_groups(plan, [found[chunk] for chunk in sorted(found)])
    if stage.barrier and not plan.is_done(stage.barrier):
        _cross(plan, stage.barrier)


def _check_groups(plan: Plan, parts: Sequence[Heads]) -> None:
    try:
        check_groups(parts)
    except DataError as error:
        raise error.at(str(plan.recipe.head.dataset_path)) from None


def _run_stream(plan: Plan, step: Step, operator: ResumableOperator, progress: Progress) -> int:
    """Run a stream on all chunks, here: it has workers of its own.

    Returns:
        How many rows had to be done.
    """
    done = 0
    rows, found = 0, list[Heads]()
    for chunk, offset in enumerate(accumulate(plan.source.rows[:-1], initial=0)):
        frame = plan.frame_before(chunk, step)
        rows += frame.num_rows
        found.append(heads(frame, offset) if step.number == 1 else NO_HEADS)
    _check_groups(plan, found)  # Before anything is paid for.
    with progress.task(step.name, rows) as advance, closing(operator):
        for chunk in range(len(plan.source.rows)):
            frame, path = plan.frame_before(chunk, step), plan.path(step, chunk)
            if path.exists():
                advance(frame.num_rows)
                continue
            with _at(plan.recipe, step):
                done += stream(operator, frame, kept_folder(plan.cache, operator), path, advance)
    return done


def _run_chunk(plan: Plan, stage: Stage, chunk: int) -> Heads:
    """Run the steps of a stage on one chunk, and digest it for the step behind them.

    Returns:
        The groups of the chunk, in the stage in which they come to be.
    """
    last = stage.barrier or stage.steps[-1]
    first = stage.steps[0] if stage.steps else last
    frame = plan.frame_before(chunk, first)
    offset = sum(plan.source.rows[:chunk])
    groups = NO_HEADS
    if first.number == 1:  # Groups of a later stage's frame were looked at in the stage before.
        groups = heads(frame, offset)
    for step in stage.steps:
        frame = _commit(plan, step, frame, chunk)
        if "prompt_id" in step.operator.writes():
            groups = heads(frame, offset)
    if stage.barrier and not plan.path(stage.barrier, chunk).exists():
        _digest(plan, stage.barrier, frame, chunk)
    return groups


def _digest(plan: Plan, step: Step, frame: Frame, chunk: int) -> None:
    path = plan.digest_path(step, chunk)
    if path.exists():
        return
    start = time.perf_counter()
    with _at(plan.recipe, step):
        table = digest(step.operator, frame)
    seconds = f"{time.perf_counter() - start}".encode()
    write_arrow(path, table.replace_schema_metadata({_SECONDS: seconds}))


def _commit(plan: Plan, step: Step, frame: Frame, chunk: int) -> Frame:
    path = plan.path(step, chunk)
    if path.exists():
        return frame.after(load(path).change)
    start = time.perf_counter()
    with _at(plan.recipe, step):
        change = decide(step.operator, view(step.operator, frame), frame.num_rows)
    seconds = time.perf_counter() - start
    save(path, Commit(change, frame.num_rows, seconds, summarise(change.columns)))
    return frame.after(change)


def _cross(plan: Plan, step: Step) -> None:
    """Decide a step of dataset scope from all digests, and commit each chunk's part."""
    chunks = range(len(plan.source.rows))
    start = time.perf_counter()
    try:
        digests = [read_arrow(plan.digest_path(step, chunk)) for chunk in chunks]
    except FileNotFoundError:
        if plan.is_done(step):
            return  # Another run on this cache was faster, and has cleared its digests away.
        raise
    sizes = [table.num_rows for table in digests]
    with _at(plan.recipe, step):
        table = pa.concat_tables(digests, promote_options="permissive")
        whole = decide(step.operator, table, sum(sizes))
    seconds = time.perf_counter() - start
    seconds += sum(float(table.schema.metadata[_SECONDS]) for table in digests)
    parts = shares(whole, [0, *accumulate(sizes)])
    for chunk, size, part in zip(chunks, sizes, parts, strict=True):
        commit = Commit(part, size, seconds if chunk == 0 else 0.0, summarise(part.columns))
        save(plan.path(step, chunk), commit)
    for chunk in chunks:
        plan.digest_path(step, chunk).unlink(missing_ok=True)


@contextmanager
def sole_writer(export_path: Path) -> Iterator[None]:
    """Hold the export for this run alone; the system lets go of it when the process ends."""
    export_path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(export_path.with_name(f".{export_path.name}.lock"), timeout=0):
            yield
    except Timeout:
        raise RejuiceError(
            f"another run is writing {export_path}", "wait for it, or give another --export_path"
        ) from None


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


def _plain(error: OSError, cache: Path) -> RejuiceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RejuiceError(
            f"no space left for {cache}", "free some and run again: finished chunks are kept"
        )
    return RejuiceError(f"{error.filename or cache}: {error.strerror or error}")
