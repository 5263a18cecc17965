"""The evidence of a seeded sample of the rows of a page: whole groups, those whose texts are first.

applied steps ──> rows of the sample, as each step had them ──> `evidence` ──> a list for each row
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....operators.columns import flat, is_text
from ....operators.compute import pc
from ....operators.groups import Array
from ....operators.operator import surviving_rows
from ...engine.frame import Frame
from ...engine.steps import AppliedStep
from ..evidence import evidence, has_evidence, seen_by
from ..rows import RowTable
from .content import drawn, joined

# --- Every value that steps wrote, also in rows that a later step dropped -------------
# base ──step──> step ──> ...      one place for each row of base and each row that a step added
#   └──────────────┴──> WrittenValues: fate, reason, and the last value of every column

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


# --- Evidence -------------------------------------------------------------------------

COLUMN = "evidence of steps"
"""The name among the texts of a row; no column of a dataset is likely to have it."""
MOST_ROWS, MOST_CHARACTERS = 20_000, 3_000_000
"""The most responses with evidence: finding the rules of answers takes 0.2 us a character."""
_ENTRY = pa.struct([("step", pa.int32()), ("name", pa.string()), ("text", pa.string())])


class RowEvidence(NamedTuple):
    """The evidence of the rows of a set."""

    entries: pa.Array  # of each row a list of `{step, name, text}`; null where there are none
    rows: int  # so many rows were looked at

    def banner(self) -> str:
        """A sentence for the page, where it does not have the evidence of all rows."""
        if self.rows == len(self.entries):
            return ""
        return (
            f"Evidence is shown of {self.rows:,} of {len(self.entries):,} responses, whole groups "
            "that were drawn. "
        )


def evidence_of(
    parts: Sequence[Sequence[AppliedStep]],
    values: Sequence[WrittenValues],
    rows: RowTable,
    most_rows: int = MOST_ROWS,
) -> RowEvidence:
    """What the values of the rows of a set rest on.

    Raises:
        RejuiceError: what is on file does not fit the steps.
    """
    sampled_N = _sampled(rows, _characters(values), most_rows)
    found: list[list[dict[str, Any]]] = [[] for _ in range(len(sampled_N))]
    starts = np.cumsum([0, *(part.num_rows for part in values)])
    for each in zip(*parts, strict=True):
        _add(found, each, values, starts, sampled_N)
    return RowEvidence(pa.array([e or None for e in found], pa.list_(_ENTRY)), int(sampled_N.sum()))


def _characters(values: Sequence[WrittenValues]) -> Array:
    """int64[N]: the length of each response."""
    found = []
    for part in values:
        column = part.column("response") if "response" in part.names else None
        known = column is not None and is_text(column.type)
        lengths = pc.fill_null(pc.utf8_length(column), 0) if known else np.zeros(part.num_rows)
        found.append(np.asarray(lengths).astype(np.int64))
    return np.concatenate([np.zeros(0, np.int64), *found])


def _sampled(rows: RowTable, characters_N: Array, most_rows: int) -> Array:
    """bool[N]: rows of whole groups, in the order in which their texts go into the page."""
    sizes_G = rows.groups.sizes_G
    if not len(sizes_G):
        return np.zeros(0, bool)
    characters_G = rows.groups.sum(characters_N)
    ids = rows.table["prompt_id"].take(pa.array(rows.groups.starts_G))
    order = np.argsort(drawn(ids), kind="stable")
    within = np.cumsum(sizes_G[order]) <= most_rows
    within &= np.cumsum(characters_G[order]) <= MOST_CHARACTERS
    within[0] = True
    sampled_G = np.zeros(len(sizes_G), bool)
    sampled_G[order[within]] = True
    return np.asarray(sampled_G[rows.groups.codes_N])


def _add(
    found: list[list[dict[str, Any]]],
    parts: Sequence[AppliedStep],
    values: Sequence[WrittenValues],
    starts: Array,
    sampled_N: Array,
) -> None:
    """Add what a step has, from its input rows of all parts."""
    step, tables, reasons, places = parts[0].step, list[pa.Table](), list[Any](), list[Array]()
    if not all(has_evidence(step, each.before) for each in parts):
        return
    for each, part, start in zip(parts, values, starts, strict=False):
        places_I = part.inputs[step.number] + start
        rows = np.flatnonzero(sampled_N[places_I])
        if not len(rows):
            continue
        change = each.result.change
        tables.append(seen_by(each, rows))
        none = pa.nulls(len(rows), pa.string())
        dropped = change.reasons
        reasons.append(none if dropped is None else flat(dropped).take(pa.array(rows)))
        places.append(places_I[rows])
    if tables:
        table = pa.concat_tables(tables, promote_options="permissive")
        columns = evidence(step, table, pa.concat_arrays(reasons))
        _add_entries(found, step.number, columns, np.concatenate(places))


def _add_entries(
    found: list[list[dict[str, Any]]],
    number: int,
    columns: Mapping[str, pa.Array],
    places: Array,
) -> None:
    for name, column in columns.items():
        for place, value in zip(places.tolist(), column.to_pylist(), strict=True):
            if value is not None:
                text = f"{value:.3f}" if isinstance(value, float) else str(value)
                found[place].append({"step": number, "name": name, "text": text})
