"""`rejuice preview`: what training on a recipe would get, from the responses of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..options import AllowEmpty, Debug, overrides_of
from .trust import Trust, check_recipe_trusted, open_trusted
from .whatif import OfRun, RecipeOrRun


def preview(
    context: typer.Context,
    recipe: RecipeOrRun,
    run: OfRun = None,
    prompts: Annotated[
        int,
        typer.Option("--prompts", min=2, help="How many prompts to sample where nothing was run."),
    ] = 64,
    allow_empty: AllowEmpty = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Show what training on a recipe would get: advantages, signal, gradient mass, refill, cost.

    The responses are those of a finished run, of training those of the last step; nothing is
    sampled or judged again. Of a recipe that has not been run, a sample of prompts is run first.
    """
    from ...operators import EmptyResultError
    from ..analysis.cost import step_cost
    from ..analysis.open_compared import has_run, trained
    from ..analysis.preview import preview as previewed
    from ..analysis.replay import replay, whole
    from ..analysis.show_preview import show_preview
    from ..console import Console

    overrides = overrides_of(context)
    sampled = run is None and not has_run(recipe)
    if sampled:
        check_recipe_trusted(recipe, trust)
        run = _sampled(recipe, overrides, prompts)
    stored, wanted = open_trusted(recipe, run, overrides, None, trust)
    train, console = wanted.head.train, Console()
    for one in trained(stored, wanted):
        found = previewed(replay(*whole(one), one.fit(wanted)))
        judged = one.kind == "judgements"  # They cost what sampling the answers costs, too.
        cost = None if train is None or judged else step_cost(found, train, stored, one)
        title = f"{stored.path}, {one.name}" if stored.kind != "export" else str(stored.path)
        show_preview(title, found, train, cost, console, sampled=sampled)
        if not found.kept and not allow_empty:
            raise EmptyResultError(
                f"no row is left of {found.responses:,} responses",
                "change the filters, or accept it with --allow_empty",
            )


def _sampled(recipe: Path, overrides: dict[str, str], prompts: int) -> Path:
    """The export of a recipe that was run on some of its prompts."""
    from ..analysis.sample import run_on_some
    from ..console import Console
    from ..engine.progress import Progress
    from ..recipe.read import load

    progress = Progress(Console(stderr=True))
    loaded = load(recipe, overrides)
    report = run_on_some(loaded, overrides, prompts, progress=progress, warn=lambda _: None)
    return Path(report.export_path)
