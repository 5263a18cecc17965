"""`rejuice ablate`: what each step of a recipe is worth, over the responses of a finished run."""

from __future__ import annotations

import typer

from ..options import Debug, RecipePath, overrides_of
from .whatif import OfRun


def ablate(
    context: typer.Context, recipe: RecipePath, run: OfRun = None, debug: Debug = False
) -> None:
    """Leave out each step after sampling, and each reward weight, one at a time, and compare.

    Nothing is sampled or judged again.
    """
    from rich.console import Console
    from rich.progress import track

    from ..compare.ablate import ablations, measured
    from ..compare.replay import one_set, whole
    from ..recipe.read import load
    from ..show.comparison import show_ablations
    from ..stored.open import open_stored

    stored = one_set(open_stored(run or recipe))
    base, before = whole(stored)
    wanted = ablations(stored.fit(load(recipe, overrides_of(context))))
    console = Console(stderr=True)
    quiet = not console.is_terminal
    progress = track(wanted, "steps", console=console, transient=True, disable=quiet)
    show_ablations([measured(base, before, each) for each in progress], Console())
