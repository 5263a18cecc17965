"""What an operator of Data-Juicer's did to a table, as a change of ours."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Change
from ...operators.compute import pc
from ..dataset.arrow_types import is_text

ROW = "__rejuice_row__"
"""The column that numbers the rows while an operator of Data-Juicer's works."""
CALL_FAILED = "llm_call_failed"
"""The reason of a row that a filter has no answer for; of a mapper, the note that counts them."""
CALLS_FAILED = "llm_calls_failed"
"""The note of a mapper that works on batches: its calls belong to no row."""
_SHORT_LIVED = ("__dj__context__", "__dj__batch_meta__")
"""Columns that Data-Juicer keeps no longer than an operator works."""


def change_without(table: pa.Table, out: pa.Table, slug: str, failed: NDArray[np.int64]) -> Change:
    """The change of a filter that has failed on some rows, which are dropped as `CALL_FAILED`."""
    is_failed = pc.is_in(out[ROW], pa.array(failed))
    made = change(table, out.filter(pc.invert(is_failed)), slug)
    reasons = np.zeros(table.num_rows, bool)
    reasons[failed] = True
    return made._replace(reasons=pc.if_else(pa.array(reasons), CALL_FAILED, made.reasons))


def change(table: pa.Table, out: pa.Table, slug: str) -> Change:
    """The change from `table` to the rows of `out`, in the order of `table`."""
    rows = np.asarray(out[ROW])
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows, kind="stable")
        rows, out = rows[order], out.take(pa.array(order))
    dropped = np.ones(table.num_rows, bool)
    dropped[rows] = False
    names = [name for name in out.column_names if name != ROW]
    kept = [n for n in names if n in table.column_names or n not in _SHORT_LIVED]
    several = len(np.unique(rows)) < len(rows)
    # `filter` works chunk by chunk; `take` builds one array, which holds at most 2 GB of text.
    before = table.take(pa.array(rows)) if several else table.filter(pa.array(~dropped))
    written = ((name, _written(before, out[name], name)) for name in kept)
    columns = {name: column for name, column in written if column is not None}
    without = tuple(name for name in table.column_names if name not in names)
    reasons = pa.array([slug], pa.string()).take(
        pa.array(np.zeros(len(dropped), int), mask=~dropped)
    )
    reasons = reasons if dropped.any() else None
    if several:
        return Change(columns, reasons, parents=rows, without=without)
    # Without parents a column has a value for each input row; that of a dropped row is null.
    at = np.zeros(table.num_rows, np.int64)
    at[rows] = np.arange(len(rows))
    spread = pa.array(at, mask=dropped)
    columns = {name: column.take(spread) for name, column in columns.items()}
    return Change(columns, reasons, without=without)


def _written(before: pa.Table, new: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """The column in the type of the old one where that fits; None where nothing has changed."""
    if name not in before.column_names:
        return new
    old = before[name]
    if _same_family(new.type, old.type):
        try:
            new = new.cast(_without_loss(new.type, old.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return new  # The old type is too narrow for its values.
    return None if _is_same(new, old) else new


def _without_loss(new: pa.DataType, old: pa.DataType) -> pa.DataType:
    """The old type, with the fields that only the new one has: a cast would drop them."""
    types = pa.types
    if types.is_struct(new) and types.is_struct(old):
        before = {field.name: field.type for field in old}
        pairs = [(field.name, field.type, before.get(field.name)) for field in new]
        return pa.struct(
            [(n, kind if was is None else _without_loss(kind, was)) for n, kind, was in pairs]
        )
    if types.is_list(new) and types.is_list(old):
        return pa.list_(old.value_field.with_type(_without_loss(new.value_type, old.value_type)))
    return old


def _is_same(new: pa.ChunkedArray, old: pa.ChunkedArray) -> bool:
    if new.type != old.type or new.equals(old):
        return bool(new.type == old.type)
    if not pa.types.is_floating(new.type) or not new.is_null().equals(old.is_null()):
        return False
    # Arrow takes nan and nan for different values; a column with nan may still be unchanged.
    one, other = (np.asarray(column.fill_null(0)) for column in (new, old))
    return bool(np.array_equal(one, other, equal_nan=True))


def _same_family(one: pa.DataType, other: pa.DataType) -> bool:
    if one == other or pa.types.is_null(one):
        return bool(one != other)
    types = pa.types
    families = (types.is_integer, types.is_floating, types.is_nested, types.is_temporal, is_text)
    return any(is_in(one) and is_in(other) for is_in in families)
