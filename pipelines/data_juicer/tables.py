"""Tables as Data-Juicer's operators get them, and what they made of them as changes of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Change, Kind, OperatorError
from ...operators.arrow_compute import pc
from ...operators.columns import is_text
from ...operators.operator import CALL_FAILED
from ..dataset.schemas import within
from ..dataset.write import HASHES, KINDS, META, STATS, filled, with_column
from .settings import texts

# --- What an operator did to a table, as a change -------------------------------------

ROW = "__rejuice_row__"
"""The column that numbers the rows while an operator of Data-Juicer's works."""
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


# --- Helper columns -------------------------------------------------------------------
# A filter gets no statistics but those that its fields name, and a deduplicator no hashes:
# Data-Juicer would reuse what a step before has computed, even of another text.

_LINE_HASHES = "__dj__line_hashes"
"""Dropped by the deduplicator itself."""
_NAME = re.compile(rf"({STATS}|{META})(?:\.(\w+))?")
_PATH = re.compile(rf"({STATS}|{META})(?:\.([^.]+))?")

Entries = dict[str, Any]


def named(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the fields of an operator name of statistics and tags: the column, and the entry.

    The entry is empty where the fields name a column as a whole.
    """
    mentions = (
        (found[1], found[2] or "")
        for field, value in fields.items()
        for text in texts(value)
        for found in ([_PATH.match(text)] if _is_path(field) else _NAME.finditer(text))
        if found
    )
    return list(dict.fromkeys(mentions))


def without_own(
    table: pa.Table, kind: Kind, fields: Mapping[str, Any], *, has_statistics: bool
) -> pa.Table:
    """What an operator gets of a table: nothing that it is to compute again."""
    for column, entry in named({n: value for n, value in fields.items() if _is_path(n)}):
        if entry:
            _check_there(table, column, entry)
    for name in KINDS:
        # Whatever rewrites an export, such as pandas, makes plain texts of them.
        if name in table.column_names and is_text(table[name].type):
            table = with_column(table, name, table[name].cast(pa.string()).cast(pa.json_()))
    # A column of the dataset without a single value is none to an operator.
    empty = [n for n in KINDS if n in table.column_names and pa.types.is_null(table[n].type)]
    table = table.drop_columns(empty)
    if kind is Kind.DEDUPLICATOR:
        hashes = {*HASHES, _LINE_HASHES} & set(table.column_names)
        table = table.drop_columns(sorted(hashes))
    if has_statistics:
        kept = {entry for column, entry in named(fields) if column == STATS}
        rows: list[Entries] = [{}] * table.num_rows
        if kept and STATS in table.column_names:
            rows = [
                {name: each for name, each in row.items() if name in kept}
                for row in _entries(table[STATS])
            ]
        # With the column there, Data-Juicer need not add it, which it does row by row.
        table = with_column(table, STATS, _column(rows))
    return filled(table)


def put_back(table: pa.Table, seen: pa.Table, out: pa.Table, *, has_statistics: bool) -> pa.Table:
    """The rows that an operator has made, with the helper columns that it was not given."""
    rows = out[ROW].combine_chunks()
    for name in table.column_names:
        if name not in seen.column_names and name not in out.column_names:
            out = out.append_column(name, table[name].take(rows))
        elif name == STATS and has_statistics and name in out.column_names:
            pairs = zip(_entries(table[name].take(rows)), _entries(out[name]), strict=True)
            out = with_column(out, name, _column([{**before, **after} for before, after in pairs]))
    return out


def _is_path(field: str) -> bool:
    """Whether a field takes the path of a column, and not an expression or a prompt."""
    return field.endswith(("_key", "_keys"))


def _check_there(table: pa.Table, column: str, entry: str) -> None:
    known = dict[str, None]()
    if column in table.column_names:
        for row in _entries(table[column]):
            if entry in row:
                return
            known.update(dict.fromkeys(row))
    kind = KINDS[column]
    right = f"there are: {', '.join(known)}" if known else f"no step before it writes a {kind}"
    raise OperatorError(f"no row has the {kind} '{entry}'", right)


def _entries(column: pa.ChunkedArray) -> list[Entries]:
    if isinstance(column.type, pa.JsonType) or is_text(column.type):
        from datasets import Json

        decode = Json().decode_example
        return [decode(text) or {} for text in column.to_pylist()]
    return [row or {} for row in column.to_pylist()]


def _column(rows: list[Entries]) -> pa.Array:
    """A helper column, as Hugging Face writes one: numbers have 10 decimals."""
    from datasets import Json

    encode = Json().encode_example
    return pa.array([encode(row) if row else "{}" for row in rows], pa.string()).cast(pa.json_())


# --- Datasets of Hugging Face, which Data-Juicer's are --------------------------------


def plain(table: pa.Table) -> pa.Table:
    """The table with `string` and `list` for their large and view variants, as operators expect."""
    fields = [field.with_type(_standard_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _standard_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return within(kind, _standard_type)


def nested(table: pa.Table) -> Any:
    from data_juicer.core.data import NestedDataset
    from datasets import Dataset
    from datasets.table import InMemoryTable

    # Without a fingerprint, Hugging Face would hash all rows to make one.
    return NestedDataset(Dataset(InMemoryTable(table), fingerprint=uuid4().hex))


def stored_rows(dataset: Any) -> tuple[pa.Table, NDArray[np.int64]]:
    """The table that a Hugging Face dataset is stored in, and its rows of that table, ascending."""
    # private: datasets==5.2.0, tests/pipelines/dj_process/test_plugin.py::test_rows_that_were_filtered_before_stay_away
    if dataset._indices is not None:
        # What was filtered out is still in the table, and `dataset[:]` copies row by row.
        rows = dataset._indices.table.column(0).to_numpy().astype(np.int64)
        if (np.diff(rows) > 0).all():
            return dataset.data.table.replace_schema_metadata(None), rows
        dataset = dataset.flatten_indices()
    table = dataset.data.table.replace_schema_metadata(None)
    return table, np.arange(table.num_rows)


def rows_of(dataset: Any) -> pa.Table:
    table, rows = stored_rows(dataset)
    if len(rows) == table.num_rows:
        return table
    mask = np.zeros(table.num_rows, bool)
    mask[rows] = True
    return table.filter(pa.array(mask))
