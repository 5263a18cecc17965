"""The funnel of a set: what each step let through, and what training dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ...operators.arrow_compute import pc
from ..engine.report import AuditLog, StepReport
from ..engine.steps import AppliedStep
from .rows import BY_TRAINING, RowTable

TRAINING = "training"
"""The name in decisions of what training itself drops, such as groups that are too many."""


def set_funnel(rows: RowTable, parts: Iterable[Sequence[AppliedStep]]) -> list[StepReport]:
    """The funnel of a set whose report is not on file; seconds are 0, as they are not either."""
    log = AuditLog()
    for applied in parts:
        for each in applied:
            result = each.result
            log.step(each.step.name).count(
                result.rows_in, result.change, result.seconds, result.summary
            )
            log.step(each.step.name).match(each.step.operator, each.before)
    return [*(entry.report() for entry in log.steps.values()), *_by_training(rows)]


def summed(funnels: Iterable[Sequence[StepReport]]) -> list[StepReport]:
    """Return one funnel of several, such as those of the steps of a training run."""
    found = dict[str, StepReport]()
    for step in (step for funnel in funnels for step in funnel):
        before = found.get(step.step)
        if before is None:
            found[step.step] = step
            continue
        reasons = dict.fromkeys([*before.dropped, *step.dropped])
        counts = ("rows_in", "rows_out", "added")
        pair = before.matched, step.matched
        matched = None if None in pair else sum(n or 0 for n in pair)
        found[step.step] = before.model_copy(
            update={name: getattr(before, name) + getattr(step, name) for name in counts}
            | {"dropped": {r: before.dropped.get(r, 0) + step.dropped.get(r, 0) for r in reasons}}
            | {"matched": matched, "unmatched": ""}
        )
    last = found.pop(TRAINING, None)  # Not every step of training drops any.
    return [*found.values(), *([last] if last else [])]


def _by_training(rows: RowTable) -> list[StepReport]:
    """Return what training itself dropped, as the last line of the funnel."""
    fate = rows.table["fate"]
    reasons = rows.table["reason"].cast(pa.string()).filter(pc.equal(fate, BY_TRAINING))
    if not len(reasons):
        return []
    dropped = {each["values"]: each["counts"] for each in reasons.value_counts().to_pylist()}
    kept = pc.sum(pc.less(fate, BY_TRAINING)).as_py() or 0
    return [
        StepReport(
            step=TRAINING,
            rows_in=kept + len(reasons),
            rows_out=kept,
            added=0,
            dropped=dropped,
            seconds=0.0,
            cached=False,
            notes={},
            columns={},
            written=[],
        )
    ]
