"""How many rows the `where` of a step matches, and why where it is none.

    part ──MatchLog.of──> rows, rows that match; if none: what the columns have ──merge──> all parts

A value that is mistyped matches no row, and leaves a task without what the step would write.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ...operators import Operator
from ...operators.columns import RIGHT, WRONG, at_path, columns_of, is_text
from ...operators.condition import Wanted, described, matches
from ...operators.errors import shortened, suggest
from ...operators.logs import visible
from .conditional_step import matching_rows
from .frame import Frame

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
    """Yield a line for each step whose condition has matched no row.

    Args:
        steps: the name of each and, where no row matches, why.
    """
    return (f"{name}: {why}" for name, why in steps if why)


@dataclass
class MatchLog:
    """What the condition of a step matches.

    Attributes:
        rows: before the step.
        matched: those that match.
    """

    rows: int = 0
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
        """Add another part."""
        self.rows += other.rows
        self.matched += other.matched
        for path, each in other.paths.items():
            if path in self.paths:
                self.paths[path].merge(each)
            else:
                self.paths[path] = each

    def why_none(self) -> str:
        """Why no row matches; empty where one does, or where that is nothing unusual.

        It is one line, and what values have that cannot be seen is escaped.

        Example:
            >>> log.why_none()
            "`where` matches none of 8 rows: source is x in no row, but a 8"
        """
        if self.matched or not self.rows:
            return ""
        nowhere = {path: each for path, each in self.paths.items() if not each.matched}
        named = [each.text(path) for path, each in nowhere.items() if not each.is_known(path)]
        if nowhere and not named:
            return ""
        why = "; ".join(named) or "some match each of its columns, but none all of them"
        return visible(f"`where` matches none of {self.rows:,} rows: {why}", one_line=True)
