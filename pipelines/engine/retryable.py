"""Which rows of a step have failed for reasons that another attempt may not meet."""

from __future__ import annotations

from collections.abc import Iterator

from ...operators import Mapper, Operator, ResumableOperator, Scope
from ...operators.sampling.rollout import RolloutMapper
from ..data_juicer.result import CALL_FAILED
from ..data_juicer.steps import asks_server
from ..recipe.recipe import Recipe
from .report import Report, StepReport

MISSING = "_missing"
"""How the names of columns end that have the reasons why values are missing."""


def is_failure(operator: Operator, column: str, value: object) -> bool:
    """Whether a value that a step wrote says that the row failed, and another attempt may not."""
    if column.endswith(MISSING):
        return operator.retryable is None or value in operator.retryable
    return value in operator.failed_values().get(column, ())


def may_fail(operator: Operator) -> bool:
    """Whether `--retry_missing` can compute rows of the operator again."""
    if asks_server(operator):
        return True
    one_by_one = isinstance(operator, Mapper) and operator.scope is Scope.ROW
    if not one_by_one and not isinstance(operator, ResumableOperator):
        return False
    has_reasons = any(name.endswith(MISSING) for name in operator.writes())
    return (has_reasons and operator.retryable != frozenset()) or bool(operator.failed_values())


def count_retryable(operator: Operator, line: StepReport) -> int:
    """How many values are missing for a reason that another attempt may not meet."""
    if not may_fail(operator):
        return 0
    if asks_server(operator):
        return line.dropped.get(CALL_FAILED, 0) + int(line.notes.get(CALL_FAILED, 0))
    return sum(
        n
        for name, figures in line.columns.items()
        for value, n in figures.get("counts", {}).items()
        if is_failure(operator, name, value)
    )


def count_dropped(operator: Operator, line: StepReport) -> int:
    """How many prompts were dropped for a reason that another attempt may not meet."""
    if not isinstance(operator, RolloutMapper):
        return 0
    return sum(n for reason, n in line.dropped.items() if reason in operator.may_pass)


def retry_hints(recipe: Recipe, report: Report) -> Iterator[str]:
    """How to compute again what failed in a run, a line for each step and option."""
    for step, line in zip(recipe.steps, report.steps, strict=True):
        if failed := count_retryable(step.operator, line):
            yield f"{failed:,} rows failed in {step.name}: add --retry_missing {step.name} to retry"
        if dropped := count_dropped(step.operator, line):
            yield f"{dropped:,} prompts were dropped by {step.name}: add --retry_dropped to retry"
