"""Steps with a condition: an operator is given the rows that match, and its change becomes one to
all rows.

    rows ──matching──> rows of `where` ──operator──> change ──over_all_rows──> change to all rows
      └── the others: a column that is there keeps its values, a new one is null, and a new reward
          component is missing as `not_applicable`

The rows that match are whole rows in their order, so that of a group these rows are the group.

    part ──MatchLog.of──> rows, rows that match; if none: what the columns have ──merge──> all parts

A value that is mistyped matches no row, and leaves a task without what the step would write.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Change, Groups, Operator, OperatorError
from ...operators.arrow_compute import pc
from ...operators.columns import (
    NOT_APPLICABLE,
    RIGHT,
    WRONG,
    at_path,
    columns_of,
    common_type,
    flat,
    is_text,
)
from ...operators.condition import Wanted, described, matches
from ...operators.errors import shortened, suggest
from ...operators.logs import visible
from .frame import Frame

_MISSING = "_missing"
_RowNumbers = NDArray[np.int64]


def matching_rows(operator: Operator, frame: Frame) -> _RowNumbers:
    """The rows that the condition of an operator matches, int64[R], ascending."""
    if operator.where is None:
        return np.arange(frame.num_rows)
    columns = columns_of(operator.where, frame.column_names)
    there = [name for name in columns if name in frame.column_names]
    # All columns are named in the error where one is missing.
    table = frame.select(there) if len(there) == len(columns) else frame.table()
    return np.flatnonzero(matches(operator.where, table))


def matching(operator: Operator, frame: Frame) -> Frame:
    if operator.where is None:
        return frame
    return frame.after(Change(parents=matching_rows(operator, frame)))


def own_columns(operator: Operator, frame: Frame, change: Change) -> Mapping[str, Any]:
    """What a change to all rows of a frame writes to those that its operator is about."""
    parents = np.arange(frame.num_rows) if change.parents is None else np.asarray(change.parents)
    own = pa.array((parents < 0) | np.isin(parents, matching_rows(operator, frame)))
    return {name: column.filter(own) for name, column in change.columns.items()}


def over_all_rows(operator: Operator, frame: Frame, change: Change) -> Change:
    """The change to all rows of a frame, from the change to those that match a condition."""
    rows_R = matching_rows(operator, frame)
    places = _places(frame, rows_R, change)
    columns = {
        name: _column(frame, name, flat(column), places) for name, column in change.columns.items()
    }
    for name in set(columns) - set(frame.column_names):
        value = name.removesuffix(_MISSING)
        if name.startswith("reward_") and name.endswith(_MISSING) and value in columns:
            columns[name] = _not_applicable(columns[name], columns[value], places)
    for name in change.without:
        if name in frame.column_names:  # It is taken away from these rows only.
            nothing = pa.nulls(len(places.own_M), frame.schema.field(name).type)
            columns[name] = _column(frame, name, nothing, places)
    reasons = None
    if change.reasons is not None:
        at_N = np.full(frame.num_rows, -1)
        at_N[rows_R] = np.arange(len(rows_R))
        reasons = flat(change.reasons).take(pa.array(at_N, mask=at_N < 0))
    failed = None if change.failed is None else rows_R[change.failed]
    parents = None if change.parents is None else places.parent_M
    return Change(columns, reasons, parents, (), change.notes, change.logged, failed)


class _Places(NamedTuple):
    """Where the rows of the output come from, axis _M."""

    own_M: _RowNumbers  # the row of the change to the rows that match
    parent_M: _RowNumbers  # the row of the frame; -1: an operator made the row


def _places(frame: Frame, rows_R: _RowNumbers, change: Change) -> _Places:
    if change.parents is None:
        own_M = np.full(frame.num_rows, -1)
        own_M[rows_R] = np.arange(len(rows_R))
        return _Places(own_M, np.arange(frame.num_rows))
    given_K = np.asarray(change.parents, np.int64)
    parent_K = np.append(rows_R, -1)[given_K]
    others = np.setdiff1d(np.arange(frame.num_rows), rows_R)
    # A new row goes with the row before it, and behind the last row of that one's group: rows of
    # the group that do not match must not be cut off from it.
    nearest_K = np.maximum.accumulate(np.append(0, given_K))[1:]
    at_K = rows_R[nearest_K] if len(rows_R) else np.zeros(len(given_K), np.int64)
    is_new_K = given_K < 0
    if is_new_K.any() and "prompt_id" in frame.column_names and frame.num_rows:
        groups = Groups.of(frame.select(["prompt_id"]))
        ends_G = groups.starts_G + groups.sizes_G - 1
        at_K = np.where(is_new_K, ends_G[groups.codes_N[at_K]], at_K)
    order = np.lexsort(
        (
            np.append(np.arange(len(given_K)), np.zeros(len(others), np.int64)),
            np.append(is_new_K, np.zeros(len(others), bool)),
            np.append(at_K, others),
        )
    )
    own = np.append(np.arange(len(given_K)), np.full(len(others), -1))
    return _Places(own[order], np.append(parent_K, others)[order])


def _column(frame: Frame, name: str, written: Any, places: _Places) -> Any:
    """A column of the output: as written in rows that match, else as it was, or null."""
    if name not in frame.column_names:
        return written.take(pa.array(places.own_M, mask=places.own_M < 0))
    old = flat(frame.select([name])[name])
    if pa.types.is_dictionary(old.type):
        old = old.cast(old.type.value_type)
    try:
        kind = common_type([old.type, written.type])
        both = pa.concat_arrays([old.cast(kind), written.cast(kind)])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise OperatorError(
            f"writes column '{name}' as {written.type}, which is {old.type} in the rows that "
            "`where` does not match",
            "let both have one type, or write another column",
        ) from None
    at_M = np.where(places.own_M >= 0, len(old) + places.own_M, places.parent_M)
    return both.take(pa.array(at_M, mask=at_M < 0))


def _not_applicable(reasons: Any, values: Any, places: _Places) -> Any:
    """Why values are missing: in rows that do not match, they are not meant to be there."""
    lacks = pc.and_(pa.array(places.own_M < 0), pc.is_null(values))
    return pc.if_else(lacks, NOT_APPLICABLE, reasons)


# --- How many rows a condition matches, and why where it is none ----------------------

_MOST_KEPT, _MOST_SHOWN = 1000, 5
_KNOWN: dict[str, set[str]] = {
    "finish_reason": {"stop", "length"},
    "verdict": {RIGHT, *WRONG, "timeout", "verifier_error"},
    "task": {"generate", "verify"},
}
"""Values that are right, and may well occur in no row: no response was cut off, say."""


@dataclass
class _PathLog:
    """A column of a condition, in parts in which no row matches."""

    wanted: Wanted
    matched: int = 0  # rows whose value is wanted
    counts: Counter[str] = field(default_factory=Counter)  # of texts, true and false, and nulls
    low: float = math.inf
    high: float = -math.inf

    @classmethod
    def of(cls, path: str, wanted: Wanted, table: pa.Table) -> _PathLog:
        values = at_path(table, path)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        found = cls(wanted, int(matches({path: wanted}, table).sum()))
        if values.null_count:
            found.counts["null"] = values.null_count
        values = values.drop_null()
        if is_text(values.type) or pa.types.is_boolean(values.type):
            for each in values.cast(pa.string()).value_counts().to_pylist():
                found.counts[shortened(each["values"])] += each["counts"]
            found.keep_most_common()
        elif pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            number_N = np.asarray(values.cast(pa.float64(), safe=False))
            number_N = number_N[np.isfinite(number_N)]
            found.low = float(number_N.min(initial=math.inf))
            found.high = float(number_N.max(initial=-math.inf))
        return found

    def merge(self, other: _PathLog) -> None:
        self.matched += other.matched
        self.counts.update(other.counts)
        self.keep_most_common()
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def keep_most_common(self) -> None:
        if len(self.counts) > _MOST_KEPT:
            self.counts = Counter(dict(self.counts.most_common(_MOST_KEPT)))

    def text(self, path: str) -> str:
        """`data_source is gsm8kk in no row, but gsm8k 8; did you mean 'gsm8k'?`."""
        range_ = [] if self.low > self.high else [f"from {self.low:g} to {self.high:g}"]
        shown = [f"{value} {n:,}" for value, n in self.counts.most_common(_MOST_SHOWN)]
        more = len(self.counts) - len(shown)
        others = [f"{more:,} other values"] if more else []
        there = ", ".join([*range_, *shown, *others])
        near = next(filter(None, (suggest(each, self.counts) for each in self._texts())), "")
        found = f"{described({path: self.wanted})} in no row"
        return "; ".join(filter(None, (f"{found}, but {there}" if there else found, near)))

    def is_known(self, path: str) -> bool:
        """Whether the value is one that the column may have, but need not."""
        texts = [*self._texts()]
        return bool(texts) and _KNOWN.get(path, set()) >= {*texts}

    def _texts(self) -> Iterator[str]:
        wanted: Any = self.wanted
        for value in wanted if isinstance(wanted, list | tuple) else [wanted]:
            if isinstance(value, str):
                yield value


def unmatched_lines(steps: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each step whose condition has matched no row, given its name and why."""
    return (f"{name}: {why}" for name, why in steps if why)


@dataclass
class MatchLog:
    rows: int = 0  # before the step
    matched: int = 0
    paths: dict[str, _PathLog] = field(default_factory=dict)

    @classmethod
    def of(cls, operator: Operator, frame: Frame) -> MatchLog | None:
        """What the condition of an operator matches; None: it has none, or lacks columns."""
        names = columns_of(operator.where or (), frame.column_names)
        if operator.where is None or not {*names} <= {*frame.column_names}:
            return None
        found = cls(frame.num_rows, len(matching_rows(operator, frame)))
        if found.rows and not found.matched:
            table = frame.select(names)
            found.paths = {
                path: _PathLog.of(path, wanted, table) for path, wanted in operator.where.items()
            }
        return found

    def merge(self, other: MatchLog) -> None:
        self.rows += other.rows
        self.matched += other.matched
        for path, each in other.paths.items():
            if path in self.paths:
                self.paths[path].merge(each)
            else:
                self.paths[path] = each

    def why_none(self) -> str:
        """Why no row matches, in a line; empty where one does, or that is nothing unusual."""
        if self.matched or not self.rows:
            return ""
        nowhere = {path: each for path, each in self.paths.items() if not each.matched}
        named = [each.text(path) for path, each in nowhere.items() if not each.is_known(path)]
        if nowhere and not named:
            return ""
        why = "; ".join(named) or "some match each of its columns, but none all of them"
        return visible(f"`where` matches none of {self.rows:,} rows: {why}", one_line=True)
