"""How the reward and the advantage of one row come about, in lines."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...operators.columns import component_columns, numbers
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..engine.steps import AppliedStep
from .show_evidence import same_prompt


def sum_lines(applied: AppliedStep, row: int) -> list[str]:
    """The terms of a reward, or the rewards that an advantage compares; else nothing.

    Args:
        applied: the step, with the rows before it.
        row: place of the row before the step.

    Example:
        >>> sum_lines(applied, 1)
        ['   reward: accuracy 1 x 1 + format 1 x -0.1']
    """
    operator = applied.step.operator
    if isinstance(operator, RewardSumMapper):
        return _terms(operator, *_group(applied, row))
    if isinstance(operator, GrpoAdvantageMapper):
        return _compared(*_group(applied, row))
    return []


def _group(applied: AppliedStep, row: int) -> tuple[pa.Table, int]:
    """The rows of the same prompt with what the step reads, and the place of the row in it."""
    rows = same_prompt(applied.before, row)
    before, operator = applied.before, applied.step.operator
    table = before.select(operator.reads_of(before.column_names)).take(pa.array(rows))
    return table, int(np.searchsorted(rows, row))


def _terms(operator: RewardSumMapper, table: pa.Table, at: int) -> list[str]:
    terms = []
    for name, added_N in operator.contributions(table).items():
        added, weight = added_N[at], operator.weight(name)
        value = numbers(table, component_columns(name)[0])[at]
        if np.isnan(added):
            return []
        if np.isfinite(value) and added == weight * value:
            terms.append(f"{name} {weight:g} x {value:g}")
        else:  # A closed gate, or a substitute for what is missing.
            terms.append(f"{name} {added:g} ({_why(operator, name, value)})")
    return [f"   reward: {' + '.join(terms)}"] if terms else []


def _why(operator: RewardSumMapper, name: str, value: float) -> str:
    if np.isfinite(value) or operator.on_missing != "group_mean":
        return f"gate {operator.gates[name]} is closed" if name in operator.gates else "weight 0"
    return "missing: mean of the group"


def _compared(table: pa.Table, at: int) -> list[str]:
    rewards = numbers(table, "reward")
    rewards = rewards[np.isfinite(rewards)]
    if len(rewards) < 2:
        return []
    mean, std = rewards.mean(), rewards.std(ddof=1)
    return [
        f"   advantage: of {len(rewards)} rewards, mean {mean:.4g}, standard deviation {std:.4g}"
    ]
