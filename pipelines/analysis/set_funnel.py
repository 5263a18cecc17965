"""The funnel of a set: what each step let through, and what training dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from ...operators.arrow_compute import pc
from ..engine.report import AuditLog, StepLog, StepReport
from ..engine.steps import AppliedStep
from .rows import BY_TRAINING, RowTable

TRAINING = "training"
"""The name in decisions of what training itself drops, such as groups that are too many."""


def set_funnel(rows: RowTable, applied: Iterable[AppliedStep]) -> list[StepReport]:
    """The funnel of rows whose report is not on file; seconds are 0, as they are not either.

    Args:
        rows: of one or more sets.
        applied: what the steps did to each part of these.
    """
    log = AuditLog()
    for each in applied:
        change, seconds = each.result.change, each.result.seconds
        log.step(each.step.name).add(each.step.operator, each.before, change, seconds)
    found = [entry.report() for entry in log.steps.values()]
    fate = rows.table["fate"]
    reasons = rows.table["reason"].cast(pa.string()).filter(pc.equal(fate, BY_TRAINING))
    if not len(reasons):
        return found
    dropped = {each["values"]: each["counts"] for each in reasons.value_counts().to_pylist()}
    own, kept = StepLog(TRAINING), int(rows.kept_N.sum())
    own.rows_in, own.rows_out, own.dropped = kept + len(reasons), kept, Counter(dropped)
    return [*found, own.report()]
