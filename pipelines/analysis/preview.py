"""What a recipe would train on, from stored responses: advantages, signal, gradient mass, cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...operators import DataError, ResumableOperator
from ...operators.compute import pc
from ...operators.confidence import wilson_interval
from ...operators.groups import Array
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..data_juicer.steps import asks_server
from ..engine.steps import AppliedStep
from .figures import component_advantages
from .replay import Replayed
from .rows import KEPT, RowTable, row_table

NORMALISATIONS = ("std", "none", "leave_one_out")
_QUARTERS = 4


class AdvantageFigures(NamedTuple):
    """Advantages of the kept rows under one normalisation: mean of |A|, greatest A, least A."""

    mean_size: float
    largest: float
    smallest: float


class Refill(NamedTuple):
    """How many prompts must be sampled for each one whose group is left, and its 95% interval.

    Infinite where no group is left.
    """

    factor: float
    low: float
    high: float


class Preview(NamedTuple):
    """What a step of training would get.

    Attributes:
        responses: stored ones; `prompts` they answer.
        prompts: groups.
        kept: rows left.
        groups_left: with a row left; of these `without_signal` have advantages of 0 only.
        without_signal: groups.
        advantages: by normalisation, see `NORMALISATIONS`.
        component_mass: by component, its share of the gradient mass.
        length_mass: of the kept rows by quarters of length, the shortest first, each one's share.
        refill: prompts to sample for one that is left.
        tokens: mean of a response; None without token ids.
        judge_calls: requests for each response, by the steps that ask a server.
        seconds: that the steps took in the run, for each response; None where unknown.
    """

    responses: int
    prompts: int
    kept: int
    groups_left: int
    without_signal: int
    advantages: dict[str, AdvantageFigures]
    component_mass: dict[str, float]
    length_mass: tuple[float, ...]
    refill: Refill
    tokens: float | None
    judge_calls: float
    seconds: float | None


def preview(found: Replayed) -> Preview:
    """The preview of a recipe whose steps were applied to stored responses.

    Raises:
        DataError: the recipe has no advantages, so nothing would be trained.
    """
    rows = row_table(found.base, found.after).first(found.base.num_rows)
    table, groups = rows.table, rows.groups
    kept_N = np.asarray(table["fate"]) == KEPT
    advantage_N = np.nan_to_num(np.array(pc.fill_null(table["advantage"], np.nan)))
    left_G = groups.sum(kept_N.astype(np.int64)) > 0
    signal_G = groups.sum((kept_N & (advantage_N != 0)).astype(np.int64)) > 0
    unit = "tokens" if table["tokens"].null_count < table.num_rows else "characters"
    length_N = np.array(pc.fill_null(table[unit], 0), float)
    tokens = pc.mean(table["tokens"]).as_py() if unit == "tokens" else None
    return Preview(
        table.num_rows,
        len(left_G),
        int(kept_N.sum()),
        int(left_G.sum()),
        int((left_G & ~signal_G).sum()),
        _advantages(found.after),
        _component_mass(rows, kept_N, length_N),
        _length_mass(advantage_N, kept_N, length_N),
        _refill(int(left_G.sum()), len(left_G)),
        tokens,
        sum(each.before.num_rows for each in found.after if _asks(each)) / max(1, table.num_rows),
        _seconds(found.before, table.num_rows),
    )


def _advantages(applied: Sequence[AppliedStep]) -> dict[str, AdvantageFigures]:
    last = [each for each in applied if isinstance(each.step.operator, GrpoAdvantageMapper)]
    if not last:
        raise DataError("the recipe has no grpo_advantage_mapper", "add one as the last step")
    operator, before = last[-1].step.operator, last[-1].before
    assert isinstance(operator, GrpoAdvantageMapper)
    view = before.select(operator.reads_of(before.column_names))
    found = {}
    for name in NORMALISATIONS:
        other = operator.model_copy(update={"normalise": name})
        values = np.array(pc.fill_null(other.apply(view).columns["advantage"], np.nan))
        values = values[np.isfinite(values)]
        nothing = AdvantageFigures(*[float("nan")] * 3)
        figures = (np.abs(values).mean(), values.max(), values.min()) if len(values) else nothing
        found[name] = AdvantageFigures(*map(float, figures))
    return found


def _component_mass(rows: RowTable, kept_N: Array, length_N: Array) -> dict[str, float]:
    advantage_N = np.nan_to_num(np.array(pc.fill_null(rows.table["advantage"], np.nan)))
    weight_N = np.where(kept_N, length_N, 0.0)
    whole = float((weight_N * np.abs(advantage_N)).sum())
    if not whole:
        return {}
    parts = component_advantages(rows)
    return {
        name: float((weight_N * np.nan_to_num(part_N) * np.sign(advantage_N)).sum()) / whole
        for name, part_N in parts.items()
    }


def _length_mass(advantage_N: Array, kept_N: Array, length_N: Array) -> tuple[float, ...]:
    mass_N = (length_N * np.abs(advantage_N))[kept_N][np.argsort(length_N[kept_N], kind="stable")]
    if not mass_N.sum():
        return ()
    return tuple(float(part.sum() / mass_N.sum()) for part in np.array_split(mass_N, _QUARTERS))


def _refill(left: int, prompts: int) -> Refill:
    low, high = wilson_interval(left / prompts, prompts)
    share = left / prompts
    invert = [1 / each if each else float("inf") for each in (share, high, low)]
    return Refill(*invert)


def _asks(applied: AppliedStep) -> bool:
    operator = applied.step.operator
    return isinstance(operator, ResumableOperator) or asks_server(operator)


def _seconds(before: Sequence[AppliedStep], rows: int) -> float | None:
    seconds = sum(each.result.seconds for each in before)
    return seconds / rows if rows and seconds else None
