"""The way of one row through the steps of a stored set.

id ──ids of each part──> part ──source, results──> AppliedStep... ──> RowPath
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...operators.change import surviving_rows
from ..engine.frame import Frame
from ..engine.steps import AppliedStep, iterate_steps
from .stored import StoredSet

ROW = "row"
"""What may identify a row beside its ids: `row 5`, its number in the dataset."""


class RowPath(NamedTuple):
    """A row, from where it comes from to its end.

    Attributes:
        one: the set that it belongs to.
        number: its row in the dataset, or among the rollouts of a training step, from 1; None where
            a step made it.
        source: the rows before the first step.
        steps: all steps of the set.
        places: its place in the rows before each step, as far as it got, and after the last where
            it is left; -1 where it was not there yet.
    """

    one: StoredSet
    number: int | None
    source: Frame
    steps: Sequence[AppliedStep]
    places: tuple[int, ...]

    @property
    def dropped_by(self) -> AppliedStep | None:
        """The step that dropped it; None: it is left."""
        last = len(self.places) - 1
        return self.steps[last] if last < len(self.steps) else None

    @property
    def end(self) -> Frame:
        """The last rows that it is among, at the last of `places`."""
        last = len(self.places) - 1
        return self.steps[last - 1].after if last else self.source

    def id(self, name: str) -> str | None:
        """Its `response_id` or `prompt_id` at its end; None: it has none."""
        if name not in self.end.column_names:
            return None
        found: str | None = self.end.select([name])[name][self.places[-1]].as_py()
        return found


def row_paths(one: StoredSet, name: str, row: str) -> Iterator[RowPath]:
    """The rows of a set that an id names.

    Args:
        one: the set.
        name: `response_id`, `prompt_id` or `ROW`.
        row: how the id begins, or `row 5`.

    Raises:
        DataError: what the steps did is not on file.

    Example:
        >>> [path] = row_paths(one, "response_id", "91b58da4")
        >>> path.number, path.places, path.dropped_by
        (1, (0, 0, 1, 1, 1, 1, 1, 1, 1), None)
    """
    for part in _parts(one, name, row):
        first_row = sum(one.source(before).num_rows for before in range(part))
        source = one.source(part)
        steps = list(iterate_steps(one.recipe.steps, source, one.results(part)))
        frames = [source, *(each.after for each in steps)]
        for at, frame in enumerate(frames):
            ends_N = np.ones(frame.num_rows, bool)
            if at < len(steps):  # A row ends before the last frame only where a step drops it.
                reasons = steps[at].result.change.reasons
                if reasons is None:
                    continue
                ends_N = np.asarray(reasons.is_valid())
            if ends_N.any():
                ends_N = ends_N & _matching(frame, name, row, first_row)
            for end in np.flatnonzero(ends_N):
                places = _places(steps[:at], int(end))
                number = None if places[0] < 0 else first_row + places[0] + 1
                yield RowPath(one, number, source, steps, places)


def has_row(one: StoredSet, name: str, row: str) -> bool:
    """Whether a set was sampled with a row of that id; rows that steps added do not count."""
    return name != ROW and any(_starts(one.ids(part), name, row) for part in range(one.parts))


def _parts(one: StoredSet, name: str, row: str) -> Sequence[int]:
    """Those that may have it: all, where it is not among the rows as sampled."""
    every = range(one.parts)
    if name == ROW or one.parts == 1:
        return every
    return [part for part in every if _starts(one.ids(part), name, row)] or every


def _starts(ids: pa.Table, name: str, row: str) -> bool:
    if name not in ids.column_names:
        return False
    return bool(pc.any(pc.starts_with(ids[name].cast(pa.string()), row)).as_py())


def _matching(frame: Frame, name: str, row: str, first_row: int) -> NDArray[np.bool_]:
    if name == ROW:
        number = int(row[4:]) if row.startswith("row ") and row[4:].isdecimal() else 0
        return np.array((frame.source_rows >= 0) & (frame.source_rows + first_row + 1 == number))
    if name not in frame.column_names:
        return np.zeros(frame.num_rows, bool)
    return np.array(pc.fill_null(pc.starts_with(frame.select([name])[name], row), False), bool)


def _places(steps: Sequence[AppliedStep], end: int) -> tuple[int, ...]:
    """The places before each of the steps of the row that is at `end` after the last, and that."""
    places = [end]
    for each in reversed(steps):
        rows = surviving_rows(each.result.change, each.result.rows_in)
        last = places[0]
        places.insert(0, last if rows is None or last < 0 else int(rows[last]))
    return tuple(places)
