"""Run a recipe over chunks: stage by stage, each step of each chunk committed once.

    source chunks ──> [row and group steps, in workers] ──> barrier: all digests, decisions
                  ──> [row and group steps, in workers] ──> ... ──> export, audit log

A killed run leaves whole commits; the next run computes what is missing. A commit that is damaged
counts as missing.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import accumulate

from ...operators import DataError, RejuiceError, ResumableOperator
from ...operators.sampling.token_count import listening
from ..apply.chunks import check_chunk_rows, default_chunk_rows
from ..apply.frame import Frame
from ..apply.group_starts import NO_GROUP_STARTS, GroupStarts, check_contiguous
from ..apply.report import Report
from ..apply.steps import StepResult, apply_steps, prefix_errors_with_step, run_step
from ..data_juicer.reading.settings import setting_warnings
from ..dataset.remote import AnyPath
from ..dataset.write import check_export_path, default_cache
from ..recipe.columns import checked_schema
from ..recipe.group_warnings import group_warnings
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .cache.lock import use_cache
from .commit import load, save
from .damage import undamaged
from .dataset_step import run_dataset_step, write_digest
from .export.finish import check_may_replace_export, report_head, write_export
from .export.finished import finished_report
from .export.sole_writer import sole_writer
from .located_errors import prefix_errors_with_file
from .plan import Plan, Stage, kept_folder
from .preflight import Preflight
from .progress import Progress, StepProgress
from .resumable import ChunkToRun, Computed, run_resumable
from .retry import dropped_rows, recompute_failed, reopen, reopen_failed, step_to_retry
from .workers.local import LocalWorkers, OpenWorkers, Workers


def run(
    recipe: Recipe,
    *,
    overwrite: bool = False,
    retry_dropped: bool = False,
    retry_missing: str | int | None = None,
    chunk_rows: int | None = None,
    cache: AnyPath | None = None,
    verify: bool = False,
    progress: Progress | None = None,
    warn: Callable[[str], object] = lambda _: None,
    open_workers: OpenWorkers = LocalWorkers,
) -> Report:
    """Run a recipe and write its export, decisions and report.

    Args:
        recipe: what to run.
        overwrite: replace an export that another recipe made.
        retry_dropped: sample prompts again that an earlier run gave up on.
        retry_missing: name or number of a step of which failures that may pass are computed again.
        chunk_rows: rows per chunk, about; None: see `default_chunk_rows`.
        cache: where commits are kept; None: see `default_cache`.
        verify: hash the dataset again, even if it has not changed as far as is known.
        progress: where progress is shown.
        warn: called with each warning, one line, before a step is run.
        open_workers: where chunks are run; memory is bounded by `np` chunks.

    Raises:
        RejuiceError: bad recipe, bad data, a failing operator or a full disk, in one line.
    """
    head = recipe.head
    progress = progress or Progress(quiet=True)
    cache = cache or default_cache(head.export_path)
    chunk_rows = chunk_rows or default_chunk_rows(step.operator for step in recipe.steps)
    again = None if retry_missing is None else step_to_retry(recipe, retry_missing)
    check_export_path(recipe.path, head.export_path, head.dataset_spec)
    if not overwrite:
        check_may_replace_export(recipe, head.export_path)
    try:
        if not cache.exists():
            checked_schema(recipe)  # A recipe that cannot run leaves no folder.
        # What is retried is taken apart first: another run may be reading it.
        alone = retry_dropped or again is not None
        with use_cache(cache, head.export_path, alone=alone) as share:
            reopen_plan = partial(Plan.open, recipe, cache, chunk_rows, verify=verify)
            retry = partial(_retry, retry_dropped, again, share)
            return _run(recipe, reopen_plan, chunk_rows, retry, again, progress, warn, open_workers)
    except OSError as error:
        raise _disk_error(error, cache) from error


def _run(
    recipe: Recipe,
    reopen_plan: Callable[[], Plan],
    chunk_rows: int,
    retry: Callable[[Plan], tuple[Plan, frozenset[str], Counter[str]]],
    again: Step | None,
    progress: Progress,
    warn: Callable[[str], object],
    open_workers: OpenWorkers,
) -> Report:
    """Run a recipe whose export may be written; see `run`."""
    head = recipe.head
    for path in head.write_missing(*head.dataset_spec.paths, *recipe.recordings()):
        progress.tell(f"{path} did not exist: it was written, as generated_datasets says")
    with progress.task("read", None):
        plan = undamaged(reopen_plan, reopen_plan, warn)
    check_chunk_rows([step.operator for step in plan.steps], max(plan.source.rows, default=0))
    for line in _warnings(plan):
        warn(line)
    with sole_writer(head.export_path):
        plan, failed, retried = undamaged(lambda: retry(plan), lambda: retry(reopen_plan()), warn)
        if again and not failed and not retried[again.name]:
            warn(f"{again.name} has no result that failed: nothing is retried")
        finished = finished_report(plan, report_head(plan, chunk_rows))
        if finished is not None:
            progress.tell(f"nothing to do: {head.export_path} is up to date")
            return finished
        with open_workers(plan) as workers:

            def finish(plan: Plan) -> Report:
                cached = _run_stages(plan, again, failed, retried, workers, progress)
                return write_export(plan, cached, retried, chunk_rows, workers, progress)

            return undamaged(lambda: finish(plan), lambda: finish(reopen_plan()), warn)


def _warnings(plan: Plan) -> list[str]:
    """A line about each thing in a recipe that may not be what its author meant."""
    of_groups = group_warnings(plan.recipe, plan.source.schema.names)
    return [*setting_warnings(plan.recipe.for_data_juicer), *of_groups]


def _run_stages(
    plan: Plan,
    again: Step | None,
    failed: frozenset[str],
    retried: Counter[str],
    workers: Workers,
    progress: Progress,
) -> dict[str, bool]:
    """Run the stages of a plan.

    Args:
        plan: of the run.
        again: the step whose failures are computed again.
        failed: if it is resumable, the keys of its rows that failed in an earlier run.
        retried: by step, how many rows that had failed were computed again; it is added to.
        workers: of the run.
        progress: where progress is shown.

    Returns:
        By step, whether all of it was found in the cache.
    """
    preflight = Preflight(plan)
    preflight.before_all()
    cached = {step.name: plan.is_done(step) for step in plan.steps}
    for stage in plan.stages():
        if stage.resumable:
            step = stage.steps[0]
            ours = failed if step == again else frozenset[str]()
            done = _run_resumable(plan, step, stage.resumable, preflight, ours, progress)
            cached[step.name] |= done.rows == 0
            retried[step.name] += done.retried
        else:
            _run_stage(plan, stage, workers, progress)
    return cached | dict.fromkeys(+retried, False)


def _retry(
    dropped: bool, missing: Step | None, share: Callable[[], None], plan: Plan
) -> tuple[Plan, frozenset[str], Counter[str]]:
    """Take failures out of the results, so that they are computed again; then share the cache.

    Returns:
        The plan, in which later steps have other keys; keys of rows of the resumable step `missing`
        that failed; and, where that step is not resumable, how many rows it has computed again.
    """
    failed, retried = frozenset[str](), Counter[str]()
    if missing is None and not dropped:
        return plan, failed, retried
    if missing is not None:
        with prefix_errors_with_file(plan.recipe, missing), prefix_errors_with_step(missing):
            if isinstance(missing.operator, ResumableOperator):
                failed = reopen_failed(plan, missing, missing.operator.preflight)
            else:
                retried[missing.name] = recompute_failed(plan, missing)
    for step in plan.steps if dropped else ():
        if isinstance(step.operator, ResumableOperator):
            reopen(kept_folder(plan.cache, step.operator), dropped_rows)
    share()
    return Plan.of(plan.recipe, plan.source, plan.cache), failed, retried


def _run_stage(plan: Plan, stage: Stage, workers: Workers, progress: Progress) -> None:
    # All of its digests, even where some of its commits are there: one that was damaged is not.
    needs_digest = stage.barrier is not None and not plan.is_done(stage.barrier)
    work = partial(_run_chunk, plan, stage, needs_digest)
    steps = [step for step in (*stage.steps, stage.barrier) if step]
    names = [step.name for step in steps]
    title = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    found: dict[int, GroupStarts] = {}
    with progress.task(title, sum(plan.source.rows)) as task:
        committed = [plan.committed_chunks(step) for step in steps]
        kept = frozenset.intersection(*committed)
        todo = [
            step
            for step, chunks in zip(steps, committed, strict=True)
            if len(chunks) < len(plan.source.rows)
        ]
        for chunk, result in workers.map(todo, work, len(plan.source.rows)):
            found[chunk] = result
            (task.find if chunk in kept else task)(plan.source.rows[chunk])
    _check_contiguous(plan, [found[chunk] for chunk in sorted(found)])
    if stage.barrier and needs_digest:
        run_dataset_step(plan, stage.barrier, workers, progress)


def _check_contiguous(plan: Plan, parts: Sequence[GroupStarts]) -> None:
    try:
        check_contiguous(parts, plan.source.place)
    except DataError as error:
        raise error.at(str(plan.recipe.head.dataset_spec)) from None


def _run_resumable(
    plan: Plan,
    step: Step,
    operator: ResumableOperator,
    preflight: Preflight,
    failed: frozenset[str],
    progress: Progress,
) -> Computed:
    """Run a resumable operator on all chunks, in this process: it has workers of its own."""
    kept = kept_folder(plan.cache, operator)
    before = partial(preflight.before_rows_of, step)
    rows, found = 0, list[GroupStarts]()
    for chunk, offset in enumerate(accumulate(plan.source.rows[:-1], initial=0)):
        frame = plan.frame_before(chunk, step)
        rows += frame.num_rows
        found.append(GroupStarts.of(frame, offset) if step.number == 1 else NO_GROUP_STARTS)
    _check_contiguous(plan, found)  # Before anything is paid for.
    with progress.task(step.name, rows) as task, listening(task.sample), closing(operator):
        todo = _chunks_to_run(plan, step, task)
        with prefix_errors_with_file(plan.recipe, step), prefix_errors_with_step(step):
            return run_resumable(operator, todo, kept, task, failed=failed, before=before)


def _chunks_to_run(plan: Plan, step: Step, task: StepProgress) -> Iterator[ChunkToRun]:
    """The chunks of which a resumable step has no commit."""
    for chunk in range(len(plan.source.rows)):
        path = plan.path(step, chunk)
        if path.exists():
            task.find(plan.frame_before(chunk, step).num_rows)
        else:
            yield ChunkToRun(partial(plan.frame_before, chunk, step), path)


def _run_chunk(plan: Plan, stage: Stage, needs_digest: bool, chunk: int) -> GroupStarts:
    """Run the steps of a stage on one chunk, and digest it for the dataset step after them.

    Returns:
        The groups of the chunk, in the stage that makes them.
    """
    last = stage.barrier or stage.steps[-1]
    first = stage.steps[0] if stage.steps else last
    frame = plan.frame_before(chunk, first)
    offset = sum(plan.source.rows[:chunk])
    run = partial(_load_or_run, plan, chunk)
    makers = (at for at, s in enumerate(stage.steps, 1) if "prompt_id" in s.operator.writes())
    until = max(makers, default=0)
    groups = NO_GROUP_STARTS
    frame = apply_steps(stage.steps[:until], frame, run=run)
    # Groups that an earlier stage has made were checked there, before any row was dropped.
    if until or first.number == 1:
        groups = GroupStarts.of(frame, offset)
    frame = apply_steps(stage.steps[until:], frame, run=run)
    if stage.barrier and needs_digest:
        write_digest(plan, stage.barrier, frame, chunk)
    return groups


def _load_or_run(plan: Plan, chunk: int, step: Step, frame: Frame) -> StepResult:
    """What a step does to a chunk: found in its commit, or computed and committed."""
    path = plan.path(step, chunk)
    with suppress(FileNotFoundError):
        return load(path)
    with prefix_errors_with_file(plan.recipe, step):
        result = run_step(step, frame, first_row=sum(plan.source.rows[:chunk]))
    save(path, result)
    return result


def _disk_error(error: OSError, cache: AnyPath) -> RejuiceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RejuiceError(
            f"no space left for {cache}", "free some and run again: finished chunks are kept"
        )
    return RejuiceError(f"{error.filename or cache}: {error.strerror or error}")
