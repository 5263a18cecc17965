"""Apply other steps to the rows of a stored run, without sampling or judging anything again.

What a step wrote is taken from the file where an operator with the same fields and code read the
same values in the same rows. Any other step is computed, as in a run, but for those that ask a
model: of these the values of rows that they have seen are taken, and a group with a row that they
have not seen is unknown. So what is found is what a run would find, or left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Change, DataError, ResumableOperator
from ...operators.change import concatenate
from ...operators.compute import pc
from ...operators.groups import Array, Groups
from ..data_juicer.steps import asks_server
from ..engine.frame import Frame
from ..engine.plan import operator_key
from ..engine.steps import AppliedStep, StepResult, iterate_steps, run_step
from ..recipe.steps import Step
from .stored import StoredSet

UNKNOWN = "not_stored"
"""Why a row is unknown: a judge or model would have to be asked."""


class Replayed(NamedTuple):
    """The rows of a stored set, and the same rows under other steps.

    Attributes:
        base: rows as sampled.
        before: what the set's own steps did.
        after: what the other steps do.
    """

    base: Frame
    before: list[AppliedStep]
    after: list[AppliedStep]


def whole(one: StoredSet) -> tuple[Frame, list[AppliedStep]]:
    """All rows of a set as sampled, in one frame, and what its steps did to them.

    Raises:
        DataError: there are no rows, or what the steps did is not on file.
    """
    parts = [list(one.applied(part)) for part in range(one.parts)]
    tables = [one.base(part).table() for part in range(one.parts)]
    if not sum(table.num_rows for table in tables):
        raise DataError("no row was sampled", "give a run with rows")
    base = Frame.of(pa.concat_tables(tables, promote_options="default"))
    joined = [_joined([applied[at].result for applied in parts]) for at in range(len(one.steps))]
    results = {step.number: result for step, result in zip(one.steps, joined, strict=True)}
    return base, list(iterate_steps(one.steps, base, lambda step, _: results[step.number]))


def _joined(parts: Sequence[StepResult]) -> StepResult:
    sizes = [part.rows_in for part in parts]
    change = concatenate([part.change for part in parts], sizes)
    return StepResult(change, sum(sizes), sum(part.seconds for part in parts), {})


def replay(base: Frame, before: Sequence[AppliedStep], steps: Sequence[Step]) -> Replayed:
    """Apply other steps to the rows of a set.

    Args:
        base: rows as sampled.
        before: what the set's own steps did, see `whole`.
        steps: those of another recipe, after sampling.

    Raises:
        RejuiceError: what a step raised.
    """
    stored = _KnownResults(before)
    return Replayed(base, list(before), list(iterate_steps(steps, base, stored.run)))


def check_same_samples(own: Sequence[Step], other: Sequence[Step]) -> None:
    """Whether other steps up to sampling are those of a run.

    Raises:
        DataError: a step differs, so that other responses would have to be sampled.
    """
    for step, another in zip(own, other, strict=False):
        if operator_key(step.operator) != operator_key(another.operator):
            found = f"{another.name} differs from the run's, so other responses would be sampled"
            raise DataError(found, "leave it as it was, or run the recipe")
    if len(own) != len(other):
        found = f"{len(other)} steps up to sampling, and {len(own)} in the run"
        raise DataError(found, "leave them as they were, or run the recipe")


class _KnownResults:
    """What was computed before, by the operator's fields and code."""

    def __init__(self, applied: Sequence[AppliedStep]) -> None:
        self._by_key: dict[str, list[AppliedStep]] = {}
        for each in applied:
            self._by_key.setdefault(operator_key(each.step.operator), []).append(each)

    def run(self, step: Step, frame: Frame) -> StepResult:
        """The change of a step: stored, aligned or computed."""
        known = self._by_key.get(operator_key(step.operator), [])
        for each in known:
            if _reads_the_same(step, frame, each.before):
                return each.result
        operator = step.operator
        if not isinstance(operator, ResumableOperator) and not asks_server(operator):
            return run_step(step, frame, summary=False)
        change = (
            _aligned(frame, known[0], step)
            if known
            else Change(reasons=pa.repeat(UNKNOWN, frame.num_rows))
        )
        return StepResult(change, frame.num_rows, 0.0, {})


def _reads_the_same(step: Step, frame: Frame, other: Frame) -> bool:
    if frame.num_rows != other.num_rows:
        return False
    names = step.operator.reads_of(frame.column_names)
    if names != step.operator.reads_of(other.column_names):
        return False
    ids = [name for name in ("response_id", "prompt_id") if name in frame.column_names]
    compared = list(dict.fromkeys([*ids, *names]))
    return bool(frame.select(compared).equals(other.select(compared)))


def _aligned(frame: Frame, stored: AppliedStep, step: Step) -> Change:
    """The values of rows that the stored step has seen; groups with another row are dropped."""
    if stored.result.change.parents is not None or "response_id" not in frame.column_names:
        raise DataError(
            f"{step.label} adds rows, and was given others in the run",
            "leave what precedes it as it was",
        )
    names = step.operator.reads_of(frame.column_names)
    ids = frame.select(["response_id"])["response_id"]
    places = pc.index_in(ids, stored.before.select(["response_id"])["response_id"].combine_chunks())
    seen_N = np.array(places.is_valid())
    rows = pc.fill_null(places, 0)
    was, now = stored.before.select(names).take(rows), frame.select(names)
    for name in names:
        seen_N &= _equal_cells(was[name], now[name])
    groups = Groups.of(frame.select(["prompt_id"]))
    unknown_N = groups.sum((~seen_N).astype(np.int64))[groups.codes_N] > 0
    taken = pa.array(np.where(seen_N, np.asarray(rows), -1), mask=~seen_N)
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
