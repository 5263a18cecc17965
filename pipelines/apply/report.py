"""What a run did, in numbers: the funnel."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...operators import Change, DataError
from ..dataset.write import run_folder
from .frame import surviving_rows
from .summary import Summary, merge


class StepReport(NamedTuple):
    """One line of the funnel: rows_in + added = rows_out + sum(dropped)."""

    step: str
    rows_in: int
    rows_out: int
    added: int
    dropped: dict[str, int]
    seconds: float
    cached: bool
    notes: dict[str, float]
    columns: dict[str, Any]


class Report(NamedTuple):
    """What a run did; `report.json` holds the same."""

    project_name: str
    recipe: str
    dataset_path: str
    export_path: str
    key: str
    """Of the last step: the run is the same where this is."""
    cache: str
    """Where its commits are; empty where there are none."""
    chunk_rows: int
    rows_in: int
    rows_out: int
    added: int
    dropped: int
    seconds: float
    steps: tuple[StepReport, ...]

    @classmethod
    def of(
        cls, steps: Sequence[StepReport], *, cache: str = "", chunk_rows: int = 0, **head: str
    ) -> Report:
        """The report of some steps; `head` are its first fields."""
        return cls(
            **head,
            cache=cache,
            chunk_rows=chunk_rows,
            rows_in=steps[0].rows_in,
            rows_out=steps[-1].rows_out,
            added=sum(step.added for step in steps),
            dropped=sum(sum(step.dropped.values()) for step in steps),
            seconds=round(sum(step.seconds for step in steps), 3),
            steps=tuple(steps),
        )

    def write(self, folder: Path) -> None:
        """Write `report.json`."""
        steps = [step._asdict() for step in self.steps]
        text = json.dumps({**self._asdict(), "steps": steps}, indent=2)
        (folder / "report.json").write_text(f"{text}\n", "utf-8")

    @classmethod
    def read(cls, export_path: Path) -> Report:
        """The report of a finished run.

        Raises:
            DataError: nothing was run to that path.
        """
        path = run_folder(export_path) / "report.json"
        if not path.exists():
            raise DataError(f"{path} does not exist", "give the export_path of a finished run")
        fields = json.loads(path.read_text("utf-8"))
        steps = tuple(StepReport(**step) for step in fields.pop("steps"))
        return cls(**fields, steps=steps)


class Tally:
    """Sums of one step over the parts of a dataset."""

    def __init__(self) -> None:
        self.rows_in = self.rows_out = self.added = 0
        self.dropped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.seconds = 0.0
        self.summaries: list[Summary] = []

    def add(self, rows_in: int, change: Change, seconds: float, summary: Summary) -> None:
        """Count what was done to `rows_in` rows."""
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
        self.seconds += seconds
        self.summaries.append(summary)

    def merge(self, other: Tally) -> None:
        """Count what another tally counted."""
        self.rows_in += other.rows_in
        self.rows_out += other.rows_out
        self.added += other.added
        self.dropped.update(other.dropped)
        self.notes.update(other.notes)
        self.seconds += other.seconds
        self.summaries += other.summaries

    def report(self, step: str, *, cached: bool = False) -> StepReport:
        """The line of the funnel."""
        return StepReport(
            step,
            self.rows_in,
            self.rows_out,
            self.added,
            dict(self.dropped.most_common()),
            round(self.seconds, 3),
            cached,
            dict(self.notes),
            merge(self.summaries),
        )
