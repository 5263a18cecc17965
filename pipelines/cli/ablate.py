"""`rejuice ablate`: what each step of a recipe is worth, over the responses of a finished run."""

from __future__ import annotations

import typer

from ..options import Debug, TrainingSteps, overrides_of, range_of_steps
from .trust import Trust, open_trusted
from .whatif import OfRun, RecipeOrRun


def ablate(
    context: typer.Context,
    recipe: RecipeOrRun,
    run: OfRun = None,
    steps: TrainingSteps = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Leave out each step after sampling, and each reward weight, one at a time, and compare.

    Nothing is sampled or judged again. Of a training run, the figures are of all its steps.
    """
    from ..analysis.ablate import ablations, measured
    from ..analysis.open_compared import answers
    from ..analysis.progress import tracked
    from ..analysis.show_comparison import show_ablations
    from ..console import Console

    stored, other = open_trusted(recipe, run, overrides_of(context), range_of_steps(steps), trust)
    sets = answers(stored)
    total = len(ablations(sets[0].fit(other)))
    show_ablations(list(tracked(measured(sets, other), total)), Console())
