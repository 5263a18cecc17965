"""Which columns of the files of a dataset are read, and what they are called."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import pyarrow as pa

from ...operators import DataError
from ...operators.columns import beginnings, column_of, find_path, is_list
from ...operators.errors import suggest

SUFFIX = "__dj__suffix__"
"""The column in which Data-Juicer's loader tells from what kind of file a row comes."""


class Selection(NamedTuple):
    """Columns of files, and the names that they get.

    Attributes:
        names: pairs of the name in the files, or a path such as `response.body.choices`, and the
            name that it gets; None: all, as they are.
        with_suffix: whether the rows get the column `SUFFIX`, where a file has none.
    """

    names: tuple[tuple[str, str], ...] | None = None
    with_suffix: bool = False

    @property
    def columns(self) -> list[str] | None:
        """What files are asked for; None: all columns."""
        return None if self.names is None else self.columns_of(new for _, new in self.names)

    def columns_of(self, names: Iterable[str]) -> list[str]:
        """What files are asked for to get these columns: of a path all in which it may begin."""
        if self.names is None:
            return list(names)
        old = {new: old for old, new in self.names}
        return list(
            dict.fromkeys(each for name in names for each in beginnings(old.get(name, name)))
        )

    def of(self, table: pa.Table, suffix: str) -> pa.Table:
        """The selected columns of a table of a file, those of them that it has."""
        if self.names is not None:
            found = {}
            for path, name in self.names:
                values = find_path(table, path)
                if values is not None:
                    found[_field_at(table.schema, path).with_name(name)] = values
            if found:
                table = pa.table(list(found.values()), schema=pa.schema(list(found)))
            else:  # A table without columns would have no rows.
                table = pa.table({self.names[0][1]: pa.nulls(table.num_rows)})
        if self.with_suffix and SUFFIX not in table.column_names:
            table = table.append_column(SUFFIX, pa.repeat(suffix, table.num_rows))
        return table

    def schema(self, schema: pa.Schema, suffix: str) -> pa.Schema:
        """The schema of the selected columns of a file, given its own."""
        return self.of(schema.empty_table(), suffix).schema if len(schema) else schema

    def renamed(self, names: Iterable[str]) -> list[str]:
        """What columns of the files are called, those of them that are selected."""
        if self.names is None:
            return list(names)
        new = dict(self.names)
        return [new[name] for name in names if name in new]

    def missing(self, table: pa.Table) -> list[str]:
        """The selected columns, as files call them, that a table of a file lacks."""
        return [path for path, _ in self.names or () if find_path(table, path) is None]


def not_there(path: str, columns: Collection[str], dataset: object) -> DataError:
    """The error for a selected column that is in no file.

    Args:
        path: the column.
        columns: of all files.
        dataset: its name, for the message.
    """
    right = suggest(path, columns) or f"there are: {', '.join(sorted(columns))}"
    column = column_of(path, columns)
    if column is not None:
        right = f"name a field of column '{column}'"
    return DataError(f"{dataset} has no column '{path}', which `columns` selects", right)


def _field_at(fields: Iterable[pa.Field], path: str) -> pa.Field:
    """The field of a schema at a path that it has, with its metadata."""
    there = {field.name: field for field in fields}
    name = column_of(path, there)
    assert name is not None
    return _within(there[name], path[len(name) + 1 :])


def _within(field: pa.Field, path: str) -> pa.Field:
    kind = field.type
    if not path or pa.types.is_null(kind):
        return field
    if is_list(kind):
        return pa.field(field.name, pa.list_(_within(kind.value_field, path)))
    return _field_at(kind, path)
