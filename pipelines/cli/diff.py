"""`rejuice diff`: two recipes in words, and two runs on data."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..dataset.remote import to_path
from ..options import Debug, TrainingSteps, range_of_steps

RowKind = Literal["gained", "lost", "flipped", "silenced", "woken", "prompts", "new"]


def diff(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            parser=to_path,
            help="A recipe, an export, the folder of a training run, or a step of it.",
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="B", parser=to_path, help="Another one.")],
    steps: TrainingSteps = None,
    rows: Annotated[
        RowKind | None,
        typer.Option("--rows", help="Print what a figure is made of, as JSON lines."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Compare two recipes in words and, where both have been run, two runs on data.

    Two steps of one training run show why the reward rose or fell from one to the other:
    `rejuice diff RUN/steps/000038 RUN/steps/000040`.
    """
    from ..analysis.diff import diff_of
    from ..analysis.show_diff import show_diff, show_diff_rows
    from ..console import Console

    found = diff_of(a, b, range_of_steps(steps))
    if rows is not None:
        show_diff_rows(found, rows)
    else:
        show_diff(found, f"rejuice {shlex.join(sys.argv[1:])}", Console())
