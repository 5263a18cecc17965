"""Figures of a training step: groups without signal, and why reward components are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators.compute import pc
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...pipelines.recipe.steps import Step
from .advantage import advantages
from .values import StepValues, values_table

if TYPE_CHECKING:
    from .step_part import StepPart

_REWARD, _MISSING = "reward_", "_missing"


def signal_figures(
    parts: Mapping[str, StepPart], operator: GrpoAdvantageMapper
) -> dict[str, float]:
    """The share of the groups sampled that have no signal, for each part that trains.

    All advantages of such a group are 0, or none of its rows is left to train on.

    Args:
        parts: answers, by "", and judgements, by "verify".
        operator: the recipe's advantage.

    Returns:
        `rejuice/groups_without_signal` and `rejuice/verify/groups_without_signal`.
    """
    found = dict[str, float]()
    for name, part in parts.items():
        if not (part.trains and part.rollouts.num_rows):
            continue
        table = part.curated.table
        signal_N = advantages_of(table, operator) != 0
        left = pc.count_distinct(table["prompt_id"].filter(pa.array(signal_N))).as_py()
        sampled = pc.count_distinct(part.rollouts["prompt_id"]).as_py()
        found[figure_name(name, "groups_without_signal")] = 1 - left / sampled
    return found


def figure_name(part: str, name: str) -> str:
    """The name under which something of a part is logged.

    Example:
        >>> figure_name("", "samples"), figure_name("verify", "samples")
        ('rejuice/samples', 'rejuice/verify/samples')
    """
    return "/".join(filter(None, ("rejuice", part, name)))


def advantages_of(table: pa.Table, operator: GrpoAdvantageMapper) -> NDArray[np.float64]:
    """The advantages that verl gives to the rows that train, float64[N]."""
    if not table.num_rows:
        return np.zeros(0)
    group_N = table["prompt_id"].to_numpy(zero_copy_only=False)
    return advantages(operator, table["reward"].to_numpy(), group_N)


def missing_figures(
    rollouts: pa.Table, steps: Sequence[Step], written: Sequence[StepValues]
) -> dict[str, float]:
    """How many rows lack a reward component, as `missing/COMPONENT/REASON`; dropped rows count.

    Args:
        rollouts: as sampled.
        steps: that ran on them.
        written: what they wrote.
    """
    reasons = [
        each._replace(columns={n: c for n, c in each.columns.items() if _is_reason(n)})
        for each in written
    ]
    table, found = values_table(rollouts, steps, reasons), dict[str, float]()
    for name in filter(_is_reason, table.column_names):
        component = name.removeprefix(_REWARD).removesuffix(_MISSING)
        for count in pc.drop_null(table[name]).value_counts().to_pylist():
            found[f"missing/{component}/{count['values']}"] = float(count["counts"])
    return found


def _is_reason(name: str) -> bool:
    return name.startswith(_REWARD) and name.endswith(_MISSING)
