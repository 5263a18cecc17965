"""`rejuice report`: what became of the rows of a finished run, in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...operators import EmptyResultError
from ..options import AllowEmpty, Debug, TrainingSteps, range_of_steps
from .stored_path import StoredPath

if TYPE_CHECKING:
    from ..analysis.stored import Stored
    from ..console import Console

show_more: list[Callable[[Stored, Console], None]] = []
"""What else is printed first: the package that trains adds the metrics of a run."""


def report(
    path: StoredPath,
    steps: TrainingSteps = None,
    allow_empty: AllowEmpty = False,
    debug: Debug = False,
) -> None:
    """Print the funnel of a finished run and why rewards are missing; metrics of training, too."""
    from ..analysis.open import open_stored
    from ..analysis.set_report import show_training
    from ..analysis.show_funnel import show_funnel
    from ..console import Console
    from ..dataset.run_folder import run_folder
    from ..engine.report import Report

    console = Console()
    if (run_folder(path) / "report.json").is_file():  # Whatever else of the run may be gone.
        found: Report | None = Report.read(path)
    else:
        stored = open_stored(path, steps=range_of_steps(steps))
        found = stored.report
    if found is not None:
        show_funnel(found, console, path)
        rows = found.rows_out
    else:
        for show in show_more:
            show(stored, console)
        rows = show_training(stored, console)
    if not rows and not allow_empty:
        raise EmptyResultError(
            f"no row is left in {path}", "change the filters, or accept it with --allow_empty"
        )
