"""The end of a run: write its policy and curves, and print a short table."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table
from rich.text import Text

from ...pipelines.console import Console
from ..report import metrics
from ..report.curves import draw
from ..report.watch import figures, left_out_lines, spell, validation_figures
from ..run import TrainingRun
from . import checkpoints


def finish(
    run: TrainingRun, *, quiet: bool = False, variables: Mapping[str, str] | None = None
) -> None:
    """Write the policy and the curves of a finished run.

    Raises:
        RejuiceError: the checkpoint cannot be merged.
        OSError: there is no space left.
    """
    step, policy = checkpoints.last(run.folder), run.folder / "policy"
    if step is not None:
        shutil.rmtree(policy, ignore_errors=True)  # It was written before a resume.
        with Console(stderr=True, quiet=quiet).status("writing the policy"):
            # It was made by this very run.
            checkpoints.export(run.folder, policy, step, variables=variables, trusted=True)
    draw([run.folder], run.folder / "curves.png")


def show(folder: Path, name: str, console: Console) -> None:
    """Print the first and last metrics of a run, its time, what it left out, and its files."""
    points = metrics.read(folder)
    trained = [point for point in points if point.trained]
    if not trained:
        return
    seconds = sum(point.seconds for point in trained)
    tokens = sum(point.generated for point in trained)
    _print(
        console,
        f"{name}: {len(trained)} steps in {spell(seconds)}, "
        f"{seconds / len(trained):.1f} s per step; {tokens:,.0f} tokens generated",
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for head in ("first", "last"):
        table.add_column(head, justify="right")
    for figure in (*validation_figures(points), *figures(points)):
        known = [point for point in points if figure.of(point) is not None]
        if known:
            table.add_row(Text(figure.name), *(Text(figure.text(known[at])) for at in (0, -1)))
    console.print(table)
    for line in left_out_lines(folder):
        _print(console, line)
    for what, path in _places(folder):
        _print(console, f"{what:<12}{path}")


def _places(folder: Path) -> list[tuple[str, Path]]:
    newest = checkpoints.last(folder)
    places: list[tuple[str, Path]] = [("policy", folder / "policy")]
    if newest is not None:
        places.append(("checkpoint", checkpoints.folder_of(folder, newest)))
    places += [
        ("curves", folder / "curves.png"),
        ("steps", folder / "steps"),
        ("verl's log", folder / "verl.log"),
    ]
    return [(what, path) for what, path in places if path.exists()]


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
