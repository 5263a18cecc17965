"""The audit log of a run: how many rows each step got, made and dropped, and why it dropped each.

One log is filled for each part of a dataset (a chunk, a block, the groups of a training step);
the logs of all parts are merged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import Change, DataError
from ...operators.compute import pc
from ...operators.operator import merge_logged, surviving_rows
from ..dataset.files import open_input, read_arrow
from ..dataset.remote import AnyPath
from ..dataset.write import writer
from .frame import Frame
from .report import StepReport, Summary, merge

DECISIONS = pa.schema([("row_id", pa.string()), ("step", pa.string()), ("reason", pa.string())])
NEW_ROW = "a new row"
"""Stands for the id of a row without one, and without a place in the dataset."""


class StepLog:
    """Totals and decisions of one step, added up over the parts of a dataset.

    Attributes:
        rows_in, rows_out, added: rows.
        dropped: rows by the reason for which they were dropped.
        notes: figures of the operator, summed.
        logged: messages of the library that does the work, and how often each was logged.
        written: columns.
        seconds: that the operator took.
        summaries: figures of the written columns, one for each part.
        decisions: about dropped rows, one table for each part.
    """

    def __init__(self, step: str) -> None:
        self._step = step
        self.rows_in = self.rows_out = self.added = 0
        self.dropped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.logged: dict[str, int] = {}
        self.written: set[str] = set()
        self.seconds = 0.0
        self.summaries: list[Summary] = []
        self.decisions: list[pa.Table] = []

    def count(self, rows_in: int, change: Change, seconds: float, summary: Summary) -> None:
        """Add what was done to `rows_in` rows."""
        rows = surviving_rows(change, rows_in)
        rows_out = rows_in if rows is None else len(rows)
        dropped: dict[str, int] = {}
        if change.reasons is not None:
            counts = change.reasons.drop_null().value_counts().to_pylist()
            dropped = {count["values"]: count["counts"] for count in counts}
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.added += rows_out + sum(dropped.values()) - rows_in
        self.dropped.update(dropped)
        self.notes.update(change.notes)
        self.logged = merge_logged((self.logged, change.logged))
        self.written.update(change.columns)
        self.seconds += seconds
        self.summaries.append(summary)

    def record_decisions(self, before: Frame, change: Change, first_row: int = 0) -> None:
        """Record which rows were dropped, and why; see `decisions`."""
        self.decisions.append(decisions(before, change, self._step, first_row))

    def merge(self, other: StepLog) -> None:
        """Add the log of another part."""
        self.rows_in += other.rows_in
        self.rows_out += other.rows_out
        self.added += other.added
        self.dropped.update(other.dropped)
        self.notes.update(other.notes)
        self.logged = merge_logged((self.logged, other.logged))
        self.written |= other.written
        self.seconds += other.seconds
        self.summaries += other.summaries
        self.decisions += other.decisions

    def take_decisions(self) -> pa.Table:
        """The decisions so far, which leave the log; see `DECISIONS`."""
        found, self.decisions = self.decisions, []
        return pa.concat_tables([DECISIONS.empty_table(), *found])

    def report(self, *, cached: bool = False, retried: int = 0) -> StepReport:
        """The step's line of the funnel."""
        return StepReport(
            step=self._step,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            added=self.added,
            dropped=dict(self.dropped.most_common()),
            seconds=round(self.seconds, 3),
            cached=cached,
            retried=retried,
            notes=dict(self.notes),
            logged=self.logged,
            columns=merge(self.summaries),
            written=sorted(self.written),
        )


class AuditLog:
    """The logs of some steps, by name."""

    def __init__(self) -> None:
        self.steps: dict[str, StepLog] = {}

    def step(self, name: str) -> StepLog:
        """The log of a step; empty if there is none yet."""
        return self.steps.setdefault(name, StepLog(name))

    def merge(self, other: AuditLog) -> None:
        """Add the log of another part."""
        for name, log in other.steps.items():
            self.step(name).merge(log)

    def take_decisions(self) -> pa.Table:
        """The decisions of all steps so far, which leave the log."""
        tables = [log.take_decisions() for log in self.steps.values()]
        return pa.concat_tables([DECISIONS.empty_table(), *tables])


def decisions(frame: Frame, change: Change, step: str, first_row: int = 0) -> pa.Table:
    """A row for each row of `frame` that `change` drops: row_id, step, reason.

    The id is the response's, else the prompt's, else `row N` of the dataset, counted from 1
    (`a new row` where an operator made it);
    `first_row` rows of it come before the frame's source.
    """
    if change.reasons is None or change.reasons.null_count == len(change.reasons):
        return DECISIONS.empty_table()
    rows = np.flatnonzero(np.asarray(change.reasons.is_valid()))
    dropped = frame.after(Change(parents=rows))
    ids = [
        dropped.select([name])[name].combine_chunks()
        for name in ("response_id", "prompt_id")
        if name in frame.column_names
    ]
    if not ids or ids[-1].null_count:
        ids.append(_row_numbers(dropped.source_rows, first_row))
    steps = pa.repeat(pa.scalar(step), len(rows))
    reasons = change.reasons.drop_null()
    return pa.table([pc.coalesce(*ids), steps, reasons], schema=DECISIONS)


def _row_numbers(source_rows: NDArray[np.int64], first_row: int) -> pa.Array:
    rows = pa.array(source_rows + first_row + 1, mask=source_rows < 0).cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise("row", rows, " "), NEW_ROW)


# --- The decisions of a run on file: Parquet, in the folder of each step --------------
# curated.run/03_pass_rate_filter/decisions.parquet          of an export in one file
# curated.run/03_pass_rate_filter/decisions-00000.parquet    of one in parts, one for each of them
# curated.run/03_pass_rate_filter/decisions.arrow            of version 0.4

STEM = "decisions"
SUFFIX = ".parquet"
_SUFFIXES = (SUFFIX, ".arrow")
_STEP = re.compile(r"\d{2,}_\w+")
"""The folder of a step, see `Step.label`."""


def write_decisions(folder: AnyPath, decisions: pa.Table) -> None:
    """Write the decisions of a step to its folder."""
    with writer(folder / f"{STEM}{SUFFIX}", DECISIONS) as write:
        write(decisions)


def read_decisions(folder: AnyPath) -> pa.Table:
    """All decisions in a run folder, or in the folder of one of its steps, step by step.

    Raises:
        DataError: a file is damaged.
    """
    batches = [batch for file in files(folder) for batch in _batches(file, list(DECISIONS.names))]
    return pa.Table.from_batches(batches, DECISIONS)


def decided_rows(folder: AnyPath) -> Iterator[str | None]:
    """The `row_id` of each decision in a run folder; no more is read than is asked for."""
    for file in files(folder):
        for batch in _batches(file, ["row_id"]):
            yield from batch["row_id"].to_pylist()


def files(folder: AnyPath) -> list[AnyPath]:
    """The files of a step or, of a run folder, those of all its steps."""
    inside: Iterable[AnyPath] = folder.iterdir() if folder.is_dir() else ()
    found = sorted(inside, key=str)
    steps = [path for path in found if _STEP.match(path.name)]
    own = [path for path in found if path.suffix in _SUFFIXES and path.stem.startswith(STEM)]
    return [*own, *(file for step in steps for file in files(step))]


def _batches(file: AnyPath, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        if file.suffix == ".arrow":
            batches = iter(read_arrow(file, mapped=False).select(columns).to_batches())
        else:
            batches = _parquet_batches(file, columns)
        for batch in batches:
            batch.validate(full=True)
            yield batch.select(columns).cast(pa.schema([DECISIONS.field(n) for n in columns]))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, ValueError):
        raise DataError(f"{file} is damaged", "run the recipe again") from None


def _parquet_batches(file: AnyPath, columns: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq  # It loads clients of object stores.

    with open_input(file) as source, pq.ParquetFile(source) as parquet:
        yield from parquet.iter_batches(columns=columns)
