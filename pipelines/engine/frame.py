"""A table of rollouts as a stack of changes, read column by column when asked.

Steps touch few columns of wide rows. A `Frame` keeps every column where it was last written and
composes row numbers instead of copying rows, so that a text that nobody reads is copied once: on
export. The same class carries out changes in memory (training, `dj-process`) and over committed
files (`rejuice run`), which is why both give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Change, DataError, Groups
from ...operators.groups import EqualHashes, hash_each
from ...operators.operator import surviving_rows
from ..dataset.read import Source

Index = NDArray[np.int64]


class _Layer(NamedTuple):
    """Columns written together, and which of their rows are still here (None: all).

    Row -1 is one that was not there when the columns were written: a null.
    """

    types: Mapping[str, pa.DataType]
    read: Callable[[str], pa.ChunkedArray]  # the column of a name
    rows: Index | None

    @classmethod
    def of(cls, columns: Mapping[str, pa.ChunkedArray], rows: Index | None = None) -> _Layer:
        types = {name: column.type for name, column in columns.items()}
        return cls(types, columns.__getitem__, rows)

    def take(self, rows: Index) -> _Layer:
        if self.rows is not None:
            rows = np.append(self.rows, -1)[rows]  # -1 stays -1, with no rows here too.
        return self._replace(rows=rows)

    def column(self, name: str) -> pa.ChunkedArray:
        column = self.read(name)
        if self.rows is None:
            return column
        return column.take(pa.array(self.rows, mask=self.rows < 0))


class Frame:
    """Rows after some steps. Immutable: `after` gives the next one."""

    def __init__(self, layers: tuple[_Layer, ...], home: dict[str, int], num_rows: int) -> None:
        self._layers, self._home, self.num_rows = layers, home, num_rows
        self._taken: dict[str, pa.ChunkedArray] = {}

    @classmethod
    def of(cls, table: pa.Table) -> Frame:
        columns = dict(zip(table.column_names, table.columns, strict=True))
        return cls((_Layer.of(columns),), dict.fromkeys(columns, 0), table.num_rows)

    @classmethod
    def of_chunk(cls, source: Source, chunk: int) -> Frame:
        """The frame of a chunk of a dataset, of which nothing is read yet."""
        types = dict(zip(source.schema.names, source.schema.types, strict=True))
        layer = _Layer(types, source.columns(chunk), None)
        return cls((layer,), dict.fromkeys(types, 0), source.rows[chunk])

    @property
    def column_names(self) -> list[str]:
        """Columns in the order in which they first appeared."""
        return list(self._home)

    @property
    def written_columns(self) -> list[str]:
        """Columns that a step has written, and that are not as they were in the first table."""
        return [name for name, at in self._home.items() if at > 0]

    @property
    def schema(self) -> pa.Schema:
        homes = self._home.items()
        return pa.schema([(name, self._layers[at].types[name]) for name, at in homes])

    @property
    def source_rows(self) -> Index:
        """int64[N]: the row of the first table each row descends from; -1 where from none."""
        rows = self._layers[0].rows
        return np.arange(self.num_rows) if rows is None else rows

    def select(self, names: Iterable[str]) -> pa.Table:
        """The current rows of some columns, each of which must be there."""
        names = list(dict.fromkeys(names))
        columns = [self._column(name) for name in names]
        if not names:
            # A table without columns still has rows; Arrow keeps their number in one way only.
            return pa.table({"": pa.nulls(self.num_rows)}).select([])
        return pa.table(columns, names=names)

    def table(self) -> pa.Table:
        return self.select(self._home)

    def after(self, change: Change) -> Frame:
        """The frame once `change` is carried out. The change must have passed `checked`."""
        rows = surviving_rows(change, self.num_rows)
        layers = self._layers if rows is None else tuple(x.take(rows) for x in self._layers)
        home = {name: at for name, at in self._home.items() if name not in change.without}
        if change.columns:
            columns = {
                name: column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
                for name, column in change.columns.items()
            }
            kept = rows if change.parents is None else None
            home.update(dict.fromkeys(columns, len(layers)))
            layers = (*layers, _Layer.of(columns, kept))
        return Frame(layers, home, self.num_rows if rows is None else len(rows))

    def _column(self, name: str) -> pa.ChunkedArray:
        if name not in self._home:
            raise DataError(f"column '{name}' is missing")
        if name not in self._taken:
            self._taken[name] = self._layers[self._home[name]].column(name)
        return self._taken[name]


# --- Where groups start, to refuse a prompt whose rows are not contiguous -------------


class GroupStarts(NamedTuple):
    hashes_G: NDArray[np.uint64]  # uint64, a hash of each group's `prompt_id`
    rows_G: NDArray[np.int64]  # int64, its first row in the dataset, from 0

    @classmethod
    def of(cls, frame: Frame, first_row: int) -> GroupStarts:
        """The groups of a frame whose source has `first_row` rows of the dataset before it.

        Groups of rows that an operator made are left out: they have no row in the dataset. So are
        rows without a prompt, which no condition of a step that makes prompts has matched.
        """
        if "prompt_id" not in frame.column_names:
            return NO_GROUP_STARTS
        prompt_ids = frame.select(["prompt_id"])["prompt_id"]
        starts_G = Groups.of_column(prompt_ids).starts_G
        has_prompt_G = np.asarray(prompt_ids.take(pa.array(starts_G)).is_valid())
        starts_G = starts_G[has_prompt_G & (frame.source_rows[starts_G] >= 0)]
        hashes_G = hash_each(prompt_ids.take(pa.array(starts_G)))
        return cls(hashes_G, frame.source_rows[starts_G] + first_row)


NO_GROUP_STARTS = GroupStarts(np.zeros(0, np.uint64), np.zeros(0, np.int64))


def _plain(row: int) -> str:
    return f"row {row + 1}"


def check_contiguous(parts: Sequence[GroupStarts], place: Callable[[int], str] = _plain) -> None:
    """Refuse a prompt whose rows are not contiguous: it would be two smaller groups."""
    hashes = np.concatenate([part.hashes_G for part in parts])
    again = EqualHashes.of(hashes).rows_R
    if len(again):
        rows = np.concatenate([part.rows_G for part in parts])
        first, second = (place(row) for row in rows[again[:2]].tolist())
        both = f"{first} and {second}"
        if " of " not in both:
            both = f"rows {both.replace('row ', '')}"
        raise DataError(
            f"{both} have the same prompt but are not next to each other",
            "sort the dataset by prompt, see docs/recipes.md",
        )
