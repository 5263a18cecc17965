"""`--retry_missing STEP`: what failed in a step is computed again, and what succeeded is kept.

A failure is a reason in a column `..._missing` that another attempt may not meet, or a row that a
step names as `Change.failed`. The results of the step lose these rows; the keys of all steps after
it change, so that none of them finds what it made of the failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ...operators import Change, Operator, RecipeError, ResumableOperator
from ...operators.arrow_compute import pc
from ...operators.columns import NOT_APPLICABLE, BoolArray, flat, is_text
from ...operators.errors import suggest
from ...operators.groups import Array
from ...operators.operator import merge_logged, surviving_rows
from ..dataset.remote import AnyPath, RemotePath
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from . import paid_rows_format as kept_chunk
from .commit import count_retry, load, retry_count, save
from .conditional_step import matching_rows
from .paid_rows import ChunkLock, chunks, is_finished, journalled, rewrite_without
from .plan import Plan, kept_folder
from .report import MISSING, may_fail, summarise
from .steps import StepResult, apply_operator, read_columns

_OPTION = "--retry_missing"

FindFailed = Callable[[Change, int], BoolArray]
"""Finds the rows that failed, among so many rows to which a change was made: bool[N]."""


def step_to_retry(recipe: Recipe, wanted: str | int) -> Step:
    """Return the step of a recipe with this name or number.

    Raises:
        RecipeError: there is no such step, or it cannot have failed for a row.
    """
    named = {name: s for s in recipe.steps for name in (s.name, str(s.number))}
    step = named.get(str(wanted))
    if step is None:
        names = [each.name for each in recipe.steps]
        right = suggest(str(wanted), names) or f"its steps are: {', '.join(names)}"
        raise RecipeError(f"no step '{wanted}' in the recipe", right, where=_OPTION)
    if not may_fail(step.operator):
        others = [each.name for each in recipe.steps if may_fail(each.operator)]
        right = f"steps that may: {', '.join(others)}" if others else "nor can another step"
        if isinstance(step.operator, ResumableOperator):
            right = f"--retry_dropped retries the rows that {step.name} dropped"
        raise RecipeError(f"{step.name} cannot leave a result missing", right, where=_OPTION)
    return step


def reopen_failed(plan: Plan, step: Step, operator: ResumableOperator) -> Iterator[list[str]]:
    """Take the failures out of what a resumable step computed; gives the keys of their rows."""
    find = partial(failed_rows, operator)
    yield from _reopen(kept_folder(plan.cache, operator), find, operator.preflight)
    _unlink_in_store(plan, step)


def reopen_dropped(plan: Plan) -> None:
    """Take the rows that resumable steps dropped out of what they computed."""
    for step in plan.steps:
        if isinstance(step.operator, ResumableOperator):
            for _ in _reopen(kept_folder(plan.cache, step.operator), dropped_rows):
                pass
            _unlink_in_store(plan, step)


def _unlink_in_store(plan: Plan, step: Step) -> None:
    """Remove a resumable step's commits from a store: a link to what was taken apart looks whole.

    The chunks that still are whole are found and linked again.
    """
    if isinstance(plan.cache, RemotePath):
        for path in plan.paths(step):
            path.unlink(missing_ok=True)


def _reopen(
    kept: AnyPath, find_failed: FindFailed, before: Callable[[], None] = lambda: None
) -> Iterator[list[str]]:
    """Turn results with failed rows back into journals without them: these rows are retried."""
    is_first = True
    for whole, keys in chunks(kept):
        with ChunkLock(whole):
            failed = _failed_places(whole, keys, find_failed)
            if not failed:
                continue
            if is_first:
                before()
                # First: no result of the old rows may ever be found under a key of the new rows.
                count_retry(kept)
                is_first = False
            rewrite_without(whole, failed)
        yield [keys[row] for row in failed]


def _failed_places(whole: AnyPath, keys: Sequence[str], find_failed: FindFailed) -> set[int]:
    """Return the failed rows of a chunk, whether all of it is finished or not."""
    if not is_finished(whole, keys):
        found = journalled(whole).items()
        return {row for row, entry in found if find_failed(entry.change, 1)[0]}
    commit = kept_chunk.load(whole)
    return set(np.flatnonzero(find_failed(commit.change, commit.rows_in)).tolist())


def dropped_rows(change: Change, num_rows: int) -> BoolArray:
    """Return which rows a change drops, bool[N]."""
    if change.reasons is None:
        return np.zeros(num_rows, bool)
    return np.asarray(change.reasons.is_valid())


def lacks_steps_before(plan: Plan, step: Step) -> bool:
    """Whether rows that failed in a finished step are not known, as an earlier commit is gone."""
    if isinstance(step.operator, ResumableOperator):
        return False  # Its failures are computed after the steps before it.
    every = frozenset(range(len(plan.source.rows)))
    known = every.intersection(*map(plan.committed_chunks, plan.steps_before(step)))
    paths = (plan.path(step, chunk) for chunk in every - known)
    commits = (load(path) for path in paths if path.exists())
    return any(failed_rows(step.operator, each.change, each.rows_in).any() for each in commits)


def recompute_failed(plan: Plan, step: Step) -> Iterator[int]:
    """Compute again what failed in a finished step that is not resumable; gives rows by chunk."""
    is_first = True
    for chunk, path in enumerate(plan.paths(step)):
        if not path.exists():
            continue  # All of it is going to be computed.
        commit = load(path, mapped=False)
        failed_N = failed_rows(step.operator, commit.change, commit.rows_in)
        if not failed_N.any():
            continue
        frame = plan.frame_before(chunk, step)
        own_N = matching_rows(step.operator, frame)
        # In other rows, what another step wrote to the column may have failed.
        rows = np.intersect1d(np.flatnonzero(failed_N), own_N)
        if not len(rows):
            continue
        if is_first:
            step.operator.preflight()
            # First: no result of the old rows may ever be found under a key of the new rows.
            count_retry(path.parent)
            is_first = False
        table = read_columns(step.operator, frame)
        again = apply_operator(step.operator, table.take(pa.array(rows)), len(rows))
        change = _with_rows(commit.change, rows, again, table)
        own = pa.array(own_N)
        summary = summarise({name: column.take(own) for name, column in change.columns.items()})
        result = StepResult(change, commit.rows_in, commit.seconds, summary)
        save(path, result, retry_count(path.parent))
        yield len(rows)


def failed_rows(operator: Operator, change: Change, num_rows: int) -> BoolArray:
    """Which rows of the input failed for a reason that another attempt may not meet, bool[N]."""
    failed_N = np.zeros(num_rows, bool)
    if change.failed is not None:
        failed_N[change.failed] = True
    for name, column in change.columns.items():
        known = operator.failed_values().get(name, frozenset())
        failures = operator.retryable if name.endswith(MISSING) else known
        if failures is None:  # Any reason.
            failed = pc.is_valid(column)
            if is_text(column.type):
                failed = pc.and_(failed, pc.not_equal(column, NOT_APPLICABLE))
                failed = pc.fill_null(failed, False)
        elif failures:
            failed = pc.is_in(column, pa.array(sorted(failures), pa.string()))
        else:
            continue
        rows_M = None if change.parents is None else surviving_rows(change, num_rows)
        at = np.flatnonzero(np.asarray(failed))
        failed_N[at if rows_M is None else rows_M[at]] = True
    return failed_N


def _with_rows(change: Change, rows: Array, again: Change, table: pa.Table) -> Change:
    """Return a change to all rows of `table`, with the change to some of them in its place.

    Neither makes or moves rows. Where only one of them writes a column, the other leaves it as it
    is in the table, or null where it is not there.
    """
    n = table.num_rows
    at_N = np.arange(n)
    at_N[rows] = n + np.arange(len(rows))
    columns = {}
    for name in dict.fromkeys((*change.columns, *again.columns)):
        old = table[name] if name in table.column_names else pa.nulls(n)
        new = old.take(pa.array(rows))
        columns[name] = _replaced(change.columns.get(name, old), again.columns.get(name, new), at_N)
    reasons = None
    if change.reasons is not None:
        none = pa.nulls(len(rows), pa.string())
        reasons = _replaced(
            change.reasons, again.reasons if again.reasons is not None else none, at_N
        )
    logged = merge_logged((change.logged, again.logged))
    replaced = change._replace(columns=columns, reasons=reasons, logged=logged)
    if change.failed is None:
        return replaced
    failed = None if again.failed is None else rows[again.failed]
    return replaced._replace(failed=failed, notes=again.notes)


def _replaced(old: Any, new: Any, at_N: Any) -> pa.Array:
    """Return values of both columns, one after the other, at these places."""
    kind = new.type if pa.types.is_null(old.type) else old.type
    return pa.concat_arrays([flat(old).cast(kind), flat(new).cast(kind)]).take(pa.array(at_N))
