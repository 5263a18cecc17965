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
    from ..compare.ablate import ablations, measured
    from ..compare.open import answers
    from ..console import Console
    from ..show.comparison import show_ablations
    from ..show.progress import tracked

    stored, other = open_trusted(recipe, run, overrides_of(context), range_of_steps(steps), trust)
    sets = answers(stored)
    total = len(ablations(sets[0].fit(other)))
    show_ablations(list(tracked(measured(sets, other), total)), Console())
