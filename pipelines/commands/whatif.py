"""`rejuice whatif`: other settings over the responses of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..options import Debug, RecipePath, overrides_of

OfRun = Annotated[
    Path | None,
    typer.Option("--run", help="The export or run folder; by default that of RECIPE itself."),
]


def whatif(
    context: typer.Context,
    recipe: RecipePath,
    run: OfRun = None,
    rows: Annotated[
        Literal["gained", "lost", "flipped", "silenced", "woken", "unknown"] | None,
        typer.Option("--rows", help="Print the rows behind a figure, as JSON lines."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Apply a recipe, or other fields of it, to the responses of a finished run, and compare.

    Nothing is sampled or judged again:
    `rejuice whatif recipe.yaml --reward_sum_mapper.weights.format 0.3`.
    """
    from ..compare.replay import one_set
    from ..compare.whatif import changed_fields
    from ..compare.whatif import whatif as compare
    from ..recipe.read import load
    from ..show.comparison import comparison_lines, json_lines
    from ..stored.open import open_stored

    stored = open_stored(run or recipe)
    one = one_set(stored)
    other = load(recipe, overrides_of(context))
    found = compare(one, other)
    if rows is not None:
        for line in json_lines(found, rows):
            typer.echo(line)
        return
    for line in comparison_lines(stored.path, changed_fields(one.steps, one.fit(other)), found):
        typer.echo(line)
