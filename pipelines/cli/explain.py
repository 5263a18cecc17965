"""`rejuice explain`: what a recipe does, and what became of a row of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..dataset.remote import to_path
from ..options import DatasetPath, Debug, ExportPath, TrainingSteps, overrides_of, range_of_steps
from .trust import Trust, check_recipe_trusted, check_run_trusted, trust_own

if TYPE_CHECKING:
    from ..analysis.stored import Stored
    from ..dataset.remote import AnyPath
    from ..recipe.recipe import Recipe


def explain(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            parser=to_path,
            help="A recipe in YAML; with ROW also an export, its run folder, the folder of a "
            "training run or one of its steps.",
        ),
    ],
    row: Annotated[
        str | None,
        typer.Argument(help="A response_id or prompt_id, or a prefix of one; or 'row 5'."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All rows, values and lines, whatever their length.")
    ] = False,
    steps: TrainingSteps = None,
    dataset_path: DatasetPath = None,
    export_path: ExportPath = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Explain what a recipe does; with ROW, what a finished run did to that row and why.

    Of a run its own recipe counts, as it ran, whatever became of the file since. Of operators of
    its own, what they wrote is shown; what they say about it, with --trust only.
    """
    from ..analysis.explain import explain_recipe, explain_row
    from ..analysis.open import RECIPES
    from ..analysis.open_compared import open_with_code
    from ..recipe.trust import read_to_show

    def trusted(stored: Stored) -> None:
        if trust:
            check_run_trusted(stored, path, trust)
        else:
            trust_own(stored, path)

    if trust:
        check_recipe_trusted(path, trust)
    given = {"dataset_path": dataset_path, "export_path": export_path}
    overrides = {k: v for k, v in given.items() if v is not None} | overrides_of(context)
    recipe = read_to_show(path, overrides) if path.suffix in RECIPES else None
    if row is None:
        recipe = recipe or open_with_code(path, None, trusted).read_recipe(overrides)
        typer.echo(explain_recipe(recipe), nl=False)
        return
    other: AnyPath = recipe.head.export_path if recipe and "export_path" in overrides else path
    stored = open_with_code(other, range_of_steps(steps), trusted)
    if recipe is not None:
        _warn_of_another(recipe, stored)
    typer.echo(explain_row(stored, row, everything=everything), nl=False)


def _warn_of_another(recipe: Recipe, stored: Stored) -> None:
    """Warn where the recipe that was given is not what ran."""
    from ..analysis.whatif import changed_fields

    if changed_fields(stored.read_recipe().steps, recipe.steps):
        found = f"{recipe.path} and the recipe of the run differ"
        typer.echo(f"rejuice: warning: {found}: this explains {stored.recipe}", err=True)
