"""One line for each row that was processed: its fate, its reward and what it consists of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators.columns import RIGHT, component_columns, numbers
from ...operators.compute import pc
from ...operators.groups import Array, Groups
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..apply.frame import Frame
from ..apply.steps import AppliedStep
from .written import WrittenValues

_IDS = ("response_id", "prompt_id")
_TEXTS = ("verdict", "finish_reason")


class RowTable(NamedTuple):
    """Rows of a set; axes `_N`.

    Attributes:
        table: one line per row of the base and of rows added later. Columns: response_id,
            prompt_id, fate (int16, -1 for kept, else the step's number), reason, verdict,
            finish_reason, tokens (int32, -1 where no token ids are known), reward, advantage, and
            for each component c: `c`, `c_missing`, `contribution_c`. float64 is NaN where nothing
            is known.
        groups: rows by prompt_id.
        components: names, in the order of the weights.
    """

    table: pa.Table
    groups: Groups
    components: tuple[str, ...]


def row_table(base: Frame, applied: Iterable[AppliedStep]) -> RowTable:
    """The rows of a base after some steps."""
    applied = tuple(applied)
    return of_values(WrittenValues.of(base, applied), applied)


def of_values(values: WrittenValues, applied: Iterable[AppliedStep]) -> RowTable:
    """The rows of values that were collected before."""
    shares = contributions(values, applied)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    n = values.num_rows
    for name in _IDS:
        known = name in values.names
        columns[name] = values.column(name) if known else pa.nulls(n, pa.string())
    columns["fate"] = pa.array(values.fate_N)
    columns["reason"] = pa.array(values.reason_N, pa.string())
    for name in _TEXTS:
        known = name in values.names
        columns[name] = values.column(name).cast(pa.string()) if known else pa.nulls(n, pa.string())
    if "verdict" not in values.names and {"judgement", "label"} <= {*values.names}:
        columns["verdict"] = _judged(values)
    columns["tokens"] = pa.array(tokens(values))
    for name in ("reward", "advantage"):
        columns[name] = pa.array(_floats(values, name))
    for name in shares:
        column, missing = component_columns(name)
        columns[name] = pa.array(_floats(values, column))
        columns[f"{name}_missing"] = (
            values.column(missing).cast(pa.string())
            if missing in values.names
            else pa.nulls(n, pa.string())
        )
        columns[f"contribution_{name}"] = pa.array(shares[name])
    table = pa.table(columns)
    groups = Groups.of(table) if "prompt_id" in values.names else groups_of_one(n)
    return RowTable(table, groups, tuple(shares))


def groups_of_one(n: int) -> Groups:
    """The groups of n rows that have no prompt_id: each is a group."""
    return Groups(np.arange(n), np.arange(n), np.ones(n, np.int64))


def contributions(values: WrittenValues, applied: Iterable[AppliedStep]) -> dict[str, Array]:
    """What each component added to the reward, float64[N] by name; NaN where none was summed.

    A component that no sum has, because it is only looked at, is there with NaN.
    """
    found: dict[str, Array] = {}
    for each in applied:
        operator = each.step.operator
        if not isinstance(operator, RewardSumMapper):
            continue
        added = operator.contributions(each.before.select(operator.reads()))
        places = values.inputs[each.step.number]
        for name, added_N in added.items():
            column_N = found.setdefault(name, np.full(values.num_rows, np.nan))
            known_N = ~np.isnan(added_N)
            column_N[places[known_N]] = added_N[known_N]
    for name in values.names:
        named = name.startswith("reward_") and not name.endswith("_missing")
        if named and pa.types.is_floating(values.column(name).type):
            found.setdefault(name.removeprefix("reward_"), np.full(values.num_rows, np.nan))
    return found


def tokens(values: WrittenValues) -> Array:
    """Sampled tokens of each response, int32[N]; -1 where its token ids are not known."""
    n = values.num_rows
    if "response_token_ids" not in values.names:
        return np.full(n, -1, np.int32)
    column = values.column("response_token_ids")
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return np.full(n, -1, np.int32)
    return np.array(pc.fill_null(pc.list_value_length(column), -1), np.int32)


def _judged(values: WrittenValues) -> pa.Array:
    """The verdict of a judgement, by the label of what it judges."""
    judgement = values.column("judgement").cast(pa.string())
    label = values.column("label").cast(pa.string())
    right = pc.fill_null(pc.equal(judgement, label), False)
    verdict = pc.if_else(right, RIGHT, "wrong_answer")
    found: pa.Array = pc.if_else(pc.is_null(judgement), "no_answer", verdict)
    return found


def _floats(values: WrittenValues, name: str) -> Array:
    if name not in values.names:
        return np.full(values.num_rows, np.nan)
    return numbers(pa.table({name: values.column(name)}), name)
