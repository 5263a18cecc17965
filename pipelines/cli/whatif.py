"""`rejuice whatif`: other settings over the responses of a finished run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..dataset.remote import to_path
from ..options import Debug, TrainingSteps, overrides_of, range_of_steps
from .trust import Trust, open_trusted

RecipeOrRun = Annotated[
    Path,
    typer.Argument(
        metavar="RECIPE",
        parser=to_path,
        help="A recipe in YAML, or a stored run, whose own recipe it is then.",
    ),
]
OfRun = Annotated[
    Path | None,
    typer.Option(
        "--run",
        help="The export, or the folder of a training run or step; by default that of RECIPE.",
    ),
]


def whatif(
    context: typer.Context,
    recipe: RecipeOrRun,
    run: OfRun = None,
    steps: TrainingSteps = None,
    rows: Annotated[
        Literal["gained", "lost", "flipped", "silenced", "woken", "unknown"] | None,
        typer.Option("--rows", help="Print the rows of a figure, as JSON lines."),
    ] = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Apply a recipe, or other fields of it, to the responses of a finished run, and compare.

    Nothing is sampled or judged again:
    `rejuice whatif recipe.yaml --reward_sum_mapper.weights.format 0.3`.
    """
    from ..analysis.progress import tracked
    from ..analysis.show_comparison import show_rows, show_whatif
    from ..analysis.whatif import changes_of, whatif_of_sets
    from ..console import Console

    stored, other = open_trusted(recipe, run, overrides_of(context), range_of_steps(steps), trust)
    found = list(tracked(whatif_of_sets(stored, other), len(stored.sets)))
    if rows is not None:
        show_rows(found, rows)
    else:
        command = f"rejuice {shlex.join(sys.argv[1:])}"
        show_whatif(stored.path, changes_of(stored, other), found, command, Console())
