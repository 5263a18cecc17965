"""Run a recipe from Python: `from rejuice.pipelines import Recipe, run`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa

from ..operators import EmptyResultError, RecipeError, RejuiceError
from .dataset.files import run_folder, write_arrow
from .dataset.remote import AnyPath, to_path
from .dataset.write import exported_rows
from .engine.finished_export import describe
from .engine.progress import Progress
from .engine.report import DECISIONS, Report, check_not_empty, read_decisions
from .engine.run import RunEngine
from .engine.run import run as run_to_export
from .recipe.recipe import Recipe, dump

_TABLE = "the table"


class Result(NamedTuple):
    """What a run made.

    Attributes:
        table: the rows that are left; as they are read back, if the export is JSON lines.
        decisions: row_id, step and reason (all strings) of each row that was dropped.
        report: the funnel: rows, reasons, seconds and figures of each step.
    """

    table: pa.Table
    decisions: pa.Table
    report: Report


class EmptyRunError(EmptyResultError):
    """A run has finished and left no row, or one of its steps has failed on every row.

    Attributes:
        result: what the run made all the same.
    """

    result: Result


def run(
    recipe: Recipe,
    *,
    overwrite: bool = False,
    retry_dropped: bool = False,
    allow_empty: bool = False,
    retry_missing: str | int | None = None,
    chunk_rows: int | None = None,
    cache: AnyPath | str | None = None,
    progress: bool = False,
    engine: RunEngine | None = None,
    ray_address: str | None = None,
) -> Result:
    """Run a recipe by the engine of `rejuice run`: with its checks, its messages and its rows.

    Args:
        recipe: what to run.
        overwrite: replace an export that another recipe made.
        retry_dropped: sample prompts again that an earlier run gave up on.
        allow_empty: return the result even if no row is left, or a step has failed on every row.
        retry_missing: name or number of a step of which failures that may pass are computed again.
        chunk_rows: rows per chunk, about, 1 or more; None: as `rejuice run` chooses.
        cache: the folder in which finished chunks and samples are kept. By default `.rejuice`
            beside the export; without an `export_path` nothing is kept after the run.
        progress: show a progress bar.
        engine: `local` or `ray`; None: as the recipe's `executor_type` says.
        ray_address: as `--ray`; a process that is connected to Ray uses that connection.

    Warns:
        UserWarning: a key has an effect in `dj-process` only; a step changes groups before
            something is computed of them, see docs/group-statistics.md; or nothing has failed in
            the step to retry.

    Raises:
        EmptyRunError: the result is empty; everything was written, and the error has the result.
        RejuiceError: bad recipe, bad data, a failing operator or a full disk, in one line.
    """
    if chunk_rows is not None and chunk_rows < 1:
        raise RecipeError(f"chunk_rows is {chunk_rows}", "give 1 or more, or None")
    with _on_disk(recipe) as located:
        try:
            report = run_to_export(
                located,
                overwrite=overwrite,
                retry_dropped=retry_dropped,
                retry_missing=retry_missing,
                chunk_rows=chunk_rows,
                cache=None if cache is None else to_path(cache),
                progress=Progress(quiet=not progress),
                warn=lambda line: warnings.warn(line, stacklevel=5),
                engine=engine,
                ray_address=ray_address,
            )
        except RejuiceError as error:
            table = None if recipe.table is None else str(located.head.dataset_spec)
            raise _about_the_table(error, table) from error.__cause__
        result = _result(recipe, located, report)
    if not allow_empty:
        _check_not_empty(recipe, result)
    return result


@contextmanager
def _on_disk(recipe: Recipe) -> Iterator[Recipe]:
    """The recipe with paths for what it has none of: its table, or an export that nobody keeps."""
    if recipe.table is None and recipe.has_export:
        yield recipe
        return
    with TemporaryDirectory(prefix="rejuice-") as folder:
        head: dict[str, Any] = {}
        if recipe.table is not None:
            head |= {"dataset_path": Path(folder) / "table.arrow", "dataset": None, "suffixes": ()}
            # One dictionary for all chunks, as an Arrow file needs it.
            write_arrow(head["dataset_path"], recipe.table.unify_dictionaries())
        if not recipe.has_export:
            head["export_path"] = Path(folder) / "export.arrow"
        # Without the table, which workers would be sent with each chunk.
        yield recipe.replace(head=recipe.head.model_copy(update=head), table=None)


def _check_not_empty(recipe: Recipe, result: Result) -> None:
    try:
        check_not_empty(recipe, result.report)
    except EmptyResultError as error:
        right = re.sub(r"--(\w+) (\w+),", r"\1='\2',", error.right)
        right = right.replace("--allow_empty", "allow_empty=True")
        empty = EmptyRunError(error.found, right, where=error.where)
        empty.result = result
        raise empty from None


def _result(recipe: Recipe, located: Recipe, report: Report) -> Result:
    export = located.head.export_path
    folder = run_folder(export)
    # In the order of the steps; their files may be removed.
    decisions = [read_decisions(folder / step.label) for step in located.steps]
    named = {} if recipe.table is None else {"dataset_path": _TABLE}
    if not recipe.has_export:
        named["export_path"] = ""
    report = report.model_copy(update=named)
    if recipe.table is not None and recipe.has_export:
        described = Report.read(export).model_copy(update=named)
        describe(export, described, dump(located.absolute() | named))
    return Result(
        table=exported_rows(export, mapped=False),
        decisions=pa.concat_tables([DECISIONS.empty_table(), *decisions]),
        report=report,
    )


def _about_the_table(error: RejuiceError, path: str | None) -> RejuiceError:
    """Return the error, without the name of a temporary file."""
    if path is None:
        return error
    found, where = (text.replace(path, _TABLE) for text in (error.found, error.where))
    return type(error)(found, error.right, where=where)
