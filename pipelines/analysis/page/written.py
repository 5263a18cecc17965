"""Every value that steps wrote, also in rows that a later step dropped.

base ──step──> step ──> ...      one place for each row of base and each row that a step added
  └──────────────┴──> WrittenValues: fate, reason, and the last value of every column
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....operators.change import surviving_rows
from ...engine.frame import Frame
from ...engine.steps import AppliedStep
from .joined import joined

KEPT = -1
"""The fate of a row that no step dropped."""


class _WrittenPiece(NamedTuple):
    """Values of a column, and the places of the rows that they belong to."""

    values: pa.ChunkedArray
    places: NDArray[np.int64]


class WrittenValues:
    """Rows of a base, then rows that steps added to it, with all that was written.

    Args:
        base: rows before the first step.

    Attributes:
        fate_N: int16, the number of the step that dropped the row, `KEPT` for the others.
        reason_N: object, the slug for which it was dropped, or None.
        names: columns, in the order in which they appeared.
        written: those that a step wrote.
    """

    def __init__(self, base: Frame) -> None:
        self._base = base
        self._pieces: dict[str, list[_WrittenPiece]] = {}
        self.fate_N: NDArray[np.int16] = np.full(base.num_rows, KEPT, np.int16)
        self.reason_N: NDArray[Any] = np.full(base.num_rows, None, object)
        self.names: list[str] = list(base.column_names)
        self.written = set[str]()
        self._current = np.arange(base.num_rows)
        self.inputs: dict[int, NDArray[np.int64]] = {}
        """Per number of a step: the places of its input rows."""

    @classmethod
    def of(cls, base: Frame, applied: Iterable[AppliedStep]) -> WrittenValues:
        """The values after some steps."""
        values = cls(base)
        for each in applied:
            values.add(each)
        return values

    def add(self, applied: AppliedStep) -> None:
        """Record what a step did."""
        change, before = applied.result.change, self._current
        self.inputs[applied.step.number] = before
        if change.reasons is not None:
            dropped = np.flatnonzero(np.asarray(change.reasons.is_valid()))
            self.fate_N[before[dropped]] = applied.step.number
            self.reason_N[before[dropped]] = np.array(
                change.reasons.drop_null().to_pylist(), object
            )
        rows = surviving_rows(change, len(before))
        if change.parents is None:
            self._write(change.columns, before)
            self._current = before if rows is None else before[rows]
            return
        self._expand(applied, np.asarray(change.parents, np.int64), before)
        self._write(change.columns, self._current)

    def _expand(
        self, applied: AppliedStep, parents: NDArray[np.int64], before: NDArray[np.int64]
    ) -> None:
        """Give rows that have no parent, or not for themselves alone, a place of their own."""
        first = np.zeros(len(parents), bool)
        first[np.unique(parents, return_index=True)[1]] = True
        new = (parents < 0) | ~first
        places = np.where(new, -1, before[parents] if len(before) else -1)
        places[new] = len(self.fate_N) + np.arange(int(new.sum()))
        self.fate_N = np.append(self.fate_N, np.full(int(new.sum()), KEPT, np.int16))
        self.reason_N = np.append(self.reason_N, np.full(int(new.sum()), None, object))
        self._current = places
        if new.any():
            rows = pa.array(np.flatnonzero(new))
            copied = applied.after.select(applied.after.column_names).take(rows)
            columns = dict(zip(copied.column_names, copied.columns, strict=True))
            self._add_pieces(columns, places[new])

    def _write(self, columns: Any, places: NDArray[np.int64]) -> None:
        self.written.update(columns)
        self._add_pieces(columns, places)

    def _add_pieces(self, columns: Any, places: NDArray[np.int64]) -> None:
        for name, column in columns.items():
            values = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
            self._pieces.setdefault(name, []).append(_WrittenPiece(values, places))
            if name not in self.names:
                self.names.append(name)

    @property
    def num_rows(self) -> int:
        """Rows of the base, and rows that were added."""
        return len(self.fate_N)

    def column(self, name: str) -> pa.ChunkedArray:
        """The last value of a column in each row; null where it has none.

        Raises:
            KeyError: neither the base nor a step has it.
        """
        pieces = list(self._pieces.get(name, ()))
        if name in self._base.column_names:
            own = self._base.select([name])[name]
            if not pieces:
                nulls = pa.nulls(self.num_rows - len(own), own.type)
                return pa.chunked_array([*own.chunks, nulls], own.type)
            pieces.insert(0, _WrittenPiece(own, np.arange(len(own))))
        if not pieces:
            raise KeyError(name)
        at_N, offset = np.full(self.num_rows, -1, np.int64), 0
        for values, places in pieces:
            at_N[places] = offset + np.arange(len(values))
            offset += len(values)
        return joined([piece.values for piece in pieces]).take(pa.array(at_N, mask=at_N < 0))
