"""What steps wrote to rows, also to those that a later step dropped.

base ──step──> change ──> lines: values as last written, fate, reason, contributions
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Change
from ...operators.arrow_compute import pc
from ...operators.columns import common_type, component_columns, flat, is_text
from ...operators.mapper.judgement_reward_mapper import JudgementRewardMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...operators.operator import surviving_rows
from ..engine.conditional_step import matching_rows
from ..engine.frame import Frame
from ..engine.steps import AppliedStep

Numbers = NDArray[np.int64]
Join = Callable[[Sequence[pa.ChunkedArray]], pa.ChunkedArray]


class Lines:
    """A line for each row there ever was, by number; at first 0 to rows - 1."""

    def __init__(self, rows: int) -> None:
        self.current_N: Numbers = np.arange(rows)  # the line of each row that is there now
        self.rows = rows  # how many lines there are
        # By column what was written, piece by piece, and where in that the value of each line is.
        self._pieces: dict[str, list[pa.ChunkedArray]] = {}
        self._places: dict[str, Numbers] = {}

    @property
    def names(self) -> list[str]:
        """What was written, in that order."""
        return list(self._pieces)

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
        for name, place_L in self._places.items():
            copied_K = np.append(place_L, -1)[parent_N[~own_N]]
            self._places[name] = np.concatenate([place_L, copied_K])
        added = int((~own_N).sum())
        self.current_N = np.where(own_N, parent_N, 0)
        self.current_N[~own_N] = np.arange(self.rows, self.rows + added)
        self.rows += added

    def write(self, lines_K: Numbers, name: str, column: Any) -> None:
        pieces = self._pieces.setdefault(name, [])
        place_L = self._places.setdefault(name, np.full(self.rows, -1))
        place_L[lines_K] = sum(map(len, pieces)) + np.arange(len(lines_K))
        chunked = isinstance(column, pa.ChunkedArray)
        pieces.append(column if chunked else pa.chunked_array([column]))

    def column(self, name: str, kind: pa.DataType | None = None) -> pa.Array:
        """What each line has; null where nothing was written."""

        def cast(pieces: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
            wanted = kind or common_type(piece.type for piece in pieces)
            found = [flat(piece.cast(wanted, safe=False)) for piece in pieces]
            return pa.chunked_array(found, wanted)

        if name not in self._pieces:
            return pa.nulls(self.rows, kind or pa.null())
        return flat(self.joined(name, cast))

    def joined(self, name: str, join: Join) -> pa.ChunkedArray:
        """What each line has of a column, the pieces of which are put together by `join`."""
        place_L = self._places[name]
        return join(self._pieces[name]).take(pa.array(place_L, mask=place_L < 0))


class WrittenValues(Lines):
    """Rows of a base, then rows that steps added, with all that was written to them.

    What it keeps beside columns is written under names that no column has.
    """

    FATE, REASON, VERDICT, CONTRIBUTION = "\0fate", "\0reason", "\0verdict", "\0contribution_"
    _ORIGIN = "\0row of the base"

    def __init__(self, base: Frame) -> None:
        super().__init__(base.num_rows)
        self.base = base
        self.columns: dict[str, None] = dict.fromkeys(base.column_names)  # as they appeared
        self.written: dict[str, None] = {}  # those that a step wrote
        self.weights: dict[str, None] = {}  # components that were summed
        self.inputs: dict[int, Numbers] = {}  # by the number of a step, the lines of its input rows
        self.write(np.arange(base.num_rows), self._ORIGIN, pa.array(np.arange(base.num_rows)))

    @classmethod
    def of(cls, base: Frame, applied: Iterable[AppliedStep]) -> WrittenValues:
        values = cls(base)
        for each in applied:
            values.add(each)
        return values

    def add(self, each: AppliedStep) -> None:
        change, operator = each.result.change, each.step.operator
        before_N = self.inputs[each.step.number] = self.current_N
        if change.reasons is not None:
            rows_N = np.flatnonzero(np.asarray(change.reasons.is_valid()))
            self.drop(before_N[rows_N], each.step.number, change.reasons.drop_null())
        if isinstance(operator, RewardSumMapper) and each.before.num_rows:
            self.sum_up(operator, each.before, before_N)
        self.follow(change)
        lines_N = before_N if change.parents is None else self.current_N
        for name, column in change.columns.items():
            if name in self.columns and name not in self.names:
                self._pieces[name] = [self.base.select([name])[name]]
                self._places[name] = self._origin_N()
            self.write(lines_N, name, column)
        self.columns |= dict.fromkeys(change.columns)
        self.written |= dict.fromkeys(change.columns)
        if isinstance(operator, JudgementRewardMapper) and each.before.num_rows:
            rows_N, verdicts = _verdicts_of_judgements(each)
            self.write(lines_N[rows_N], self.VERDICT, verdicts)

    def drop(self, lines_K: Numbers, step: int, reasons: Any) -> None:
        self.write(lines_K, self.FATE, pa.array(np.full(len(lines_K), step, np.int16)))
        self.write(lines_K, self.REASON, reasons)

    def sum_up(self, operator: RewardSumMapper, before: Frame, lines_N: Numbers) -> None:
        """Record what each component adds to the reward of the rows that an operator sums."""
        own_N = matching_rows(operator, before)
        table = before.select(operator.reads_of(before.column_names)).take(pa.array(own_N))
        rows_N = np.flatnonzero(operator.summed(table))
        self.weights |= dict.fromkeys(operator.weights)
        found = operator.contributions(table)
        for name in self.weights:  # A sum that replaces an earlier one replaces its parts.
            nothing_N = np.full(table.num_rows, np.nan)
            value_N = found.get(name, nothing_N)[rows_N]
            values = pa.array(value_N, mask=np.isnan(value_N))
            self.write(lines_N[own_N[rows_N]], f"{self.CONTRIBUTION}{name}", values)

    def joined(self, name: str, join: Join) -> pa.ChunkedArray:
        if name in self.names:
            return super().joined(name, join)
        if name not in self.columns:
            return join([pa.chunked_array([pa.nulls(self.rows)])])
        own = join([self.base.select([name])[name]])
        if self.rows == len(own):
            return own
        origin_N = self._origin_N()
        return own.take(pa.array(origin_N, mask=origin_N < 0))

    def _origin_N(self) -> Numbers:
        """The row of the base that each line is of, or a copy of; -1 where it is of none."""
        return np.array(pc.fill_null(self.column(self._ORIGIN, pa.int64()), -1))

    def last(self, name: str) -> pa.ChunkedArray:
        """The last value of a column in each row; null where it has none."""
        return self.joined(name, joined)

    def numbers(self, first_row: int) -> NDArray[np.int32]:
        """The number of each row, after `first_row` rows of other parts; see `PageSet.columns`."""
        source_N = np.append(self.base.source_rows, -1)[self._origin_N()]
        numbers = np.where(source_N < 0, 0, source_N + first_row + 1)
        numbers[self.base.num_rows :] *= -1
        return numbers.astype(np.int32)


def _verdicts_of_judgements(each: AppliedStep) -> tuple[Numbers, pa.Array]:
    """Which rows have a rewarded judgement, and whether it is the label."""
    columns = each.result.change.columns
    rewarded = pc.is_null(flat(columns[component_columns("verification")[1]]))
    judgement = flat(columns["judgement"])
    right = pc.equal(judgement, flat(each.before.select(["label"])["label"]).cast(pa.string()))
    graded = pc.if_else(right, "correct", "wrong_answer")
    verdicts = pc.if_else(pc.is_null(judgement), "no_answer", graded)
    return np.flatnonzero(np.asarray(rewarded)), verdicts.filter(rewarded)


# --- Columns of several parts as one, whatever types they were written with -----------


def joined(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Columns one after the other, in a type that holds all of them.

    Texts are `large_string`, since those of a whole run may have more than 2 GiB. Where no type
    holds all, as for numbers and texts, each value is a text, as JSON.
    """
    try:
        kind = common_type(column.type for column in columns)
        kind = pa.large_string() if is_text(kind) else kind
        cast = [column.cast(kind) for column in columns]
    except pa.ArrowException:
        return joined([texts(column) for column in columns])
    return pa.chunked_array([chunk for column in cast for chunk in column.chunks], kind)


def texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each value as a text: as JSON, unless it is one; null stays null."""
    if is_text(column.type):
        return column.cast(pa.large_string())
    return pa.chunked_array([pa.array(map(text_of, column.to_pylist()), pa.large_string())])


def text_of(value: Any) -> str | None:
    """As JSON, unless it is a text."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
