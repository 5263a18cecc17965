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
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

from ...operators import (
    EngineError,
    PromptTemplateMapper,
    RecipeError,
    RejuiceError,
    ResumableOperator,
    Scope,
)
from ...operators.kept_rows import has_kept_rows
from ...operators.sampling.protocol import listening
from ..console import path_text
from ..dataset.files import DamagedError, remove_file, write_file
from ..dataset.remote import AnyPath
from ..dataset.write import check_export_path, default_cache
from ..ray_session import AUTO
from ..recipe.columns import checked_schema, step_warnings
from ..recipe.recipe import Recipe, dump
from ..recipe.steps import Step
from .cache import use_cache
from .conditional_step import matching
from .dataset_step import run_dataset_step, write_digest
from .export import check_may_write, write_parts
from .finished_export import Hold, finished_report, placed, sole_writer
from .frame import NO_GROUP_STARTS, GroupStarts
from .plan import Plan, Retried, check_chunk_rows, default_chunk_rows, kept_folder, save
from .progress import Progress
from .report import Report
from .resumable_step import run_resumable
from .retry_missing import computed_again, count_failed, has_dropped, step_to_retry
from .steps import check_prompts, prefix_errors_with_step, run_step
from .trial import lines_about_prompts, lines_about_responses, unmatched_warnings
from .workers import LocalWorkers, Workers

RunEngine = Literal["local", "ray"]


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
    engine: RunEngine | None = "local",
    ray_address: str | None = None,
) -> Report:
    """Run a recipe and write its export, decisions and report; `engine` is as in `cluster_of`."""
    recipe = recipe.offline()
    export = recipe.head.export_path
    this = Run(
        recipe,
        cache or default_cache(export),
        chunk_rows or default_chunk_rows([step.operator for step in recipe.steps]),
        progress or Progress(quiet=True),
        warn,
        cluster=cluster_of(recipe, engine, ray_address),
        verify=verify,
        retry_dropped=retry_dropped,
        retry_missing=None if retry_missing is None else step_to_retry(recipe, retry_missing),
    )
    check_export_path(recipe.path, export, recipe.head.dataset_spec)
    check_may_write(recipe, overwrite=overwrite)
    try:
        if not this.cache.exists():
            checked_schema(recipe)  # A recipe that cannot run leaves no folder.
        with use_cache(this.cache, export):
            this.read()
            with sole_writer(export) as hold, this.opened:
                check_may_write(recipe, overwrite=overwrite)  # Another run may have ended.
                while True:
                    try:
                        return this.finish(hold)
                    except DamagedError as error:
                        this.remove_damaged(error)
                        this.open_plan()
    except OSError as error:
        raise _disk_error(error, this.cache) from error


def cluster_of(recipe: Recipe, engine: RunEngine | None, ray_address: str | None) -> str | None:
    """The address of the Ray cluster that runs a recipe; None: this machine runs it.

    Without an engine it is Ray where an address is given, else what the recipe says; for an address
    see `connected_to_ray`.
    """
    if engine == "local" and ray_address is not None:
        raise RecipeError(f"engine is local, and ray is {ray_address!r}", "give one of them")
    head = recipe.head
    is_local = head.executor_type == "default" and ray_address is None
    if engine == "local" or (engine is None and is_local):
        return None
    return ray_address or head.ray_address or AUTO


@dataclass
class Run:
    """A run of a recipe. After damage its work is planned again, and its counts go on."""

    recipe: Recipe
    cache: AnyPath
    chunk_rows: int
    progress: Progress
    warn: Callable[[str], object]
    cluster: str | None  # the address of Ray; None: workers are on this machine
    verify: bool  # whether files of the dataset are read again, to see whether they have changed
    retry_dropped: bool
    retry_missing: Step | None
    plan: Plan = field(init=False)
    opened: ExitStack = field(default_factory=ExitStack)  # closes the workers
    # by step, how many rows that had failed were computed again
    retried: Counter[str] = field(default_factory=Counter)
    # names of the steps of which something was computed
    computed: set[str] = field(default_factory=set)
    # names of the steps whose servers, and what else they need, were checked
    checked: set[str] = field(default_factory=set)
    removed: set[AnyPath] = field(default_factory=set)  # files that were damaged
    # names of the steps after which nothing is left of before
    forgotten: set[str] = field(default_factory=set)

    @cached_property
    def workers(self) -> Workers:
        if self.cluster is None:
            return self.opened.enter_context(LocalWorkers(self.plan))
        from .workers_on_ray import RayWorkers

        workers = RayWorkers(self.plan, self.cluster, self.progress.tell)
        return self.opened.enter_context(workers)

    def read(self) -> None:
        head = self.recipe.head
        if head.generated_datasets:
            files = (*head.dataset_spec.paths, *self.recipe.recordings())
            for path in head.write_missing(*files):
                found = f"{path} did not exist"
                self.progress.tell(f"{found}: it was written, as generated_datasets says")
        with self.progress.task("read", None):
            self.open_plan()
        source = self.plan.source
        check_chunk_rows([s.operator for s in self.plan.steps], max(source.rows, default=0))
        lines = step_warnings(self.recipe, source.schema.names)
        if any(step.operator.where for step in self.recipe.steps):
            lines += unmatched_warnings(self.recipe)
        for line in lines:
            self.warn(line)

    def open_plan(self) -> None:
        """Plan the work; chunks of the source that are damaged are written again."""
        while True:
            try:
                self.plan = Plan.open(self.recipe, self.cache, self.chunk_rows, verify=self.verify)
                return
            except DamagedError as error:
                self.remove_damaged(error)

    def finish(self, hold: Hold) -> Report:
        """Compute and commit what is missing, and write the export.

        Where it raises that a file of the cache is damaged, that is removed, and the work is
        planned and done again: commits are loaded then, and not computed.
        """
        if self.retry_missing or self.retry_dropped:
            self.retry()
        head = self.plan.report_head(self.chunk_rows)
        finished = finished_report(self.plan, head, verify=self.verify)
        if finished is not None:
            self.progress.tell(f"nothing to do: {path_text(hold.export_path)} is up to date")
            return finished
        self.check_before_all()
        for stage in self.plan.stages():
            self.run_stage(stage)
        for line in (*_lines_about_prompts(self.plan), *_lines_about_responses(self.plan)):
            self.warn(line)
        return self.write_export(hold)

    def retry(self) -> None:
        """Have what failed in an earlier run computed again, as far as the options say so."""
        plan, step = self.plan, self.retry_missing
        retries = list[tuple[Step, Retried]]()
        if self.retry_dropped:
            retries += [(each, "dropped") for each in plan.steps if has_dropped(plan, each)]
        if step:
            is_resumable = isinstance(step.operator, ResumableOperator)
            with prefix_errors_with_step(step, self.recipe):
                failed = count_failed(plan, step)
            if failed or (is_resumable and not plan.is_done(step)):
                self.check_step(step)
                retries.append((step, "missing"))
            else:
                self.warn(f"{step.name} has no result that failed: nothing is retried")
            if not is_resumable:  # Else it counts them as it finds them.
                self.retried[step.name] = failed
        # Done: a damage that is found next must not count them twice.
        self.retry_missing, self.retry_dropped = None, False
        for each, what in sorted(retries, key=lambda retry: retry[0].number):
            self.plan.count_retry(each, what)
            self.open_plan()  # Retries of later steps are counted in other folders than before.

    def run_stage(self, steps: Sequence[Step]) -> None:
        last = steps[-1]
        if isinstance(last.operator, ResumableOperator):
            self.run_resumable(last, last.operator)
            return
        plan = self.plan
        chunks, todo = len(plan.source.rows), list[Step]()
        in_cache = frozenset(range(chunks))
        for step in steps:
            committed = plan.committed_chunks(step)
            in_cache &= committed
            if len(committed) < chunks:
                todo.append(step)
                self.computed.add(step.name)
        if any(step.operator.asks_server for step in todo):
            self.forget_after(last)
        # All of its digests, even where some of its commits are there: one that was damaged is not.
        needs_digest = last in todo and last.operator.scope is Scope.DATASET
        title = last.name if len(steps) == 1 else f"{steps[0].name} … {last.name}"
        found: dict[int, GroupStarts] = {}
        with self.progress.task(title, sum(plan.source.rows)) as task:
            work = partial(_run_chunk, plan, steps, needs_digest)
            for chunk, groups in self.workers.map(todo, work, chunks):
                found[chunk] = groups
                (task.find if chunk in in_cache else task)(plan.source.rows[chunk])
        same = _lines_about_prompts(plan)
        check_prompts(self.recipe, [found[n] for n in sorted(found)], plan.source.place, same)
        if needs_digest:
            run_dataset_step(plan, last, self.workers, self.progress)

    def run_resumable(self, step: Step, operator: ResumableOperator) -> None:
        """Run a resumable step on all chunks, in this process: it has workers of its own."""
        plan, sizes, found = self.plan, list[int](), list[GroupStarts]()
        for chunk in range(len(plan.source.rows)):
            frame = plan.frame_before(chunk, step)
            with prefix_errors_with_step(step, plan.recipe):
                sizes.append((matching(operator, frame) if operator.where else frame).num_rows)
            if step.number == 1:
                found.append(GroupStarts.of(frame, plan.source.first_row(chunk)))
        if found:  # Before anything is paid for.
            check_prompts(self.recipe, found, plan.source.place, ())
        with (
            self.progress.task(step.name, sum(sizes)) as task,
            listening(task.sample),
            closing(operator),
            prefix_errors_with_step(step, plan.recipe),
        ):
            before = partial(self.check_before_rows_of, step)
            computed, retried = run_resumable(plan, step, operator, sizes, task, before)
        self.retried[step.name] += retried
        if computed:  # Else all of them were found.
            self.computed.add(step.name)

    def write_export(self, hold: Hold) -> Report:
        plan = self.plan
        with placed(plan, hold) as place:
            log = write_parts(plan, place, self.workers, self.progress)
            lines = [
                log.step(step.name).report(
                    cached=step.name not in self.computed, retried=self.retried[step.name]
                )
                for step in plan.steps
            ]
            report = Report.of(lines, **plan.report_head(self.chunk_rows))
            hold.check()
            write_file(place.folder / "recipe.yaml", dump(self.recipe.absolute()))
            report.write(place.folder)
        return report

    # A resumable step that may find all of its results, from an earlier run or in a cache of its
    # own, may need no server. It is checked only where rows before it are computed that it cannot
    # know.

    def check_before_all(self) -> None:
        """Check the cluster, and what the steps need that are certain to compute something."""
        if self.cluster is not None:
            _ = self.workers  # They connect. Else what is sampled first is paid for in vain.
        for step in self.plan.steps:
            operator = step.operator
            if not isinstance(operator, ResumableOperator):
                is_certain = not self.plan.is_done(step)
            else:
                kept = has_kept_rows(kept_folder(self.cache, operator))
                is_certain = not kept and not operator.has_results()
            if is_certain:
                self.check_step(step)

    def check_before_rows_of(self, step: Step) -> None:
        """Check what the steps need after one that is about to compute rows."""
        self.forget_after(step)
        if isinstance(step.operator, ResumableOperator) and step.operator.has_results():
            return  # What it finds, such as recorded responses, the steps after it may know.
        for later in self.plan.steps[step.number :]:
            self.check_step(later)

    def forget_after(self, step: Step) -> None:
        """Remove what later steps made of rows that were lost to damage, and may get other results.

        There is nothing of them as a rule.
        """
        if step.name not in self.forgotten:
            self.forgotten.add(step.name)
            for later in self.plan.steps[step.number :]:
                self.plan.remove_commits(later, "*.arrow")

    def check_step(self, step: Step) -> None:
        """Check what a step needs, such as whether its server is up, unless it was checked."""
        if step.name not in self.checked:
            self.checked.add(step.name)
            try:
                step.operator.preflight()
            except RejuiceError as error:
                where = self.recipe.where(step)
                raise _LocatedError(error.found, error.right, where=where) from error

    def remove_damaged(self, error: DamagedError) -> None:
        """Remove a damaged file, so that it counts as missing.

        The error is raised if it was removed before, and written again.
        """
        path = error.path
        if path is None or path in self.removed:
            raise error
        self.removed.add(path)
        remove_file(path)
        self.warn(f"{error.found}: it was removed, and what was in it is computed again")


class _LocatedError(EngineError):
    """An error of another step than the one that is running, which puts nothing in front of it."""

    def at(self, where: str) -> RejuiceError:
        return self


def _run_chunk(plan: Plan, steps: Sequence[Step], needs_digest: bool, chunk: int) -> GroupStarts:
    """Run the steps of a stage on one chunk; of a last one of dataset scope, make the digest.

    Workers call it, so it is given only what can be sent to another machine. Returns the groups of
    the chunk, in the stage that makes them.
    """
    first_row = plan.source.first_row(chunk)
    frame = plan.frame_before(chunk, steps[0])
    makers = [step for step in steps if "prompt_id" in step.operator.writes()]
    groups = NO_GROUP_STARTS
    # Groups that an earlier stage has made were checked there, before any row was dropped.
    if steps[0].number == 1 and not makers:
        groups = GroupStarts.of(frame, first_row)
    for step in steps:
        if step.operator.scope is Scope.DATASET:
            if needs_digest:
                write_digest(plan, step, frame, chunk)
            break
        try:
            result = plan.load(step, chunk)
        except FileNotFoundError:
            again = None
            if plan.retries(step).times:
                again = computed_again(plan, step, frame, chunk)
            result = again or run_step(step, frame, recipe=plan.recipe, first_row=first_row)
            try:
                # Another run was faster. A server may have given it something else: go on with it.
                result = plan.load(step, chunk)
            except FileNotFoundError:
                save(plan.path(step, chunk), result)
                if step.operator.asks_server:  # It may have given something else before.
                    for later in steps[steps.index(step) + 1 :]:
                        plan.remove_commits(later, f"*{chunk:06d}*")
                        plan.remove_commits(later, "decided-*")
        frame = frame.after(result.change)
        if makers and step is makers[-1]:
            groups = GroupStarts.of(frame, first_row)
    return groups


def _lines_about_prompts(plan: Plan) -> Iterator[str]:
    """What the first chunk shows about prompts."""
    for step in plan.steps if plan.source.rows else ():
        if isinstance(step.operator, PromptTemplateMapper):
            later = plan.steps[step.number] if step.number < len(plan.steps) else None
            before, after = plan.source_frame(0), plan.frame_before(0, later)
            yield from lines_about_prompts(plan.recipe, step, before, after)


def _lines_about_responses(plan: Plan) -> Iterator[str]:
    if plan.source.rows:
        yield from lines_about_responses(plan.recipe, plan.source_frame(0))


def _disk_error(error: OSError, cache: AnyPath) -> RejuiceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RejuiceError(
            f"no space left for {cache}", "free some and run again: finished chunks are kept"
        )
    return RejuiceError(f"{error.filename or cache}: {error.strerror or error}")
