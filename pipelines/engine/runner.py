"""Run a recipe over chunks: stage by stage, each step of each chunk committed once.

    source chunks ──> [row and group steps, in workers] ──> barrier: all digests, decisions
                  ──> [row and group steps, in workers] ──> ... ──> export, audit log

A killed run leaves whole commits; the next run computes what is missing. A commit that is damaged
counts as missing.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from ...operators import (
    DataError,
    PromptTemplateMapper,
    RecipeError,
    RejuiceError,
    ResumableOperator,
)
from ...operators.disk import kind_of
from ...operators.sampling.protocol import listening
from ..dataset.files import DamagedError, remove_file
from ..dataset.remote import AnyPath, RemotePath
from ..dataset.run_folder import is_folder
from ..dataset.write import check_export_path, default_cache
from ..recipe.columns import checked_schema
from ..recipe.group_warnings import group_warnings
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .cache import use_cache
from .chunks import check_chunk_rows, default_chunk_rows
from .commit import RetriesGoneError, save
from .dataset_step import run_dataset_step, write_digest
from .export import check_may_replace_export, check_run_folder_is_free, report_head, write_export
from .finished import finished_report, sole_writer
from .frame import NO_GROUP_STARTS, Frame, GroupStarts, check_contiguous
from .paid_rows import ChunkLock, is_finished, is_kept
from .plan import Plan, Stage, kept_folder
from .preflight import Preflight
from .progress import Progress, StepProgress, prefix_errors_with_file
from .report import Report
from .resumable import ChunkToRun, Computed, run_resumable
from .retry import (
    dropped_rows,
    lacks_steps_before,
    recompute_failed,
    reopen,
    reopen_failed,
    step_to_retry,
)
from .steps import StepResult, apply_steps, identity_lines, prefix_errors_with_step, run_step
from .workers.local import LocalWorkers, OpenWorkers, Workers

# --- Damage ---------------------------------------------------------------------------
# What is damaged in the cache counts as missing: it is removed, and computed again.

T = TypeVar("T")


def undamaged(first: Callable[[], T], again: Callable[[], T], warn: Callable[[str], object]) -> T:
    """What `first` returns or, each time that it finds a damaged file, what `again` returns.

    Each damaged file costs one pass over the work that was done before it, in which the commits
    are loaded, and not computed: what is removed may be a chunk of the source, or what a later
    commit links to, so the work is planned again. Damage is rare, and passes are at most as many as
    files are damaged.

    Raises:
        DamagedError: a file is damaged once more, after it was written again.
    """
    removed, work = set[AnyPath](), first
    while True:
        try:
            return work()
        except DamagedError as error:
            path = error.path
            if path is None or path in removed:
                raise
            removed.add(path)
            if isinstance(error, RetriesGoneError):
                warn(error.found)
            elif is_kept(path):
                with ChunkLock(path), suppress(DamagedError):
                    is_finished(path)  # What is still good of it stays, and the rest is named.
            else:
                remove_file(path)
                warn(f"{error.found}: it was removed, and what was in it is computed again")
            work = again


# --- Run a recipe over chunks: stage by stage, each step of each chunk committed once ---


@dataclass
class _Counts:
    """What a run has counted so far. After damage its work starts again, and its counts go on."""

    # keys of the rows that failed in an earlier run, of the resumable step to retry
    failed: set[str] = field(default_factory=set)
    # by step, how many rows that had failed were computed again
    retried: Counter[str] = field(default_factory=Counter)
    # names of the steps of which something was computed
    computed: set[str] = field(default_factory=set)

    def retry(self, step: Step, rows: int) -> None:
        """Count rows of a step that were computed again."""
        self.retried[step.name] += rows
        self.computed.add(step.name)


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

    Raises:
        RejuiceError: bad recipe, bad data, a failing operator or a full disk, in one line.
    """
    head = recipe.head
    progress = progress or Progress(quiet=True)
    cache = cache or default_cache(head.export_path)
    chunk_rows = chunk_rows or default_chunk_rows(step.operator for step in recipe.steps)
    again = None if retry_missing is None else step_to_retry(recipe, retry_missing)
    check_export_path(recipe.path, head.export_path, head.dataset_spec)
    _check_may_write(recipe, overwrite)
    try:
        if not cache.exists():
            checked_schema(recipe)  # A recipe that cannot run leaves no folder.
        # What is retried is taken apart first: another run may be reading it.
        alone = retry_dropped or again is not None
        with use_cache(cache, head.export_path, alone=alone) as share:
            reopen_plan = partial(Plan.open, recipe, cache, chunk_rows, verify=verify)
            retry = partial(_retry, retry_dropped, again, share)
            return _run(
                recipe, overwrite, reopen_plan, chunk_rows, retry, again, progress, warn,
                open_workers,
            )  # fmt: skip
    except OSError as error:
        raise _disk_error(error, cache) from error


def _check_may_write(recipe: Recipe, overwrite: bool) -> None:
    """Refuse an export, or a report, that would take the place of another one."""
    export = recipe.head.export_path
    # Ray Data writes a folder of such a name; this would fail after hours.
    if isinstance(export, Path) and not is_folder(export) and kind_of(export) == "a folder":
        right = "move it away, or give another export_path"
        raise RecipeError(f"export_path {export} is a folder", right)
    check_run_folder_is_free(export)
    if not overwrite:
        check_may_replace_export(recipe, export)


def _run(
    recipe: Recipe,
    overwrite: bool,
    reopen_plan: Callable[[], Plan],
    chunk_rows: int,
    retry: Callable[[_Counts, Plan], Plan],
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
    counts = _Counts()
    with sole_writer(head.export_path) as hold:
        _check_may_write(recipe, overwrite)  # Once more: another run may have ended meanwhile.

        def retried(plan: Plan) -> Plan:
            return retry(counts, _compute_before(plan, again, counts, progress, open_workers))

        plan = undamaged(lambda: retried(plan), lambda: retried(reopen_plan()), warn)
        if again and not counts.failed and not counts.retried[again.name]:
            warn(f"{again.name} has no result that failed: nothing is retried")
        finished = finished_report(plan, report_head(plan, chunk_rows))
        if finished is not None:
            progress.tell(f"nothing to do: {head.export_path} is up to date")
            return finished
        with open_workers(plan) as workers:

            def finish(plan: Plan) -> Report:
                _run_stages(plan, again, counts, workers, progress)
                for line in _lines_about_prompts(plan):
                    warn(line)
                computed, retried = counts.computed, counts.retried
                return write_export(plan, hold, computed, retried, chunk_rows, workers, progress)

            return undamaged(lambda: finish(plan), lambda: finish(reopen_plan()), warn)


def _warnings(plan: Plan) -> list[str]:
    """A line about each thing in a recipe that may not be what its author meant."""
    of_groups = group_warnings(plan.recipe, plan.source.schema.names)
    return [*plan.recipe.setting_warnings(), *of_groups]


def _lines_about_prompts(plan: Plan) -> list[str]:
    """What the first chunk shows about rows that were taken for the same prompt."""
    lines = list[str]()
    for step in plan.steps if plan.source.rows else ():
        if isinstance(step.operator, PromptTemplateMapper):
            later = plan.steps[step.number] if step.number < len(plan.steps) else None
            after = plan.frame_before(0, later)
            lines += identity_lines(plan.recipe, step, plan.source_frame(0), after)
    return lines


def _run_stages(
    plan: Plan,
    again: Step | None,
    counts: _Counts,
    workers: Workers,
    progress: Progress,
    before: Step | None = None,
) -> None:
    """Run the stages of a plan."""
    preflight = Preflight(plan)
    preflight.before_all()
    unfinished = {step.name for step in plan.steps if not plan.is_done(step)}
    for stage in plan.stages(before):
        if stage.resumable:
            step = stage.steps[0]
            failed = counts.failed if step == again else frozenset[str]()
            done = _run_resumable(plan, step, stage.resumable, preflight, failed, progress)
            counts.retried[step.name] += done.retried
            if done.rows:  # Else all of them were found, in other chunks.
                counts.computed.add(step.name)
        else:
            counts.computed |= unfinished & {step.name for step in stage.all_steps}
            _run_stage(plan, stage, workers, progress)


def _compute_before(
    plan: Plan,
    again: Step | None,
    counts: _Counts,
    progress: Progress,
    open_workers: OpenWorkers,
) -> Plan:
    """Compute what is missing of the steps before one whose failures are computed again.

    Returns:
        The plan, in which that step has another key where rows before it may differ now.
    """
    if again is None or not lacks_steps_before(plan, again):
        return plan
    with open_workers(plan) as workers:
        _run_stages(plan, again, counts, workers, progress, before=again)
    return Plan.of(plan.recipe, plan.source, plan.cache)


def _retry(
    dropped: bool, missing: Step | None, share: Callable[[], None], counts: _Counts, plan: Plan
) -> Plan:
    """Take failures out of the results, so that they are computed again; then share the cache.

    A step that is not resumable computes them here.

    Returns:
        The plan, in which later steps have other keys.
    """
    if missing is None and not dropped:
        return plan
    if missing is not None:
        with prefix_errors_with_file(plan.recipe, missing), prefix_errors_with_step(missing):
            if isinstance(missing.operator, ResumableOperator):
                reopen_failed(plan, missing.operator, counts.failed.update)
                _unlink_in_store(plan, missing)
            else:
                recompute_failed(plan, missing, partial(counts.retry, missing))
    for step in plan.steps if dropped else ():
        if isinstance(step.operator, ResumableOperator):
            reopen(kept_folder(plan.cache, step.operator), dropped_rows)
            _unlink_in_store(plan, step)
    share()
    return Plan.of(plan.recipe, plan.source, plan.cache)


def _unlink_in_store(plan: Plan, step: Step) -> None:
    """Remove a resumable step's commits from a store: a link to what was taken apart looks whole.

    The chunks that still are whole are found and linked again.
    """
    if isinstance(plan.cache, RemotePath):
        for path in plan.paths(step):
            path.unlink(missing_ok=True)


def _run_stage(plan: Plan, stage: Stage, workers: Workers, progress: Progress) -> None:
    steps = stage.all_steps
    committed = [plan.committed_chunks(step) for step in steps]
    kept = frozenset.intersection(*committed)
    todo = [
        step
        for step, chunks in zip(steps, committed, strict=True)
        if len(chunks) < len(plan.source.rows)
    ]
    # All of its digests, even where some of its commits are there: one that was damaged is not.
    needs_digest = any(step is stage.barrier for step in todo)
    work = partial(_run_chunk, plan, stage, needs_digest)
    names = [step.name for step in steps]
    title = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    found: dict[int, GroupStarts] = {}
    with progress.task(title, sum(plan.source.rows)) as task:
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
    failed: Set[str],
    progress: Progress,
) -> Computed:
    """Run a resumable operator on all chunks, in this process: it has workers of its own."""
    kept = kept_folder(plan.cache, operator)
    before = partial(preflight.before_rows_of, step)
    rows, found = list[int](), list[GroupStarts]()
    for chunk, offset in enumerate(accumulate(plan.source.rows[:-1], initial=0)):
        frame = plan.frame_before(chunk, step)
        rows.append(frame.num_rows)
        found.append(GroupStarts.of(frame, offset) if step.number == 1 else NO_GROUP_STARTS)
    _check_contiguous(plan, found)  # Before anything is paid for.
    with progress.task(step.name, sum(rows)) as task, listening(task.sample), closing(operator):
        todo = _chunks_to_run(plan, step, rows, task)
        with prefix_errors_with_file(plan.recipe, step), prefix_errors_with_step(step):
            return run_resumable(operator, todo, kept, task, failed=failed, before=before)


def _chunks_to_run(
    plan: Plan, step: Step, rows: Sequence[int], task: StepProgress
) -> Iterator[ChunkToRun]:
    """The chunks of which a resumable step has no commit; `rows` are those of each before it."""
    committed = plan.committed_chunks(step)
    firsts = accumulate(plan.source.rows, initial=0)
    for chunk, (path, first) in enumerate(zip(plan.paths(step), firsts, strict=False)):
        if chunk in committed:
            task.find(rows[chunk])
        else:
            yield ChunkToRun(partial(plan.frame_before, chunk, step), path, first)


def _run_chunk(plan: Plan, stage: Stage, needs_digest: bool, chunk: int) -> GroupStarts:
    """Run the steps of a stage on one chunk, and digest it for the dataset step after them.

    Returns:
        The groups of the chunk, in the stage that makes them.
    """
    first = stage.all_steps[0]
    frame = plan.frame_before(chunk, first)
    run = partial(_load_or_run, plan, chunk)
    makers = (at for at, s in enumerate(stage.steps, 1) if "prompt_id" in s.operator.writes())
    until = max(makers, default=0)
    groups = NO_GROUP_STARTS
    frame = apply_steps(stage.steps[:until], frame, run=run)
    # Groups that an earlier stage has made were checked there, before any row was dropped.
    if until or first.number == 1:
        groups = GroupStarts.of(frame, plan.source.first_row(chunk))
    frame = apply_steps(stage.steps[until:], frame, run=run)
    if stage.barrier and needs_digest:
        write_digest(plan, stage.barrier, frame, chunk)
    return groups


def _load_or_run(plan: Plan, chunk: int, step: Step, frame: Frame) -> StepResult:
    """What a step does to a chunk: found in its commit, or computed and committed."""
    with suppress(FileNotFoundError):
        return plan.load(step, chunk)
    with prefix_errors_with_file(plan.recipe, step):
        result = run_step(step, frame, first_row=plan.source.first_row(chunk))
    with suppress(FileNotFoundError):
        # Another run was faster. A server may have given it something else, which it goes on with.
        return plan.load(step, chunk)
    save(plan.path(step, chunk), result)
    return result


def _disk_error(error: OSError, cache: AnyPath) -> RejuiceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RejuiceError(
            f"no space left for {cache}", "free some and run again: finished chunks are kept"
        )
    return RejuiceError(f"{error.filename or cache}: {error.strerror or error}")
