"""Lines that follow rows through changes, and keep what was last written to each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Change
from ...operators.change import surviving_rows
from ...operators.columns import common_type, flat

Numbers = NDArray[np.int64]


class Lines:
    """A line for each row there ever was, by number.

    Attributes:
        current_N: int64[N], the line of each row that is there now.

    Args:
        rows: how many rows there are at first; their lines are 0 to rows - 1.
    """

    def __init__(self, rows: int) -> None:
        self.current_N: Numbers = np.arange(rows)
        self._lines = rows
        self._written: dict[str, _Written] = {}

    @property
    def names(self) -> list[str]:
        """What was written, in the order in which it was first written."""
        return list(self._written)

    def follow(self, change: Change) -> None:
        """Go on with the rows that a change leaves, and with those that it adds.

        The first child of a row stays on its line; each other one begins as a copy of it.
        """
        rows_N = surviving_rows(change, len(self.current_N))
        if rows_N is None:
            return
        parent_N = np.append(self.current_N, -1)[rows_N]  # Row -1 has line -1.
        if change.parents is None:
            self.current_N = parent_N
            return
        first_N = np.zeros(len(rows_N), bool)
        first_N[np.unique(rows_N, return_index=True)[1]] = True
        own_N = first_N & (rows_N >= 0)
        added = int((~own_N).sum())
        for written in self._written.values():
            written.copy(parent_N[~own_N], self._lines)
        self.current_N = np.where(own_N, parent_N, 0)
        self.current_N[~own_N] = np.arange(self._lines, self._lines + added)
        self._lines += added

    def write(self, lines_K: Numbers, name: str, column: Any) -> None:
        """Write values to some lines, over what they had.

        Args:
            lines_K: int64[K].
            name: of the column.
            column: an Arrow array of K values, of a type that casts to that of earlier ones.
        """
        written = self._written.setdefault(name, _Written())
        written.write(lines_K, flat(column), self._lines)

    def column(self, name: str, kind: pa.DataType | None = None) -> pa.Array:
        """What each line has, as an array; null where nothing was written.

        Args:
            name: of the column.
            kind: the type to give it; None: the one in which it was written.
        """
        written = self._written.get(name)
        if written is None:
            return pa.nulls(self._lines, kind or pa.null())
        return written.column(self._lines, kind)


class _Written:
    """The values of a column: pieces as they were written, and the place of each line's value."""

    def __init__(self) -> None:
        self._pieces: list[pa.Array] = []
        self._values = 0
        self._place_L: Numbers = np.zeros(0, np.int64)

    def write(self, lines_K: Numbers, column: pa.Array, lines: int) -> None:
        self._grow(lines)
        self._place_L[lines_K] = self._values + np.arange(len(lines_K))
        self._pieces.append(column)
        self._values += len(lines_K)

    def copy(self, parents_K: Numbers, lines: int) -> None:
        """Lines from `lines` on begin with the values of others; -1: with none."""
        self._grow(lines)
        places_K = np.where(parents_K < 0, -1, np.append(self._place_L, -1)[parents_K])
        self._place_L = np.concatenate([self._place_L, places_K])

    def column(self, lines: int, kind: pa.DataType | None) -> pa.Array:
        self._grow(lines)
        kind = kind or common_type(piece.type for piece in self._pieces)
        pieces = [piece.cast(kind, safe=False) for piece in self._pieces]
        places = pa.array(self._place_L, mask=self._place_L < 0)
        return flat(pa.chunked_array(pieces, kind).take(places))

    def _grow(self, lines: int) -> None:
        missing = lines - len(self._place_L)
        self._place_L = np.append(self._place_L, np.full(missing, -1, np.int64))
