"""Data-Juicer's helper columns: what its operators keep beside the rows.

    __dj__stats__            what filters have computed of a row: its statistics, by name
    __dj__meta__             what tagging operators have found in it: its tags, by name
    __dj__hash and others    what deduplicators have compared

As in `dj-process`, they go from step to step and are dropped at the export, unless the recipe keeps
them. A filter gets no statistics but those that its fields name, and a deduplicator no hashes:
Data-Juicer would reuse what a step before has computed, even of another text.

Statistics and tags are a JSON text for each row, Arrow's type `arrow.json`: so Hugging Face stores
what begins as an empty dictionary. In a dataset of the user's they may be structs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from ...operators import OperatorError
from ...operators.compute import pc
from ..dataset.arrow_types import is_text
from .fields import texts
from .result import ROW

STATS = "__dj__stats__"
META = "__dj__meta__"
KINDS = {STATS: "statistic", META: "tag"}
"""What an entry of each column is called."""
_HASHES = ("__dj__hash", "__dj__minhash", "__dj__simhash", "__dj__imagehash", "__dj__videohash")
"""Those that Data-Juicer's exporter drops."""
_LINE_HASHES = "__dj__line_hashes"
"""Dropped by the deduplicator itself."""
_NAME = re.compile(rf"({STATS}|{META})(?:\.(\w+))?")
_PATH = re.compile(rf"({STATS}|{META})(?:\.([^.]+))?")

Entries = dict[str, Any]


def exported(names: Iterable[str], *, keep_stats: bool, keep_hashes: bool) -> list[str]:
    """Those of some columns that an export has, in their order.

    Args:
        names: of columns.
        keep_stats: `keep_stats_in_res_ds` of the recipe; tags are kept with the statistics.
        keep_hashes: `keep_hashes_in_res_ds` of the recipe.
    """
    dropped = {*(() if keep_stats else KINDS), *(() if keep_hashes else _HASHES)}
    return [name for name in names if name not in dropped]


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
    table: pa.Table, kind: str, fields: Mapping[str, Any], own: frozenset[str] | None
) -> pa.Table:
    """What an operator gets of a table: nothing that it is to compute again.

    Args:
        table: rows before the operator.
        kind: of the operator: `filter` and so on.
        fields: of the operator.
        own: the statistics that it computes, as far as they are known; None: it computes none.

    Raises:
        OperatorError: no row has a statistic or a tag by the name that a field gives.
    """
    for column, entry in named({n: value for n, value in fields.items() if _is_path(n)}):
        if entry:
            _check_there(table, column, entry)
    for name in KINDS:
        # Whatever rewrites an export, such as pandas, makes plain texts of them.
        if name in table.column_names and is_text(table[name].type):
            table = _with(table, name, table[name].cast(pa.string()).cast(pa.json_()))
    # A column of the dataset without a single value is none to an operator.
    empty = [n for n in KINDS if n in table.column_names and pa.types.is_null(table[n].type)]
    table = table.drop_columns(empty)
    if kind == "deduplicator":
        hashes = {*_HASHES, _LINE_HASHES} & set(table.column_names)
        table = table.drop_columns(sorted(hashes))
    if own is not None:
        kept = {entry for column, entry in named(fields) if column == STATS}
        rows: list[Entries] = [{}] * table.num_rows
        if kept and STATS in table.column_names:
            every = _entries(table[STATS])
            whole = "" in kept
            rows = [
                {n: each for n, each in row.items() if (n not in own if whole else n in kept)}
                for row in every
            ]
        # With the column there, Data-Juicer need not add it, which it does row by row.
        table = _with(table, STATS, _column(rows))
    return filled(table)


def put_back(
    table: pa.Table, seen: pa.Table, out: pa.Table, own: frozenset[str] | None
) -> pa.Table:
    """The rows that an operator has made, with the helper columns that it was not given.

    Args:
        table: rows before the operator.
        seen: what `without_own` has made of it.
        out: what the operator has made of that, its rows numbered in `ROW`.
        own: as for `without_own`.
    """
    rows = out[ROW].combine_chunks()
    for name in table.column_names:
        if name not in seen.column_names and name not in out.column_names:
            out = out.append_column(name, table[name].take(rows))
        elif name == STATS and own is not None and name in out.column_names:
            pairs = zip(_entries(table[name].take(rows)), _entries(out[name]), strict=True)
            out = _with(out, name, _column([{**before, **after} for before, after in pairs]))
    return out


def filled(table: pa.Table) -> pa.Table:
    """The table with no statistics and no tags where it has a null instead of them.

    Rows that a step of ours adds have none yet, and Data-Juicer's operators look into all of them.
    """
    for name in KINDS:
        column = table[name] if name in table.column_names else None
        if column is None or not column.null_count:
            continue
        if pa.types.is_struct(column.type):
            parts = [pc.struct_field(column, at) for at in range(column.type.num_fields)]
            whole = [part.combine_chunks() for part in parts]
            if whole:
                names = [field.name for field in column.type]
                table = _with(table, name, pa.StructArray.from_arrays(whole, names))
        elif isinstance(column.type, pa.JsonType):
            known = pc.fill_null(column.cast(pa.string()), "{}")
            table = _with(table, name, known.cast(pa.json_()))
    return table


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
    """What a helper column has of each row."""
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


def _with(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The table with a column in the place of the one of that name, or at the end."""
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)
