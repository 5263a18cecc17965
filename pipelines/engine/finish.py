"""The books of a run: every decision, the funnel, and the export they belong to.

curated.parquet                                the rows that are left
curated.run/report.json                        the funnel, figures of each column, timing
curated.run/recipe.yaml                        the recipe with every default written out
curated.run/03_pass_rate_filter/decisions.arrow    row_id, step, reason of each dropped row
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from ...operators import Change, OperatorError
from ...operators.groups import Array
from ..apply.frame import Frame
from ..apply.report import Report, Tally
from ..apply.summary import summarise
from ..dataset.read import conform
from ..dataset.write import half_done, run_folder, writer
from .commit import Commit
from .plan import Plan
from .progress import Progress

DECISIONS = pa.schema([("row_id", pa.string()), ("step", pa.string()), ("reason", pa.string())])


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


def _row_numbers(source_rows: Array, first_row: int) -> pa.Array:
    rows = pa.array(source_rows + first_row + 1, mask=source_rows < 0).cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise("row", rows, " "), "a new row")


class Ledger:
    """The books of one step over parts of a dataset: its figures and its decisions."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.decisions: list[pa.Table] = [DECISIONS.empty_table()]

    def add(self, step: str, frame: Frame, change: Change, first_row: int) -> None:
        """Book what a step does to a part, before which the dataset has `first_row` rows."""
        self.tally.add(frame.num_rows, change, 0.0, summarise(change.columns))
        self.decisions.append(decisions(frame, change, step, first_row))

    def merge(self, other: Ledger) -> None:
        """Take over the books of another part."""
        self.tally.merge(other.tally)
        self.decisions += other.decisions


def write_books(
    plan: Plan, cached: Mapping[str, bool], chunk_rows: int, progress: Progress
) -> Report:
    """Replay the commits of every chunk into the export, the decisions and the report."""
    recipe = plan.recipe
    final = run_folder(recipe.head.export_path)
    folder = half_done(recipe.head.export_path)
    shutil.rmtree(folder, ignore_errors=True)  # What a killed run may have left.
    try:
        export = folder / f"export{recipe.head.export_path.suffix}"
        tallies = _write_rows(plan, folder, export, progress)
        report = Report.of(
            [
                tally.report(step.name, cached=cached[step.name])
                for step, tally in zip(plan.steps, tallies, strict=True)
            ],
            project_name=recipe.head.project_name,
            recipe=str(recipe.path),
            dataset_path=str(recipe.head.dataset_path),
            export_path=str(recipe.head.export_path),
            key=plan.keys[-1],
            cache=str(plan.cache),
            chunk_rows=chunk_rows,
        )
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe.resolved(), sort_keys=False))
        report.write(folder)
        shutil.rmtree(final, ignore_errors=True)
        folder.replace(final)
        (final / export.name).replace(recipe.head.export_path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report


class _Closed(NamedTuple):
    """A chunk at the end: its rows, and what each step did to it."""

    table: pa.Table
    commits: tuple[Commit, ...]
    decisions: tuple[pa.Table, ...]


def _write_rows(plan: Plan, folder: Path, export: Path, progress: Progress) -> list[Tally]:
    tallies = [Tally() for _ in plan.steps]
    chunks = range(len(plan.source.rows))
    schemas = [plan.frame_before(chunk, None).schema for chunk in chunks]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowTypeError as error:
        found = f"a step wrote a column in two types: {error}"
        raise OperatorError(found, "let it write one type always") from None
    with ExitStack() as stack:
        write = stack.enter_context(writer(export, schema))
        books = [
            stack.enter_context(writer(folder / step.label / "decisions.arrow", DECISIONS))
            for step in plan.steps
        ]
        advance = stack.enter_context(progress.task("export", sum(plan.source.rows)))
        for chunk, closed in enumerate(_ahead(plan)):
            write(conform(closed.table, schema))
            for tally, book, commit, dropped in zip(
                tallies, books, closed.commits, closed.decisions, strict=True
            ):
                tally.add(commit.rows_in, commit.change, commit.seconds, commit.summary)
                book(dropped)
            advance(plan.source.rows[chunk])
    return tallies


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
