"""Helper columns: what steps keep beside the rows for other steps, and what an export has of it.

    __dj__stats__            what filters have computed of a row: its statistics, by name
    __dj__meta__             what tagging operators have found in it: its tags, by name
    __dj__hash and others    what deduplicators have compared

They go from step to step and are dropped at the export, unless the recipe keeps them. Statistics
and tags are a JSON text for each row, Arrow's type `arrow.json`: so Hugging Face stores what begins
as an empty dictionary. In a dataset of the user's they may be structs.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ...operators.arrow_compute import pc

STATS = "__dj__stats__"
META = "__dj__meta__"
KINDS = {STATS: "statistic", META: "tag"}
"""What an entry of each column is called."""
HASHES = ("__dj__hash", "__dj__minhash", "__dj__simhash", "__dj__imagehash", "__dj__videohash")


def exported(names: Iterable[str], *, keep_stats: bool, keep_hashes: bool) -> list[str]:
    """Return those of some columns that an export has, in their order."""
    dropped = {*(() if keep_stats else KINDS), *(() if keep_hashes else HASHES)}
    return [name for name in names if name not in dropped]


def filled(table: pa.Table) -> pa.Table:
    """Return the table with no statistics and no tags where it has a null instead of them.

    Rows that a later step adds have none yet, and some operators look into all of them.
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
                table = with_column(table, name, pa.StructArray.from_arrays(whole, names))
        elif isinstance(column.type, pa.JsonType):
            known = pc.fill_null(column.cast(pa.string()), "{}")
            table = with_column(table, name, known.cast(pa.json_()))
    return table


def with_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with a column in the place of the one of that name, or at the end."""
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)
