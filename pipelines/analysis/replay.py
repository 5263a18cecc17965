"""Other steps over the rows of a stored run, without sampling or judging anything again.

    StoredSet ──> SetSamples ──replay(other steps)──> AppliedStep... ──rows──> RowTable

What a step wrote is taken from the file where an operator with the same fields and code read the
same values in the same rows. Any other step is computed, as in a run, but for those that ask a
model: of these the values of rows that they have seen are taken, and a group with a row that they
have not seen is unknown. So what is found is what a run would find, or left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import ALL, Change, DataError, ResumableOperator
from ...operators.arrow_compute import pc
from ...operators.groups import Array, Groups
from ...operators.operator import concatenate
from ..engine.frame import Frame
from ..engine.plan import operator_key
from ..engine.steps import AppliedStep, StepResult, iterate_steps, run_step
from ..recipe.steps import Step
from .comparison import UNKNOWN
from .rows import RowTable, row_table
from .stored import IDS, StoredSet


class SetSamples(NamedTuple):
    """All rows of a set as sampled, and what its own steps did to them."""

    base: Frame  # rows as sampled
    applied: list[AppliedStep]  # what the set's own steps did
    stale: frozenset[str] = frozenset()  # the names of those whose code is another by now

    @classmethod
    def of(cls, one: StoredSet) -> SetSamples:
        parts = [list(one.applied(part)) for part in range(one.parts)]
        tables = [one.base(part).table() for part in range(one.parts)]
        if not sum(table.num_rows for table in tables):
            raise DataError("no row was sampled", "give a run with rows")
        base = Frame.of(pa.concat_tables(tables, promote_options="default"))
        joined = {
            step.number: _joined([applied[at].result for applied in parts])
            for at, step in enumerate(one.steps)
        }
        applied = iterate_steps(one.steps, base, lambda step, _: joined[step.number])
        return cls(base, list(applied), one.stale)

    def replay(self, steps: Sequence[Step]) -> list[AppliedStep]:
        known: dict[str, list[AppliedStep]] = {}
        for each in self.applied:
            if each.step.name not in self.stale:
                known.setdefault(operator_key(each.step.operator), []).append(each)

        def run(step: Step, frame: Frame) -> StepResult:
            return _result(step, frame, known.get(operator_key(step.operator), []))

        return list(iterate_steps(steps, self.base, run))

    def rows(self, applied: Iterable[AppliedStep]) -> RowTable:
        """What became of the rows as sampled, without those that steps added."""
        return row_table(self.base, applied).first(self.base.num_rows)


def _result(step: Step, frame: Frame, known: Sequence[AppliedStep]) -> StepResult:
    """Stored, aligned or computed; `known` is what the operator of the step did in the run."""
    for each in known:
        if _reads_the_same(step, frame, each.before):
            return each.result
    if not isinstance(step.operator, ResumableOperator) and not step.operator.asks_server:
        return run_step(step, frame)
    unknown = Change(reasons=pa.repeat(UNKNOWN, frame.num_rows))
    change = _aligned(frame, known[0], step) if known else unknown
    return StepResult(change, frame.num_rows)


def _joined(parts: Sequence[StepResult]) -> StepResult:
    parts = [part for part in parts if part.rows_in] or parts[:1]
    sizes = [part.rows_in for part in parts]
    change = concatenate([part.change for part in parts], sizes)
    return StepResult(change, sum(sizes), sum(part.seconds for part in parts))


def _deciding(step: Step, frame: Frame) -> list[str]:
    """The columns of a frame that decide what a step makes of it."""
    operator, there = step.operator, frame.column_names
    if operator.reads() == ALL:
        return there
    # Rows that the condition does not match keep what they have in the columns that it writes.
    kept = [name for name in operator.writes() if name in there] if operator.where else []
    return list(dict.fromkeys((*operator.needs_of(there), *kept)))


def _reads_the_same(step: Step, frame: Frame, other: Frame) -> bool:
    names = _deciding(step, frame)
    if frame.num_rows != other.num_rows or names != _deciding(step, other):
        return False
    ids = [name for name in IDS if name in frame.column_names]
    compared = list(dict.fromkeys([*ids, *names]))
    return bool(frame.select(compared).equals(other.select(compared)))


def _aligned(frame: Frame, stored: AppliedStep, step: Step) -> Change:
    """The values of rows that the stored step has seen; groups with another row are dropped."""
    if stored.result.change.parents is not None or "response_id" not in frame.column_names:
        found = f"{step.label} adds rows, and was given others in the run"
        raise DataError(found, "leave what precedes it as it was")
    names = _deciding(step, frame)
    if names != _deciding(step, stored.before):
        return Change(reasons=pa.repeat(UNKNOWN, frame.num_rows))
    ids = frame.select(["response_id"])["response_id"]
    places = pc.index_in(ids, stored.before.select(["response_id"])["response_id"].combine_chunks())
    seen_N = np.array(places.is_valid())
    rows = pc.fill_null(places, 0)
    was, now = stored.before.select(names).take(rows), frame.select(names)
    for name in names:
        seen_N &= _equal_cells(was[name], now[name])
    groups = Groups.of(frame.select(["prompt_id"]))
    unknown_N = groups.sum(~seen_N)[groups.codes_N] > 0
    taken = pa.array(np.asarray(rows), mask=~seen_N)
    columns = {name: column.take(taken) for name, column in stored.result.change.columns.items()}
    reasons = stored.result.change.reasons
    dropped = pa.nulls(frame.num_rows, pa.string()) if reasons is None else reasons.take(taken)
    dropped = pc.if_else(pa.array(unknown_N), UNKNOWN, dropped)
    return Change(columns, dropped if dropped.null_count < frame.num_rows else None)


def _equal_cells(a: pa.ChunkedArray, b: pa.ChunkedArray) -> Array:
    """bool[N], a null equal to a null."""
    if pa.types.is_nested(b.type):  # Arrow does not compare lists and structs.
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        return np.array([one == other for one, other in pairs], bool)
    both_null = pc.and_(pc.is_null(a), pc.is_null(b))
    return np.array(pc.or_(pc.fill_null(pc.equal(a, b), False), both_null))
