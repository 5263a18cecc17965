"""The end of a run: its export, and beside it the audit log: every decision, and the funnel.

curated.parquet                                the rows that are left; or, of a folder,
curated/part-00000.parquet                     files of whole groups, written side by side
curated.run/report.json                        the funnel, figures of each column, timing
curated.run/recipe.yaml                        the recipe with every default and absolute paths
curated.run/03_pass_rate_filter/decisions.parquet  row_id, step, reason of each dropped row
curated.run/manifest.json                      written last: the run is finished, see `finished`
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....operators import Groups, OperatorError, RecipeError
from ...apply.audit_log import AuditLog
from ...apply.frame import Frame
from ...apply.report import Report
from ...dataset.files import write_file
from ...dataset.remote import AnyPath, RemotePath
from ...dataset.write import (
    PART,
    PART_SUFFIX,
    is_folder,
    run_folder,
    unfinished_run_folder,
    write_parts_list,
)
from ...dataset.written import mark_written, written_columns
from ...recipe.head import Head
from ...recipe.recipe import Recipe
from ...recipe.yaml_text import YAMLError, dump, parse
from ..plan import Plan
from ..progress import Progress
from ..workers.local import Workers
from .finished import read_manifest, recipe_mark, sign
from .parts import ExportPart, cut_parts, one_part
from .place import MADE_BY, RunPlace, placed
from .write_part import WrittenPart, write_part


def write_export(
    plan: Plan,
    cached: Mapping[str, bool],
    retried: Mapping[str, int],
    chunk_rows: int,
    workers: Workers,
    progress: Progress,
) -> Report:
    """Apply the commits of every chunk, and write the export, the decisions and the report.

    Args:
        plan: of the run.
        cached: by step, whether all of it was found.
        retried: by step, how many rows that had failed were computed again.
        chunk_rows: rows per chunk.
        workers: of the run: they write the parts of an export that is a folder.
        progress: where progress is shown.
    """
    recipe = plan.recipe
    with placed(recipe.head.export_path) as place:
        in_store = isinstance(place.folder, RemotePath)
        if in_store:  # Nothing is renamed there: until the end, this says whose files they are.
            write_file(place.folder / MADE_BY, recipe_mark(recipe))
        log = _write_parts(plan, place, workers, progress)
        report = Report.of(
            [
                log.step(step.name).report(
                    cached=cached[step.name], retried=retried.get(step.name, 0)
                )
                for step in plan.steps
            ],
            **report_head(plan, chunk_rows),
        )
        write_file(place.folder / "recipe.yaml", dump(recipe.absolute()))
        report.write(place.folder)
        if in_store:
            (place.folder / MADE_BY).unlink(missing_ok=True)
    sign(plan)
    return report


def report_head(plan: Plan, chunk_rows: int) -> dict[str, Any]:
    """The fields of a report that describe the run, without its figures."""
    recipe = plan.recipe
    return {
        "project_name": recipe.head.project_name,
        "recipe": str(recipe.path.resolve() if recipe.from_file else recipe.path),
        "dataset_path": str(recipe.head.dataset_spec),
        "export_path": str(recipe.head.export_path),
        "key": plan.keys[-1],
        "cache": str(plan.cache.resolve()),
        "chunk_rows": chunk_rows,
    }


def check_may_replace_export(recipe: Recipe, export_path: AnyPath) -> None:
    """Refuse to replace a file that this recipe did not make.

    Raises:
        RecipeError: there is such a file, or nothing says what made it.
    """
    # A run that was killed at its very end may have left a complete folder under the first name.
    folders = (run_folder(export_path), unfinished_run_folder(export_path))
    if export_path.exists() and not any(_made_by(recipe, folder) for folder in folders):
        raise RecipeError(
            f"export_path {export_path} exists", "give another --export_path, or --overwrite"
        )


def _made_by(recipe: Recipe, folder: AnyPath) -> bool:
    manifest = read_manifest(folder)
    if manifest is not None:
        return manifest.made_by == recipe_mark(recipe)
    if (folder / MADE_BY).exists():
        return (folder / MADE_BY).read_text() == recipe_mark(recipe)
    # The manifest is damaged, or the run was killed before its end, or is of version 0.4.
    report, kept = folder / "report.json", folder / "recipe.yaml"
    if not report.exists():
        return False
    file = report if recipe.from_file else kept
    try:
        if recipe.from_file:
            made_by = json.loads(file.read_bytes())["recipe"]
            return Path(made_by).resolve() == recipe.path.resolve()
        found = parse(file.read_text("utf-8"))
        # A dataset that is a table has another temporary file in each run.
        same = {**recipe.absolute(), "dataset_path": found["dataset_path"]}
        return bool(found == parse(dump(same)))
    except (ValueError, KeyError, TypeError, YAMLError, FileNotFoundError):
        raise RecipeError(
            f"{file} is damaged: it does not name the recipe of the export beside it",
            "give another --export_path, or --overwrite",
        ) from None


def _write_parts(plan: Plan, place: RunPlace, workers: Workers, progress: Progress) -> AuditLog:
    """Write the export and the decisions, side by side where it is in parts."""
    export = plan.recipe.head.export_path
    parts, schema = _outline(plan)
    rows = [0] * len(parts)
    logs = dict[int, AuditLog]()
    with progress.task("export", sum(plan.source.rows)) as advance:

        def count(chunk: int) -> None:
            advance(plan.source.rows[chunk])

        if not is_folder(export):
            (part,) = parts
            logs = write_part(plan, place, schema, part, count).logs
        else:
            work = partial(_write_numbered, plan, place, schema, parts)
            for number, written in workers.map((), work, len(parts)):
                rows[number] = written.rows
                logs |= written.logs
                for chunk in written.logs:
                    count(chunk)
            names = [part.name_of(PART, PART_SUFFIX) for part in parts]
            write_parts_list(place.export, dict(zip(names, rows, strict=True)))
    totals = AuditLog()
    for chunk in sorted(logs):  # Not as they finish: sums of floats depend on the order.
        totals.merge(logs[chunk])
    return totals


def _write_numbered(
    plan: Plan, place: RunPlace, schema: pa.Schema, parts: Sequence[ExportPart], number: int
) -> WrittenPart:
    return write_part(plan, place, schema, parts[number])


def _outline(plan: Plan) -> tuple[list[ExportPart], pa.Schema]:
    """The parts of the export, and its schema, from the commits; of the rows, only ids are read."""
    head = plan.recipe.head
    in_parts = is_folder(head.export_path)
    chunks = range(len(plan.source.rows))
    written, schemas = set(written_columns(head.dataset_spec)), list[pa.Schema]()
    sizes = []
    for chunk in chunks:
        frame = plan.frame_before(chunk, None)
        written.update(frame.written_columns)
        schemas.append(frame.schema)
        if in_parts:
            sizes.append(_group_sizes(frame))
    parts = cut_parts(sizes, head.max_rows_per_file) if in_parts else [one_part(len(chunks))]
    return parts, mark_written(_schema(head, schemas), written)


def _group_sizes(frame: Frame) -> NDArray[np.int64]:
    """Rows of each group; where there are no groups, each row is one."""
    if "prompt_id" not in frame.column_names:
        return np.ones(frame.num_rows, np.int64)
    return Groups.of(frame.select(["prompt_id"])).sizes_G


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
