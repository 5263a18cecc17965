"""The end of a run: its export, and beside it the audit log: every decision, and the funnel.

curated.parquet                                the rows that are left; or, of a folder,
curated/part-00000.parquet                     files of whole groups, written side by side
curated.run/report.json                        the funnel, figures of each column, timing
curated.run/recipe.yaml                        the recipe with every default and absolute paths
curated.run/03_pass_rate_filter/decisions.parquet  row_id, step, reason of each dropped row
curated.run/manifest.json                      written last: the run is finished, see `finished`
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....operators import RecipeError
from ....operators.disk import NotAFileError
from ....operators.json_text import parse_json
from ...dataset.files import check_is_folder, read_file, write_file
from ...dataset.remote import AnyPath, to_path
from ...dataset.run_folder import (
    PART,
    PART_SUFFIX,
    is_folder,
    run_folder,
    unfinished_made_by,
    unfinished_run_folder,
)
from ...dataset.write import write_parts_list
from ...recipe.recipe import Recipe
from ...recipe.yaml_text import YAMLError, dump, parse
from ..audit_log import AuditLog
from ..plan import Plan
from ..progress import Progress
from ..report import Report
from ..workers.local import Workers
from .finished import read_manifest, recipe_mark, sign
from .outline import outline
from .parts import ExportPart
from .place import RunPlace, placed
from .sole_writer import Hold
from .write_part import WrittenPart, write_part


def write_export(
    plan: Plan,
    hold: Hold,
    computed: Collection[str],
    retried: Mapping[str, int],
    chunk_rows: int,
    workers: Workers,
    progress: Progress,
) -> Report:
    """Apply the commits of every chunk, and write the export, the decisions and the report.

    Args:
        plan: of the run.
        hold: of its export.
        computed: names of the steps of which something was computed, and not found.
        retried: by step, how many rows that had failed were computed again.
        chunk_rows: rows per chunk.
        workers: of the run: they write the parts of an export that is a folder.
        progress: where progress is shown.

    Raises:
        RejuiceError: in a store, another run has taken the export.
    """
    recipe = plan.recipe
    with placed(hold, recipe_mark(recipe)) as place:
        log = _write_parts(plan, place, workers, progress)
        report = Report.of(
            [
                log.step(step.name).report(
                    cached=step.name not in computed, retried=retried.get(step.name, 0)
                )
                for step in plan.steps
            ],
            **report_head(plan, chunk_rows),
        )
        hold.check()
        write_file(place.folder / "recipe.yaml", dump(recipe.absolute()))
        report.write(place.folder)
    sign(plan, hold)
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


def check_run_folder_is_free(export_path: AnyPath) -> None:
    """Refuse to replace the report and the decisions of an export with another suffix.

    Raises:
        RecipeError: there is such an export.
        DataError: something else than a folder is in the place of the run folder.
    """
    for folder in (run_folder(export_path), unfinished_run_folder(export_path)):
        check_is_folder(folder)
        try:
            report = parse_json(read_file(folder / "report.json"))
            other = export_path.with_suffix(to_path(report["export_path"]).suffix)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # There is none, or nothing can be known of it.
        if other != export_path and other.exists():
            found = f"the report of {other} is in {run_folder(export_path)}, where that of"
            right = f"give an export_path with another name, or remove {other}"
            raise RecipeError(f"{found} {export_path} would be", right)


def check_may_replace_export(recipe: Recipe, export_path: AnyPath) -> None:
    """Refuse to replace a file that this recipe did not make.

    Raises:
        RecipeError: there is such a file, or nothing says what made it.
    """
    # A run that was killed at its very end may have left a complete folder under the first name.
    folders = (run_folder(export_path), unfinished_run_folder(export_path))
    if not export_path.exists() or unfinished_made_by(export_path) == recipe_mark(recipe):
        return
    if not any(_made_by(recipe, folder) for folder in folders):
        raise RecipeError(
            f"export_path {export_path} exists", "give another --export_path, or --overwrite"
        )


def _made_by(recipe: Recipe, folder: AnyPath) -> bool:
    manifest = read_manifest(folder)
    if manifest is not None:
        return manifest.made_by == recipe_mark(recipe)
    # The manifest is damaged, or the run was killed before its end, or is of version 0.4.
    report, kept = folder / "report.json", folder / "recipe.yaml"
    if not report.exists():
        return False
    file = report if recipe.from_file else kept
    try:
        if recipe.from_file:
            made_by = parse_json(read_file(file))["recipe"]
            return Path(made_by).resolve() == recipe.path.resolve()
        found = parse(read_file(file).decode())
        # A dataset that is a table has another temporary file in each run.
        same = {**recipe.absolute(), "dataset_path": found["dataset_path"]}
        return bool(found == parse(dump(same)))
    except (ValueError, KeyError, TypeError, YAMLError, FileNotFoundError, NotAFileError):
        raise RecipeError(
            f"{file} is damaged: it does not name the recipe of the export beside it",
            "give another --export_path, or --overwrite",
        ) from None


def _write_parts(plan: Plan, place: RunPlace, workers: Workers, progress: Progress) -> AuditLog:
    """Write the export and the decisions, side by side where it is in parts."""
    export = plan.recipe.head.export_path
    parts, schema = outline(plan, workers)
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
            place.hold.check()
            write_parts_list(place.export, dict(zip(names, rows, strict=True)))
    totals = AuditLog()
    for chunk in sorted(logs):  # Not as they finish: sums of floats depend on the order.
        totals.merge(logs[chunk])
    return totals


def _write_numbered(
    plan: Plan, place: RunPlace, schema: pa.Schema, parts: Sequence[ExportPart], number: int
) -> WrittenPart:
    return write_part(plan, place, schema, parts[number])
