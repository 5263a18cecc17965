"""The end of a run: its export, and beside it the audit log: every decision, and the funnel.

curated.parquet                                the rows that are left
curated.run/report.json                        the funnel, figures of each column, timing
curated.run/recipe.yaml                        the recipe with every default and absolute paths
curated.run/03_pass_rate_filter/decisions.arrow    row_id, step, reason of each dropped row
"""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import OperatorError, RecipeError
from ..apply.audit_log import DECISIONS, AuditLog
from ..apply.report import Report
from ..apply.steps import apply_steps
from ..data_juicer.running.helper_columns import filled
from ..dataset.schemas import conform
from ..dataset.write import run_folder, unfinished_run_folder, writer
from ..dataset.written import mark_written, written_columns
from ..recipe.head import Head
from ..recipe.recipe import Recipe
from ..recipe.yaml_text import dump, parse
from .plan import Plan
from .progress import Progress


def write_export(
    plan: Plan,
    cached: Mapping[str, bool],
    retried: Mapping[str, int],
    chunk_rows: int,
    progress: Progress,
) -> Report:
    """Apply the commits of every chunk, and write the export, the decisions and the report.

    Args:
        plan: of the run.
        cached: by step, whether all of it was found.
        retried: by step, how many rows that had failed were computed again.
        chunk_rows: rows per chunk.
        progress: where progress is shown.
    """
    recipe = plan.recipe
    final = run_folder(recipe.head.export_path)
    folder = unfinished_run_folder(recipe.head.export_path)
    shutil.rmtree(folder, ignore_errors=True)  # What a killed run may have left.
    try:
        export = folder / f"export{recipe.head.export_path.suffix}"
        log = _write_rows(plan, folder, export, progress)
        report = Report.of(
            [
                log.step(step.name).report(
                    cached=cached[step.name], retried=retried.get(step.name, 0)
                )
                for step in plan.steps
            ],
            project_name=recipe.head.project_name,
            recipe=str(recipe.path.resolve() if recipe.from_file else recipe.path),
            dataset_path=str(recipe.head.dataset_spec),
            export_path=str(recipe.head.export_path),
            key=plan.keys[-1],
            cache=str(plan.cache.resolve()),
            chunk_rows=chunk_rows,
        )
        (folder / "recipe.yaml").write_text(dump(recipe.absolute()))
        report.write(folder)
        shutil.rmtree(final, ignore_errors=True)
        folder.replace(final)
        (final / export.name).replace(recipe.head.export_path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def check_may_replace_export(recipe: Recipe, export_path: Path) -> None:
    """Refuse to replace a file that this recipe did not make.

    Raises:
        RecipeError: there is such a file.
    """
    # A run that was killed at its very end may have left a complete folder under the first name.
    folders = (run_folder(export_path), unfinished_run_folder(export_path))
    if export_path.exists() and not any(_made_by(recipe, folder) for folder in folders):
        raise RecipeError(
            f"export_path {export_path} exists", "give another --export_path, or --overwrite"
        )


def _made_by(recipe: Recipe, folder: Path) -> bool:
    if not (folder / "report.json").exists():
        return False
    if not recipe.from_file:  # A name is no identity: two notebooks may use the same one.
        found = parse((folder / "recipe.yaml").read_text("utf-8"))
        # A dataset that is a table has another temporary file in each run.
        same = {**recipe.absolute(), "dataset_path": found["dataset_path"]}
        return bool(found == parse(dump(same)))
    made_by = json.loads((folder / "report.json").read_text("utf-8"))["recipe"]
    return Path(made_by).resolve() == recipe.path.resolve()


class _Finished(NamedTuple):
    """A chunk after the last step, and the log of all steps on it."""

    table: pa.Table
    log: AuditLog


def _write_rows(plan: Plan, folder: Path, export: Path, progress: Progress) -> AuditLog:
    totals = AuditLog()
    chunks = range(len(plan.source.rows))
    written, schemas = set(written_columns(plan.recipe.head.dataset_spec)), list[pa.Schema]()
    for chunk in chunks:
        frame = plan.frame_before(chunk, None)
        written.update(frame.written_columns)
        schemas.append(frame.schema)
    schema = mark_written(_schema(plan.recipe.head, schemas), written)
    with ExitStack() as stack:
        write = stack.enter_context(writer(export, schema))
        write_decisions = {
            step.name: stack.enter_context(
                writer(folder / step.label / "decisions.arrow", DECISIONS)
            )
            for step in plan.steps
        }
        advance = stack.enter_context(progress.task("export", sum(plan.source.rows)))
        for chunk, finished in enumerate(_prefetched(plan)):
            write(filled(conform(finished.table, schema)))
            for name, write_step in write_decisions.items():
                write_step(finished.log.step(name).take_decisions())
            totals.merge(finished.log)
            advance(plan.source.rows[chunk])
    return totals


def _schema(head: Head, chunks: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of the export, from those of the chunks."""
    # A chunk that lost its last row early lacks columns of later steps: the others give the order.
    fullest = sorted(chunks, key=len, reverse=True)
    try:
        schema = pa.unify_schemas(fullest, promote_options="permissive")
    except pa.ArrowTypeError as error:
        found = f"a step wrote a column in two types: {error}"
        raise OperatorError(found, "let it write one type always") from None
    return pa.schema([schema.field(name) for name in head.exported(schema.names)])


def _prefetched(plan: Plan) -> Iterator[_Finished]:
    """Finished chunks in order; the next one is gathered while this one is written."""
    first_rows = np.cumsum([0, *plan.source.rows[:-1]])
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[_Finished]] = deque()
        for chunk, first_row in enumerate(first_rows):
            waiting.append(pool.submit(_finish, plan, chunk, int(first_row)))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        yield waiting.popleft().result()


def _finish(plan: Plan, chunk: int, first_row: int) -> _Finished:
    log = AuditLog()
    frame = apply_steps(
        plan.steps,
        plan.source_frame(chunk),
        run=plan.committed(chunk),
        log=log,
        first_row=first_row,
    )
    return _Finished(frame.select(plan.recipe.head.exported(frame.column_names)), log)
