"""Run a recipe from Python: `from rejuice.pipelines import Recipe, run`."""

from __future__ import annotations

import re
import sys
import warnings
import webbrowser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from weakref import finalize

import numpy as np
import pyarrow as pa
from typing_extensions import Self

from ..operators import DataError, EmptyResultError, RecipeError, RejuiceError
from ..operators.columns import numbers
from .dataset.files import run_folder
from .dataset.remote import AnyPath, to_path
from .dataset.write import exported_rows, writer
from .engine.finished_export import describe
from .engine.progress import Progress
from .engine.report import DECISIONS, Report, check_not_empty, read_decisions
from .engine.run import RunEngine
from .engine.run import run as run_to_export
from .notebook import (
    bars,
    beside,
    histogram,
    listed_names,
    paragraph,
    quiet_libraries,
)
from .recipe.recipe import Recipe, dump

if TYPE_CHECKING:
    from .analysis.stored import Stored

_TABLE = "the table"


class Page(NamedTuple):
    """The page of a run: an HTML file.

    A notebook shows it, if it is in or below the working directory: others are not served to it.

    Attributes:
        path: of the file.
    """

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"the page of the run is {self.path}"

    def _repr_html_(self) -> str:
        here, path = Path.cwd(), self.path.resolve()
        if not path.is_relative_to(here):
            return paragraph(repr(self))
        address = quote(path.relative_to(here).as_posix())
        return f'{paragraph(repr(self))}<iframe src="{address}" width="100%" height="700"></iframe>'


class Explanation(str):
    """A text that is shown as it is, line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _ResultRows(NamedTuple):
    table: pa.Table
    decisions: pa.Table
    report: Report


class Result(_ResultRows):
    """What a run made: a tuple of three. A notebook shows its funnel, with plots.

    A run without an `export_path`, or of a table, keeps its files in a temporary folder for as long
    as its result exists. They are removed with it, and at the end of the process.

    Attributes:
        table: the rows that are left; as they are read back, if the export is JSON lines.
        decisions: row_id, step and reason (all strings) of each row that was dropped.
        report: the funnel: rows, reasons, seconds and figures of each step.
    """

    _finished: _FinishedRun | None

    def __new__(
        cls,
        table: pa.Table,
        decisions: pa.Table,
        report: Report,
        finished: _FinishedRun | None = None,
    ) -> Self:
        self = super().__new__(cls, table, decisions, report)
        self._finished = finished
        return self

    def view(self, output: Path | str | None = None, *, show: bool = True) -> Page:
        """Write the page of `rejuice view`: one HTML file with figures, plots and every row.

        Args:
            output: the file; None: that of the export with .html, or `rejuice.html` in the working
                directory where there is no export, or it is in an object store.
            show: open it in a browser, if Python runs in a terminal. A notebook shows what this
                returns instead.

        Raises:
            DataError: the file exists and is no page of a run, or the run is no longer on file.
        """
        from .analysis.page.build import build_page
        from .analysis.page.rows import page_of

        finished, stored = self._stored()
        page = Page(finished.page if output is None else Path(output))
        path = stored.path if finished.has_export else None
        with finished.errors_in_python():
            build_page(page_of([(path, stored)]), page.path)
        if show and sys.stdout.isatty():
            webbrowser.open(page.path.resolve().as_uri())
        return page

    def explain(self, row: str | int, *, everything: bool = False) -> Explanation:
        """Return what each step did to a row and why, as `rejuice explain` prints it.

        Args:
            row: a `response_id` or `prompt_id`, or the beginning of one; `"row 4"`, or 4, is the
                fourth row of the dataset.
            everything: all rows, values and lines, whatever their length.

        Raises:
            DataError: no row has that id, or the run is no longer on file.
        """
        from .analysis.explain import explain_row

        finished, stored = self._stored()
        name = row if isinstance(row, str) else f"row {row}"
        with finished.errors_in_python():
            text = explain_row(stored, name, everything=everything, in_python=True)
        return Explanation(finished.in_python(text))

    def _stored(self) -> tuple[_FinishedRun, Stored]:
        from .analysis.stored import stored_run

        if self._finished is None:
            found = "this is a copy of a result, which has only the rows"
            raise DataError(found, "use the result that `run` returned")
        export = self._finished.export
        return self._finished, stored_run(export, export, self.report, self._finished.recipe)

    def __repr__(self) -> str:
        rows, columns = self.table.shape
        table = f"table: {rows:,} rows, {columns} columns"
        return f"{self.report}\n{table}; decisions: {self.decisions.num_rows:,} rows"

    def _repr_html_(self) -> str:
        report, rows = self.report, f"{self.table.num_rows:,} rows"
        funnel = report.funnel_table()
        columns = paragraph(f"table: {rows} of {listed_names(self.table.column_names)}")
        return f"{funnel}{beside(*_plots(self.table, report))}{columns}"

    def __getstate__(self) -> None:
        """Leave the run out of copies: its files belong to this result."""


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
            beside the export; without an `export_path` it is kept as long as the result.
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
    quiet_libraries()
    recipe = recipe.offline()
    finished = _on_disk(recipe)
    with finished.errors_in_python(remove=True):
        report = run_to_export(
            finished.recipe,
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
        result = _result(finished, report)
    if not allow_empty:
        _check_not_empty(recipe, result)
    return result


class _TemporaryFolder:
    """A folder that is removed with this object, and at the end of the process."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="rejuice-"))
        self.remove = finalize(self, rmtree, self.path, ignore_errors=True)


class _FinishedRun(NamedTuple):
    recipe: Recipe  # as it ran
    table: str | None  # the file of its table
    has_export: bool  # that the user wants
    folder: _TemporaryFolder | None  # with what is temporary of it

    @property
    def export(self) -> AnyPath:
        return self.recipe.head.export_path

    @property
    def page(self) -> Path:
        """Where its page is written by default."""
        if self.has_export and isinstance(self.export, Path):
            return self.export.with_suffix(".html")
        return Path("rejuice.html")

    def in_python(self, text: str) -> str:
        text = text if self.table is None else text.replace(self.table, _TABLE)
        return text if self.has_export else text.replace(str(self.export), "the result's table")

    @contextmanager
    def errors_in_python(self, *, remove: bool = False) -> Iterator[None]:
        """Keep names of temporary files out of errors, and name options as they are here."""
        try:
            yield
        except BaseException as error:
            if remove and self.folder is not None:
                self.folder.remove()  # Now: a notebook keeps its last error, and its frames.
            if not isinstance(error, RejuiceError):
                raise
            found, where = self.in_python(error.found), self.in_python(error.where)
            right = self.in_python(error.right).replace("--output", "output")
            raise type(error)(found, right, where=where) from error.__cause__


def _on_disk(recipe: Recipe) -> _FinishedRun:
    """A recipe with paths for what it has none of, its table or an export, in a folder."""
    if recipe.table is None and recipe.has_export:
        return _FinishedRun(recipe, None, True, None)
    folder = _TemporaryFolder()
    head: dict[str, Any] = {}
    if recipe.table is not None:
        head |= {"dataset_path": folder.path / "table.arrow", "dataset": None, "suffixes": ()}
        # One dictionary for all chunks, as an Arrow file needs it.
        with writer(head["dataset_path"], recipe.table.schema) as write:
            write(recipe.table.unify_dictionaries())
    if not recipe.has_export:
        head["export_path"] = folder.path / "export.arrow"
    # Without the table, which workers would be sent with each chunk.
    located = recipe.replace(head=recipe.head.model_copy(update=head), table=None)
    table = None if recipe.table is None else str(located.head.dataset_spec)
    return _FinishedRun(located, table, recipe.has_export, folder)


def _check_not_empty(recipe: Recipe, result: Result) -> None:
    try:
        check_not_empty(recipe, result.report)
    except EmptyResultError as error:
        right = re.sub(r"--(\w+) (\w+),", r"\1='\2',", error.right)
        right = right.replace("--allow_empty", "allow_empty=True")
        empty = EmptyRunError(error.found, right, where=error.where)
        empty.result = result
        raise empty from None


def _result(finished: _FinishedRun, report: Report) -> Result:
    recipe, export = finished.recipe, finished.export
    run = run_folder(export)
    # In the order of the steps; their files may be removed.
    decisions = [read_decisions(run / step.label) for step in recipe.steps]
    named = {} if finished.table is None else {"dataset_path": _TABLE}
    if not finished.has_export:
        named["export_path"] = ""
    if named:
        described = Report.read(export).model_copy(update=named)
        describe(export, described, dump(recipe.absolute() | named))
    if isinstance(run, Path):
        recipe = recipe.replace(path=run / "recipe.yaml")  # The page shows it.
    return Result(
        exported_rows(export, mapped=False),
        pa.concat_tables([DECISIONS.empty_table(), *decisions]),
        report.model_copy(update=named),
        finished._replace(recipe=recipe),
    )


_BINS = 20


def _plots(table: pa.Table, report: Report) -> Iterator[str]:
    yield report.rows_plot()
    names = table.column_names
    title, values = "", np.zeros(0)
    with suppress(DataError):  # Columns of these names may be the user's, and hold something else.
        if "reward" in names:
            title, values = "reward of rows left", numbers(table, "reward")
        elif {"pass_rate", "prompt_id"} <= {*names}:
            rates = table.group_by("prompt_id").aggregate([("pass_rate", "min")])
            title, values = "pass rate of prompts left", numbers(rates, "pass_rate_min")
    values = values[np.isfinite(values)]
    if len(values):
        counts, edges = np.histogram(values, _BINS)
        yield histogram(title, edges.tolist(), counts.tolist())
    written = [step.columns["verdict"] for step in report.steps if "verdict" in step.columns]
    if verdicts := written[-1].get("counts") if written else None:
        yield bars("verdicts", Counter(verdicts).most_common())
