"""Whether the steps of a run came to nothing: no row is left, or one failed on every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...operators import EmptyResultError, Operator
from ..data_juicer.result import CALL_FAILED
from ..recipe.recipe import Recipe
from .report import Report, StepReport
from .retryable import MISSING, count_dropped, count_retryable

_MOST_REASONS = 3


def check_not_empty(recipe: Recipe, report: Report) -> None:
    """Check that a finished run came to something.

    Of several findings the first is reported, because later ones follow from it.

    Raises:
        EmptyResultError: a step has dropped the last row, or failed on every row.
    """
    for step, line in zip(recipe.steps, report.steps, strict=True):
        found = empty_result(step.operator, line)
        if found is not None:
            left = "" if report.rows_out or not line.rows_out else ", and in the end no row is left"
            retry = ""
            if count_retryable(step.operator, line):
                retry = f" and add --retry_missing {step.name}"
            elif count_dropped(step.operator, line):
                retry = " and add --retry_dropped"
            fix = f"fix that{retry}"
            right = f"{fix}, or accept it with --allow_empty"
            raise EmptyResultError(f"{found}{left}", right, where=recipe.where(step))


def empty_result(operator: Operator, line: StepReport) -> str | None:
    """What a step came to, if that is nothing.

    A reward component without a single value is a failure, unless the operator says of every reason
    that it is none (`not_failures`).
    """
    for name, figures in line.columns.items():
        value, is_reason = name.removesuffix(MISSING), name.endswith(MISSING)
        # A column of that name need not hold reasons: an operator of the user's may count in it.
        if not (is_reason and name.startswith("reward_") and "counts" in figures):
            continue
        counts: Mapping[str, int] = figures["counts"]
        # A component of no number at all may have no figures.
        has_value = line.columns.get(value, {}).get("n", 0) > 0
        if not has_value and not counts.keys() <= operator.not_failures:
            return f"none of {sum(counts.values()):,} rows has a {value}: {_most_frequent(counts)}"
    if line.rows_in and line.notes.get(CALL_FAILED, 0) >= line.rows_in:
        return f"none of {line.rows_in:,} rows was answered by its server"
    if line.rows_in and not line.rows_out:
        rows = f"the last {line.rows_in:,} rows" if line.rows_in > 1 else "the last row"
        return f"no row is left: it dropped {rows}: {_most_frequent(line.dropped)}"
    return None


def _most_frequent(counts: Mapping[str, int]) -> str:
    most = [f"{reason} {n:,}" for reason, n in Counter(counts).most_common(_MOST_REASONS)]
    return ", ".join([*most, *(["..."] if len(counts) > len(most) else [])])
