"""Apply the steps of a recipe to a frame. Every runner goes through `apply_steps`.

    Frame ──step──> StepResult(change) ──Frame.after──> Frame ──step──> ...
                          └──> AuditLog: totals, decisions

`rejuice run` hands in a `run` that commits each change to disk and loads it again, `dj-process`
and the trainer compute it; what is done with a change is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Change, Operator, RecordedRolloutMapper, RejuiceError, ResumableOperator
from ...operators.columns import at_path, is_list
from ...operators.groups import Groups
from ...operators.sampling.rollout import RolloutMapper
from ..dataset.helper_columns import exported, filled
from ..recipe.recipe import Recipe
from ..recipe.steps import Step, number_steps
from .audit_log import AuditLog
from .frame import Frame
from .operator_call import compute_change
from .report import Summary, summarise

# --- Identity -------------------------------------------------------------------------
# Rows with the same prompt that may be different prompts, because another column differs.

_NUMBERS_OF_ROWS = frozenset({"id", "idx", "index", "uid", "uuid"})
"""Columns that differ in all rows."""


def identity_lines(recipe: Recipe, step: Step, before: Frame, after: Frame) -> list[str]:
    """A line with the first column in which rows of the same prompt differ; none if none does.

    Rows with one recorded response each differ as they should.
    """
    groups = Groups.of_column(after.select(["prompt_id"])["prompt_id"])
    if len(groups.starts_G) == after.num_rows or not _is_prompt_each(recipe, before.schema):
        return []
    repeats = [
        _sources(after, start, size)
        for start, size in zip(groups.starts_G.tolist(), groups.sizes_G.tolist(), strict=True)
        if size > 1
    ]
    read = _read_otherwise(recipe, before.column_names)
    for name in before.column_names:
        if name in read or name.lower() in _NUMBERS_OF_ROWS:
            continue
        values = before.select([name])[name]
        if any(len({repr(values[row]) for row in rows}) > 1 for rows in repeats):
            return [
                f"{step.name}: rows with the same prompt differ in column '{name}'; if that makes "
                f"them other prompts, set identity: [{name}]."
            ]
    return []


def _sources(frame: Frame, start: int, size: int) -> Sequence[int]:
    found: Sequence[int] = np.asarray(frame.source_rows[start : start + size]).tolist()
    return found


def _is_prompt_each(recipe: Recipe, schema: pa.Schema) -> bool:
    """Whether each row of the dataset has all responses of its prompt, or will be sampled for."""
    for step in recipe.steps:
        if isinstance(step.operator, RolloutMapper):
            return True
        if isinstance(step.operator, RecordedRolloutMapper):
            none = schema.empty_table()
            kinds = [at_path(none, name).type for name in step.operator.columns]
            return len(kinds) > 1 or is_list(kinds[0])
    return False


def _read_otherwise(recipe: Recipe, columns: Collection[str]) -> set[str]:
    """Columns with the responses and what goes with them."""
    return {
        name
        for step in recipe.steps
        if isinstance(step.operator, RecordedRolloutMapper)
        for name in step.operator.reads_of(columns)
    }


# --- Apply the steps of a recipe to a frame. Every runner goes through `apply_steps` ---


class StepResult(NamedTuple):
    """What a step did to some rows."""

    change: Change  # to the rows
    rows_in: int  # rows before the step
    seconds: float  # that the operator took
    summary: Summary  # figures of each written column, see `summary.py`

    @classmethod
    def of(cls, change: Change, rows_in: int, seconds: float = 0.0) -> StepResult:
        """The result of a change, with its summary."""
        return cls(change, rows_in, seconds, summarise(change.columns))


class AppliedStep(NamedTuple):
    """A step, the frame before it, what it did, and the frame after it."""

    step: Step
    before: Frame
    result: StepResult
    after: Frame


RunStep = Callable[[Step, Frame], StepResult]


def run_step(
    step: Step,
    frame: Frame,
    *,
    clock: Callable[[], float] = time.perf_counter,
    summary: bool = True,
    first_row: int = 0,
) -> StepResult:
    """Compute what a step does to a whole frame, whatever its scope.

    Raises:
        RejuiceError: what the operator raised, with the step in front.
    """
    start = clock()
    with prefix_errors_with_step(step):
        change = compute_change(step.operator, frame, first_row)
    seconds = clock() - start
    if not summary:
        return StepResult(change, frame.num_rows, seconds, {})
    return StepResult.of(change, frame.num_rows, seconds)


def iterate_steps(
    steps: Sequence[Step], frame: Frame, run: RunStep = run_step
) -> Iterator[AppliedStep]:
    """Apply steps one after the other, and stop at each."""
    for step in steps:
        result = run(step, frame)
        after = frame.after(result.change)
        yield AppliedStep(step, frame, result, after)
        frame = after


def apply_steps(
    steps: Sequence[Step],
    frame: Frame,
    *,
    run: RunStep = run_step,
    log: AuditLog | None = None,
    first_row: int = 0,
) -> Frame:
    """Apply steps to a frame.

    Returns:
        The frame after the last step.

    Raises:
        RejuiceError: what a step raised.
    """
    for applied in iterate_steps(steps, frame, run):
        frame = applied.after
        if log is not None:
            result = applied.result
            entry = log.step(applied.step.name)
            entry.count(result.rows_in, result.change, result.seconds, result.summary)
            entry.record_decisions(applied.before, result.change, first_row)
    return frame


def run_in_memory(
    operators: Sequence[Operator],
    table: pa.Table,
    *,
    keep_stats: bool = False,
    keep_hashes: bool = False,
) -> pa.Table:
    """The rows that are left of `table` after some operators: the reference for every engine.

    Raises:
        RejuiceError: what an operator raised, with its step in front.
    """

    def run_and_close(step: Step, frame: Frame) -> StepResult:
        try:
            return run_step(step, frame)
        finally:
            if isinstance(step.operator, ResumableOperator):
                step.operator.close()

    frame = apply_steps(number_steps(operators), Frame.of(table), run=run_and_close)
    names = exported(frame.column_names, keep_stats=keep_stats, keep_hashes=keep_hashes)
    return filled(frame.select(names))


def known_change(change: Change) -> RunStep:
    """For `apply_steps`: a change that was computed before."""
    return lambda _, frame: StepResult.of(change, frame.num_rows)


@contextmanager
def prefix_errors_with_step(step: Step) -> Iterator[None]:
    """Put the step in front of an error."""
    try:
        yield
    except RejuiceError as error:
        raise error.at(f"step {step.number} {step.name}") from error.__cause__
