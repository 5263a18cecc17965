"""`--retry_missing STEP`, `--retry_dropped`: what failed is computed again, and nothing else.

A failure is a reason in a column `..._missing` that another attempt may not meet, or a row that a
step names as `Change.failed`. A retry is counted, see `Retries`: its results, and those of all
steps after it, are in folders of their own. A chunk begins there with what the step did before.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
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
from ..dataset.remote import AnyPath
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .conditional_step import matching_rows
from .frame import Frame
from .plan import Plan, load
from .report import failures, may_fail
from .steps import StepResult, read_columns, run_step

_OPTION = "--retry_missing"


def step_to_retry(recipe: Recipe, wanted: str | int) -> Step:
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


def has_dropped(plan: Plan, step: Step) -> bool:
    """Whether a resumable step has dropped rows, which another attempt may keep."""
    changes = (plan.load(step, chunk).change for chunk in plan.committed_chunks(step))
    is_resumable = isinstance(step.operator, ResumableOperator)
    return is_resumable and any(change.reasons is not None for change in changes)


def count_failed(plan: Plan, step: Step) -> int:
    """Rows that failed in the chunks that a step has finished, or had before it was retried."""
    return sum(_failed_in(plan, step, chunk) for chunk in range(len(plan.source.rows)))


def _failed_in(plan: Plan, step: Step, chunk: int) -> int:
    result = _first_commit((plan.folder(step), *plan.folders_before_retry(step)), chunk)
    if result is None:
        return 0
    failed = np.flatnonzero(failed_rows(step.operator, result.change, result.rows_in))
    if len(failed) and step.operator.where is not None:
        with suppress(FileNotFoundError):  # A commit before it is gone: they pass for its own.
            failed = _own(step, plan.frame_before(chunk, step), failed)
    return len(failed)


def _first_commit(folders: Iterable[AnyPath], chunk: int) -> StepResult | None:
    for folder in folders:
        with suppress(FileNotFoundError):
            return load(folder / chunk_name(chunk))
    return None


def _own(step: Step, frame: Frame, failed: Array) -> Array:
    """Those of some rows that a step is about: others may have failed in another step."""
    return np.intersect1d(failed, matching_rows(step.operator, frame))


def computed_again(plan: Plan, step: Step, frame: Frame, chunk: int) -> StepResult | None:
    """What a step did to a chunk before it was retried, with what failed computed again.

    None where it has done nothing.
    """
    operator, before = step.operator, _first_commit(plan.folders_before_retry(step), chunk)
    if before is None:
        return None
    rows = _own(step, frame, np.flatnonzero(failed_rows(operator, before.change, before.rows_in)))
    if not len(rows):
        return before
    failed, first_row = frame.after(Change(parents=rows)), plan.source.first_row(chunk)
    again = run_step(step, failed, recipe=plan.recipe, first_row=first_row).change
    table = read_columns(operator, frame)
    return before._replace(change=_with_rows(before.change, rows, again, table))


def failed_rows(operator: Operator, change: Change, num_rows: int) -> BoolArray:
    """Which rows of the input failed for a reason that another attempt may not meet, bool[N]."""
    failed_N = np.zeros(num_rows, bool)
    if change.failed is not None:
        failed_N[change.failed] = True
    for name, column in change.columns.items():
        values = failures(operator, name)
        if values is None:
            failed = pc.is_valid(column)
            if is_text(column.type):
                failed = pc.and_(failed, pc.not_equal(column, NOT_APPLICABLE))
                failed = pc.fill_null(failed, False)
        elif values:
            failed = pc.is_in(column, pa.array(sorted(values), pa.string()))
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
        new = pa.nulls(len(rows), pa.string()) if again.reasons is None else again.reasons
        reasons = _replaced(change.reasons, new, at_N)
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
