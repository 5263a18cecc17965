"""`--retry_missing STEP`, `--retry_dropped`: what failed is computed again, and nothing else.

A failure is a reason in a column `..._missing` that another attempt may not meet, or a row that a
step names as `Change.failed`. A retry is counted, see `commit.py`: its results, and those of all
steps after it, are in folders of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...operators import Change, Operator, RecipeError, ResumableOperator
from ...operators.arrow_compute import pc
from ...operators.columns import NOT_APPLICABLE, BoolArray, flat, is_text
from ...operators.errors import suggest
from ...operators.groups import Array
from ...operators.operator import merge_logged, surviving_rows
from ..dataset.read import chunk_name
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .commit import save
from .conditional_step import matching_rows
from .plan import Plan
from .report import MISSING, may_fail, summarise
from .steps import apply_operator, read_columns

_OPTION = "--retry_missing"


def step_to_retry(recipe: Recipe, wanted: str | int) -> Step:
    """The step of a recipe with this name or number."""
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


def retry_resumable(plan: Plan, step: Step, operator: ResumableOperator) -> None:
    """Have a resumable step compute again what failed, unless it is finished and nothing has."""
    chunks = plan.committed_chunks(step)
    is_finished = len(chunks) == len(plan.source.rows)
    if is_finished and not any(_failed(plan, step, chunk).any() for chunk in chunks):
        return
    operator.preflight()
    plan.count_retry(step, "missing")


def retry_dropped(plan: Plan) -> None:
    """Have resumable steps compute again which rows they drop."""
    for step in plan.steps:
        if isinstance(step.operator, ResumableOperator):
            changes = (plan.load(step, chunk).change for chunk in plan.committed_chunks(step))
            if any(change.reasons is not None for change in changes):
                plan.count_retry(step, "dropped")


def lacks_steps_before(plan: Plan, step: Step) -> bool:
    """Whether rows that failed in a finished step are not known, as an earlier commit is gone."""
    if isinstance(step.operator, ResumableOperator):
        return False  # Its failures are computed after the steps before it.
    every = frozenset(range(len(plan.source.rows)))
    known = every.intersection(*map(plan.committed_chunks, plan.steps_before(step)))
    unknown = plan.committed_chunks(step) - known
    return any(_failed(plan, step, chunk).any() for chunk in unknown)


def recompute_failed(plan: Plan, step: Step) -> int:
    """Compute again what failed in a step that is not resumable; gives how many rows that were.

    Chunks that it has not computed yet are left to the run.
    """
    chunks = sorted(plan.committed_chunks(step))
    failed = {chunk: _own_failed(plan, step, chunk) for chunk in chunks}
    if not any(map(len, failed.values())):
        return 0
    step.operator.preflight()
    for chunk, rows in failed.items():
        result = plan.load(step, chunk)
        if len(rows):
            frame = plan.frame_before(chunk, step)
            table = read_columns(step.operator, frame)
            change = apply_operator(step.operator, table.take(pa.array(rows)), len(rows))
            change = _with_rows(result.change, rows, change, table)
            own = pa.array(matching_rows(step.operator, frame))
            summary = summarise({name: column.take(own) for name, column in change.columns.items()})
            result = result._replace(change=change, summary=summary)
        save(plan.next_folder(step) / chunk_name(chunk), result)
    plan.count_retry(step, "missing")  # Last: what a killed run leaves of it is not looked at.
    return sum(map(len, failed.values()))


def _failed(plan: Plan, step: Step, chunk: int) -> BoolArray:
    result = plan.load(step, chunk)
    return failed_rows(step.operator, result.change, result.rows_in)


def _own_failed(plan: Plan, step: Step, chunk: int) -> Array:
    """Rows of a chunk on which a step failed: what another step wrote to its column may have failed
    in rows that its condition does not match."""
    failed = np.flatnonzero(_failed(plan, step, chunk))
    if not len(failed):
        return failed
    return np.intersect1d(failed, matching_rows(step.operator, plan.frame_before(chunk, step)))


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
    """A change to all rows of `table`, with the change to some of them in its place.

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
    """Values of both columns, one after the other, at these places."""
    kind = new.type if pa.types.is_null(old.type) else old.type
    return pa.concat_arrays([flat(old).cast(kind), flat(new).cast(kind)]).take(pa.array(at_N))
