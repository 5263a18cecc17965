"""The evidence of one row in lines, for `rejuice explain`."""

from __future__ import annotations

import numpy as np

from ...operators import Scope
from ...operators.compute import pc
from ...operators.groups import Array
from ...operators.visible import visible
from ..engine.frame import Frame
from ..engine.steps import AppliedStep
from .evidence import evidence, has_evidence, seen_by

_MOST_ROWS = 20_000
"""Rows that are compared with a dropped one; of more, only those of its prompt."""


def evidence_lines(applied: AppliedStep, row: int, *, most: int = 300) -> list[str]:
    """What a step's values of a row rest on, a line for each; empty where there is nothing.

    Args:
        applied: the step, with the rows before it.
        row: place of the row before the step.
        most: characters of a text that are shown; the end of a longer one is left out.

    Raises:
        RejuiceError: what is on file does not fit the step.

    Example:
        >>> evidence_lines(applied, 0)
        ['   found_by: boxed', '   found_at: 7:8']
    """
    if not has_evidence(applied.step, applied.before):
        return []
    rows = _compared_with(applied, row)
    reasons = applied.result.change.reasons
    taken = None if reasons is None else reasons.take(rows)
    found = evidence(applied.step, seen_by(applied, rows), taken)
    at = int(np.searchsorted(rows, row))
    values = {name: column[at].as_py() for name, column in found.items()}
    return [
        f"   {name}: {_cut(_text(value), most)}"
        for name, value in values.items()
        if value is not None
    ]


def _compared_with(applied: AppliedStep, row: int) -> Array:
    """int64[M]: the row, and those that the step compares it with, ascending."""
    operator, frame = applied.step.operator, applied.before
    if operator.scope is Scope.ROW:
        return np.array([row])
    beyond = getattr(operator, "within", None) == "all" or getattr(operator, "unit", "") == "prompt"
    if beyond and frame.num_rows <= _MOST_ROWS:
        return np.arange(frame.num_rows)
    return same_prompt(frame, row)


def same_prompt(frame: Frame, row: int) -> Array:
    """int64[M]: the rows of the prompt that a row belongs to, ascending."""
    if "prompt_id" not in frame.column_names:
        return np.array([row])
    ids = frame.select(["prompt_id"])["prompt_id"]
    same = pc.fill_null(pc.equal(ids, ids[row]), False)
    rows: Array = np.flatnonzero(np.asarray(same))
    return rows if len(rows) else np.array([row])


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else visible(str(value), one_line=True)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
