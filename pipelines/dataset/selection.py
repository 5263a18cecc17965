"""Which columns of the files of a dataset are read, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from ...operators import DataError
from ...operators.errors import suggest

SUFFIX = "__dj__suffix__"
"""The column in which Data-Juicer's loader tells from what kind of file a row comes."""


class Selection(NamedTuple):
    """Columns of files, and the names that they get.

    Attributes:
        names: pairs of the name in the files and the name that it gets; None: all, as they are.
        with_suffix: whether the rows get the column `SUFFIX`, where a file has none.
    """

    names: tuple[tuple[str, str], ...] | None = None
    with_suffix: bool = False

    def of(self, table: pa.Table, suffix: str) -> pa.Table:
        """The selected columns of a table of a file, those of them that it has."""
        if self.names is not None:
            there = [pair for pair in self.names if pair[0] in table.column_names]
            if there:
                table = table.select([old for old, _ in there])
                table = table.rename_columns([new for _, new in there])
            else:  # A table without columns would have no rows.
                table = pa.table({self.names[0][1]: pa.nulls(table.num_rows)})
        if self.with_suffix and SUFFIX not in table.column_names:
            table = table.append_column(SUFFIX, pa.repeat(suffix, table.num_rows))
        return table

    def in_files(self, names: Iterable[str]) -> list[str]:
        """What selected columns are called in the files."""
        if self.names is None:
            return list(names)
        old = {new: old for old, new in self.names}
        return [old.get(name, name) for name in names]

    def schema(self, schema: pa.Schema, suffix: str) -> pa.Schema:
        """The schema of the selected columns of a file, given its own."""
        return self.of(schema.empty_table(), suffix).schema if len(schema) else schema

    def renamed(self, names: Iterable[str]) -> list[str]:
        """What columns of the files are called, those of them that are selected."""
        if self.names is None:
            return list(names)
        new = dict(self.names)
        return [new[name] for name in names if name in new]

    def check(self, columns: Sequence[str], dataset: object) -> None:
        """Check that the selected columns are there.

        Args:
            columns: of all files.
            dataset: its name, for the message.

        Raises:
            DataError: one is in no file.
        """
        for old, _ in self.names or ():
            if old not in columns:
                near = suggest(old, columns) or f"there are: {', '.join(sorted(columns))}"
                found = f"{dataset} has no column '{old}', which `columns` selects"
                raise DataError(found, near)
