"""The books of a run: every decision, the funnel, and the export they belong to.

curated.parquet                                the rows that are left
curated.run/report.json                        the funnel, figures of each column, timing
curated.run/recipe.yaml                        the recipe with every default written out
curated.run/03_pass_rate_filter/decisions.arrow    row_id, step, reason of each dropped row
"""

from __future__ import annotations

import json
import shutil
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from ..operators import Change, DataError
from .commit import Commit
from .export import run_folder, writer
from .frame import Frame, surviving_rows
from .plan import Plan
from .progress import Progress
from .recipe import Recipe, Step
from .source import conform
from .summary import merge

DECISIONS = pa.schema([("row_id", pa.string()), ("step", pa.string()), ("reason", pa.string())])


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
    rows_in: int
    rows_out: int
    added: int
    dropped: int
    seconds: float
    steps: tuple[StepReport, ...]

    def to_json(self) -> str:
        """The report as JSON."""
        steps = [step._asdict() for step in self.steps]
        return json.dumps({**self._asdict(), "steps": steps}, indent=2)

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


def decisions(frame: Frame, change: Change, step: str, first_row: int = 0) -> pa.Table:
    """A row for each row of `frame` that `change` drops: row_id, step, reason.

    The id is the response's, else the prompt's, else `row N` of the dataset, counted from 1;
    `first_row` rows of it come before the frame's source.
    """
    if change.reasons is None or change.reasons.null_count == len(change.reasons):
        return DECISIONS.empty_table()
    dropped = pa.array(np.flatnonzero(np.asarray(change.reasons.is_valid())))
    names = [name for name in ("response_id", "prompt_id") if name in frame.column_names]
    numbers = pa.array(frame.source_rows + first_row + 1).cast(pa.string()).take(dropped)
    ids = [frame.select([name])[name].take(dropped).combine_chunks() for name in names]
    row_id = pc.coalesce(*ids, pc.binary_join_element_wise("row", numbers, " "))
    steps = pa.array([step] * len(dropped), pa.string())
    return pa.table([row_id, steps, change.reasons.take(dropped)], schema=DECISIONS)


def write_books(
    recipe: Recipe, plan: Plan, cached: Mapping[str, bool], progress: Progress
) -> Report:
    """Replay the commits of every chunk into the export, the decisions and the report."""
    final = run_folder(recipe.head.export_path)
    folder = final.with_name(f".{final.name}")
    shutil.rmtree(folder, ignore_errors=True)  # What a killed run may have left.
    try:
        export = folder / f"export{recipe.head.export_path.suffix}"
        lines = _write_rows(plan, folder, export, progress)
        report = _report(recipe, plan, lines, cached)
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe.resolved(), sort_keys=False))
        (folder / "report.json").write_text(report.to_json() + "\n")
        shutil.rmtree(final, ignore_errors=True)
        folder.replace(final)
        (final / export.name).replace(recipe.head.export_path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report


class _Line:
    """Sums of one step over the chunks."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.rows_in = self.rows_out = self.added = 0
        self.dropped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.seconds = 0.0
        self.summaries: list[Any] = []

    def add(self, commit: Commit) -> None:
        change = commit.change
        rows = surviving_rows(change, commit.rows_in)
        out = commit.rows_in if rows is None else len(rows)
        dropped = 0
        if change.reasons is not None:
            counts = change.reasons.drop_null().value_counts().to_pylist()
            self.dropped.update({c["values"]: c["counts"] for c in counts})
            dropped = sum(c["counts"] for c in counts)
        self.rows_in += commit.rows_in
        self.rows_out += out
        self.added += out + dropped - commit.rows_in
        self.notes.update(change.notes)
        self.seconds += commit.seconds
        self.summaries.append(commit.summary)

    def report(self, cached: bool) -> StepReport:
        return StepReport(
            self.step.name,
            self.rows_in,
            self.rows_out,
            self.added,
            dict(self.dropped.most_common()),
            round(self.seconds, 3),
            cached,
            dict(self.notes),
            merge(self.summaries),
        )


class _Closed(NamedTuple):
    """A chunk at the end: its rows, and what each step did to it."""

    table: pa.Table
    commits: tuple[Commit, ...]
    decisions: tuple[pa.Table, ...]


def _write_rows(plan: Plan, folder: Path, export: Path, progress: Progress) -> list[_Line]:
    lines = [_Line(step) for step in plan.steps]
    chunks = range(len(plan.source.rows))
    schemas = [plan.frame_before(chunk, None).schema for chunk in chunks]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    with ExitStack() as stack:
        write = stack.enter_context(writer(export, schema))
        books = [
            stack.enter_context(writer(folder / step.label / "decisions.arrow", DECISIONS))
            for step in plan.steps
        ]
        advance = stack.enter_context(progress.task("export", sum(plan.source.rows)))
        for chunk, closed in enumerate(_ahead(plan)):
            write(conform(closed.table, schema))
            for line, book, commit, dropped in zip(
                lines, books, closed.commits, closed.decisions, strict=True
            ):
                line.add(commit)
                book(dropped)
            advance(plan.source.rows[chunk])
    return lines


def _ahead(plan: Plan) -> Iterator[_Closed]:
    """Closed chunks in order; the next one is gathered while this one is written."""
    first_rows = np.cumsum([0, *plan.source.rows[:-1]])
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[_Closed]] = deque()
        for chunk, first_row in enumerate(first_rows):
            waiting.append(pool.submit(_close, plan, chunk, int(first_row)))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        yield waiting.popleft().result()


def _close(plan: Plan, chunk: int, first_row: int) -> _Closed:
    commits, dropped = [], []
    frame = Frame.of(plan.source.chunk(chunk))
    for step, (before, commit) in zip(plan.steps, plan.replay(chunk, plan.steps), strict=True):
        commits.append(commit)
        dropped.append(decisions(before, commit.change, step.name, first_row))
        frame = before.after(commit.change)
    return _Closed(frame.table(), tuple(commits), tuple(dropped))


def _report(recipe: Recipe, plan: Plan, lines: list[_Line], cached: Mapping[str, bool]) -> Report:
    steps = tuple(line.report(cached[line.step.name]) for line in lines)
    return Report(
        project_name=recipe.head.project_name,
        recipe=str(recipe.path),
        dataset_path=str(recipe.head.dataset_path),
        export_path=str(recipe.head.export_path),
        key=plan.keys[-1],
        rows_in=steps[0].rows_in,
        rows_out=steps[-1].rows_out,
        added=sum(step.added for step in steps),
        dropped=sum(sum(step.dropped.values()) for step in steps),
        seconds=round(sum(step.seconds for step in steps), 3),
        steps=steps,
    )
