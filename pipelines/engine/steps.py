"""Apply the steps of a recipe to a frame. Every runner goes through `apply_steps`.

    Frame ──step──> StepResult(change) ──Frame.after──> Frame ──step──> ...
                          └──> AuditLog: totals, decisions

`rejuice run` hands in a `run` that commits each change to disk and loads it again, `dj-process`
and the trainer compute it; what is done with a change is the same.
"""

from __future__ import annotations

import re
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ...operators import (
    ALL,
    Change,
    DataError,
    Operator,
    OperatorError,
    PromptTemplateMapper,
    RecordedRolloutMapper,
    RejuiceError,
    ResumableOperator,
    Scope,
)
from ...operators.check import checked
from ...operators.columns import at_path, is_list
from ...operators.errors import NotReadyError, first_line
from ...operators.operator import split
from ...operators.sampling.rollout import RolloutMapper
from ..dataset.write import exported, filled
from ..recipe.columns import named_columns
from ..recipe.recipe import Recipe
from ..recipe.steps import Step, gives_responses, number_steps
from .conditional_step import matching, over_all_rows
from .frame import Frame, GroupStarts, check_contiguous
from .report import NEW_ROW, AuditLog


class StepResult(NamedTuple):
    change: Change  # to the rows
    rows_in: int  # rows before the step
    seconds: float = 0.0  # that the operator took


class AppliedStep(NamedTuple):
    step: Step
    before: Frame
    result: StepResult
    after: Frame


RunStep = Callable[[Step, Frame], StepResult]


def run_step(
    step: Step,
    frame: Frame,
    *,
    recipe: Recipe | None = None,
    clock: Callable[[], float] = time.perf_counter,
    first_row: int = 0,
) -> StepResult:
    """Compute what a step does to a whole frame, whatever its scope.

    Errors name the recipe, if it is given, and rows from `first_row` on.
    """
    start, operator = clock(), step.operator
    with prefix_errors_with_step(step, recipe):
        own = matching(operator, frame) if operator.where else frame
        table = (digest if operator.scope is Scope.DATASET else read_columns)(operator, own)
        try:
            change = apply_operator(operator, table, own.num_rows)
        except OperatorError as error:
            if error.__cause__ is None or isinstance(error, NotReadyError) or not own.num_rows:
                raise
            raise _located(error, operator, table, own, first_row) from error.__cause__
        if operator.where:
            change = over_all_rows(operator, frame, change)
    return StepResult(change, frame.num_rows, clock() - start)


def iterate_steps(
    steps: Sequence[Step], frame: Frame, run: RunStep = run_step
) -> Iterator[AppliedStep]:
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
    for step in steps:
        change, _, seconds = run(step, frame)
        if log is not None:
            log.step(step.name).add(step.operator, frame, change, seconds, first_row)
        frame = frame.after(change)
    return frame


def run_in_memory(
    operators: Sequence[Operator],
    table: pa.Table,
    *,
    keep_stats: bool = False,
    keep_hashes: bool = False,
) -> pa.Table:
    """The rows that are left of `table` after some operators: the reference for every engine."""

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
    """For `apply_steps`: a change that was computed before, to the rows that a step is about."""
    return lambda step, frame: whole_result(step, frame, change)


def whole_result(
    step: Step,
    frame: Frame,
    change: Change,
    *,
    seconds: float = 0.0,
    recipe: Recipe | None = None,
) -> StepResult:
    """What a step did to a frame, from the change to the rows that its condition matches."""
    if step.operator.where:
        with prefix_errors_with_step(step, recipe):
            change = over_all_rows(step.operator, frame, change)
    return StepResult(change, frame.num_rows, seconds)


@contextmanager
def prefix_errors_with_step(step: Step, recipe: Recipe | None = None) -> Iterator[None]:
    """Put the step in front of an error and, where its recipe is given, a file in front of both:
    the dataset for an error in the data, else the recipe."""
    try:
        yield
    except RejuiceError as error:
        located = error.at(f"step {step.number} {step.name}")
        if recipe is not None:
            in_data = isinstance(error, DataError)
            file = str(recipe.head.dataset_spec) if in_data else recipe.line_of(step)
            located = located.at(file)
        raise located from error.__cause__


# --- One operator on one table: what it reads, what it does, and who caused an exception ---

_NETWORK = (ConnectionError, TimeoutError, socket.gaierror)


def read_columns(operator: Operator, frame: Frame) -> pa.Table:
    """The columns an operator reads, whether its condition matches or not."""
    if operator.reads() == ALL:
        return frame.table()
    names = operator.reads_of(frame.column_names)
    for name in names:
        if name not in frame.column_names:
            right = f"there are: {', '.join(frame.column_names)}"
            raise DataError(f"column '{name}' is missing", right)
    return frame.select(names)


def digest(operator: Operator, frame: Frame) -> pa.Table:
    """What an operator of dataset scope keeps of some rows: of those that it is about."""
    own = matching(operator, frame)
    table = read_columns(operator, own)
    with attribute_operator_errors(operator):
        kept = operator.digest(table)
        if kept.num_rows != own.num_rows:
            raise OperatorError(
                f"made a digest of {kept.num_rows} rows from {own.num_rows}",
                "a digest has one row for each row",
            )
    return kept


def apply_operator(operator: Operator, table: pa.Table, num_rows: int) -> Change:
    """Run `operator.apply` on a view (or, for dataset scope, on all digests) of `num_rows` rows."""
    with attribute_operator_errors(operator):
        change = checked(operator, operator.apply(table), num_rows)
    return without_dictionaries(change)


def apply_to_digests(operator: Operator, digests: Sequence[pa.Table]) -> list[Change]:
    """The change to each part of a dataset, decided from the digests of all parts together."""
    starts = [0, *accumulate(table.num_rows for table in digests)]
    return list(split(decide(operator, digests), starts))


def decide(operator: Operator, digests: Sequence[pa.Table]) -> Change:
    """The change to all rows of these digests, one part after the other."""
    try:
        table = pa.concat_tables(digests, promote_options="permissive")
    except pa.ArrowTypeError as error:
        found = f"a step before it wrote a column in two types: {error}"
        raise OperatorError(found, "let it write one type always") from None
    return apply_operator(operator, table, table.num_rows)


def _located(
    error: OperatorError, operator: Operator, table: pa.Table, frame: Frame, first_row: int
) -> OperatorError:
    """An operator's error with the first row that it fails on by itself, or with all rows."""
    is_expensive = isinstance(operator, ResumableOperator) or operator.asks_server
    if not is_expensive and _fails(operator, table.slice(0, 0)):
        return error  # Whatever the rows are.
    if not is_expensive and operator.scope is Scope.ROW:
        for row in range(table.num_rows):
            if _fails(operator, table.slice(row, 1)):
                return located_at(error, frame, row, first_row)
    rows = frame.source_rows[frame.source_rows >= 0] + first_row + 1
    return _add(error, f"in rows {rows.min():,} to {rows.max():,}" if len(rows) else "in new rows")


def _fails(operator: Operator, table: pa.Table) -> bool:
    try:
        apply_operator(operator, table, table.num_rows)
    except OperatorError:
        return True
    return False


def without_dictionaries(change: Change) -> Change:
    """A change whose columns are plain: each chunk would have a dictionary of its own."""
    columns = {
        name: column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for name, column in change.columns.items()
    }
    return change._replace(columns=columns)


@contextmanager
def attribute_operator_errors(operator: Operator) -> Iterator[None]:
    """Report an exception as a bug of the operator, with the line of its code."""
    try:
        yield
    except (RejuiceError, MemoryError):
        raise
    except OSError as error:
        # The runner takes what passes for one of the disk. Libraries raise it for the network, too.
        if error.errno is not None and not isinstance(error, _NETWORK):
            raise
        raise _operator_error(operator, error) from error
    except Exception as error:
        raise _operator_error(operator, error) from error


def _operator_error(operator: Operator, error: Exception) -> OperatorError:
    column = re.search(r'Field "(.+)" does not exist in schema', str(error))
    if isinstance(error, KeyError) and column:
        return OperatorError(f"uses column '{column[1]}'", "name it in reads()")
    frames = traceback.extract_tb(error.__traceback__)
    own = getattr(sys.modules.get(type(operator).__module__), "__file__", "")
    at = ([frame for frame in frames if frame.filename == own] or frames)[-1]
    place = f"{Path(at.filename).name}:{at.lineno}"
    found = first_line(error) if isinstance(error, OSError) else error
    return OperatorError(f"failed with {type(error).__name__}: {found} ({place})")


# --- Where an operator fails, for the message about it --------------------------------


def located_at(error: OperatorError, frame: Frame, at: int, first_row: int) -> OperatorError:
    """An operator's error with a row of a frame, as the audit log and `rejuice explain` name it:
    `at row 17, response_id 'a1b2'`."""
    number = int(frame.source_rows[at])
    names = [f"row {number + first_row + 1}"] if number >= 0 else []
    for column in ("response_id", "prompt_id"):
        value = frame.select([column])[column][at].as_py() if column in frame.column_names else None
        if value is not None:
            names.append(f"{column} {value!r}")
            break
    return _add(error, f"at {', '.join(names) or NEW_ROW}")


def _add(error: OperatorError, place: str) -> OperatorError:
    found = OperatorError(f"{error.found}, {place}", error.right, where=error.where)
    found.__cause__ = error.__cause__
    return found


# --- Rows with the same prompt: apart, or different prompts, as another column differs ----


def check_prompts(
    recipe: Recipe, parts: Sequence[GroupStarts], place: Callable[[int], str], same: Iterable[str]
) -> None:
    """Check that the rows of each prompt are next to each other in the dataset of a recipe."""
    try:
        check_contiguous(parts, place)
    except DataError as error:
        operators, right = [step.operator for step in recipe.steps], error.right
        makers = [each for each in operators if isinstance(each, PromptTemplateMapper)]
        column = makers[0].question if makers else "prompt_id"
        has_parts = any(each.identity or "{" in each.question for each in makers[:1])
        # Else a row is one of those of its prompt, or there is no such column.
        if not has_parts and "." not in column and any(map(gives_responses, operators)):
            step = f"exact_deduplicator: {{column: {column}, within: all}}"
            right = f"keep one of them by the first step `{step}`, or {right}"
        right = "; ".join([right, *same])
        raise DataError(error.found, right, where=str(recipe.head.dataset_spec)) from None


_NUMBERS_OF_ROWS = frozenset({"id", "idx", "index", "uid", "uuid"})
"""Columns that differ in all rows."""
_PARTS_OF_PROMPTS = re.compile(
    r"(?i)input|(context|passage|article|document|image)s?\d*|sentence\d?|story|paragraph|background"
    r"|premise|hypothesis|table|schema|history|starter_code|system(_prompt)?"
)
"""What datasets call a part of the prompt beside the question."""


def identity_lines(recipe: Recipe, step: Step, before: Frame, made: Frame) -> list[str]:
    """A line with the columns in which rows of the same prompt differ, if one does. `before` has
    the rows of `made`, as they were; with one response each, they should differ except in parts."""
    ids = made.select(["prompt_id"])["prompt_id"].to_pylist()
    counts = Counter(ids)
    rows = [row for row, each in enumerate(ids) if each is not None and counts[each] > 1]
    repeated = [ids[row] for row in rows]
    if not rows:
        return []
    operators, columns = [each.operator for each in recipe.steps], before.column_names
    recorded = [each for each in operators if isinstance(each, RecordedRolloutMapper)]
    others = {*_NUMBERS_OF_ROWS, *(name for each in recorded for name in each.reads_of(columns))}
    parts, none = list(filter(_PARTS_OF_PROMPTS.fullmatch, columns)), before.schema.empty_table()
    # Each row has all responses of its prompt, or will be sampled for: all columns may tell.
    has_all = any(isinstance(each, RolloutMapper) for each in operators) or any(
        len(each.columns) > 1 or is_list(at_path(none, each.columns[0]).type) for each in recorded
    )

    def differs(name: str) -> bool:
        if not others.isdisjoint([name, name.lower()]):
            return False
        values = map(repr, before.select([name])[name].take(rows).to_pylist())
        return len({*zip(repeated, values, strict=True)}) > len({*repeated})

    named = list(filter(differs, parts)) or list(
        islice(filter(differs, columns if has_all else ()), 3)
    )
    if not named:
        return []
    if "filtered_resps" in before.column_names and "filter" in before.column_names:
        first = before.select(["filter"])["filter"][0]  # Of lm-evaluation-harness.
        keep = f"column_value_filter: {{column: filter, keep: [{first}]}}"
        return [f"{step.name}: rows have one of several filters; keep those of one first: {keep}."]
    operator = step.operator
    assert isinstance(operator, PromptTemplateMapper)
    way = f"identity: [{', '.join(named)}]"
    if named[0] in parts and "image" not in way.lower():
        way = f"question: {with_columns(operator, *named)}, or {way}"
    found = f"{step.name}: rows with the same prompt differ in {named_columns(named)}"
    return [f"{found}; if that makes them other prompts, set {way}."]


def with_columns(operator: PromptTemplateMapper, *names: str) -> str:
    """A question and columns, as the field `question` has them in YAML."""
    return operator.as_question("\n".join(("{question}", *(f"{{{name}}}" for name in names))))
