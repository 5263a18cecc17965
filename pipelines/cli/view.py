"""`rejuice view`: one HTML file of a run, to look at in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..dataset.remote import to_path
from ..options import TrainingSteps, range_of_steps


def view(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            parser=to_path,
            help="An export, its run folder or recipe, the folder of a training run, or one of "
            "its steps, such as RUN/steps/000012.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file to write; by default that of the run with .html."
        ),
    ] = None,
    steps: TrainingSteps = None,
    most_mb: Annotated[
        int, typer.Option("--most_mb", min=4, help="Leave texts out above this size.")
    ] = 39,
    no_open: Annotated[bool, typer.Option("--no_open", help="Do not open a browser.")] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="After an error, also print the traceback of its cause."),
    ] = False,
) -> None:
    """Write one HTML file to look at a run: figures, plots, and every sample with its path.

    The file loads nothing from a network. It is opened in the browser where stdout is a terminal.
    """
    from ..analysis.open import RECIPES, run_of
    from ..analysis.page.build import build_page
    from ..analysis.page.open_any import page_of
    from ..analysis.page.open_browser import open_browser

    first = run_of(paths[0]) if paths[0].suffix in RECIPES else paths[0]
    first = first.resolve() if first.is_dir() else first
    name = f"{first.name if first.is_dir() else first.stem}.html"
    # A page of a run in an object store is written to the working directory.
    target = output or (first.with_name(name) if isinstance(first, Path) else Path(name))
    summary = build_page(
        page_of(paths, range_of_steps(steps)), target, most_bytes=most_mb * 1_000_000
    )
    sets = f"{summary.sets} {'set' if summary.sets == 1 else 'sets'}"
    size = f"{summary.bytes / 1e6:.1f} MB"
    counted = f"{summary.rows:,} rows, {summary.groups:,} groups, {sets}; {size}"
    typer.echo(f"{target}: {counted}. Open it in a browser.")
    if sys.stdout.isatty() and not no_open:
        open_browser(target)
