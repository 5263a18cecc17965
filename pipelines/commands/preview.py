"""`rejuice preview`: what training on a recipe would get, from the responses of a run."""

from __future__ import annotations

import typer

from ..options import AllowEmpty, Debug, RecipePath, overrides_of
from .whatif import OfRun


def preview(
    context: typer.Context,
    recipe: RecipePath,
    run: OfRun = None,
    allow_empty: AllowEmpty = False,
    debug: Debug = False,
) -> None:
    """Show what training on a recipe would get: advantages, signal, gradient mass, refill, cost.

    The responses are those of a finished run; nothing is sampled or judged again.
    """
    from rich.console import Console

    from ...operators import EmptyResultError
    from ..compare.preview import preview as previewed
    from ..compare.replay import one_set, replay, whole
    from ..recipe.read import load
    from ..show.preview import show_preview
    from ..stored.open import open_stored

    stored = open_stored(run or recipe)
    one = one_set(stored)
    wanted = load(recipe, overrides_of(context))
    found = previewed(replay(*whole(one), one.fit(wanted)))
    show_preview(stored.path, found, wanted.head.train, Console())
    if not found.kept and not allow_empty:
        raise EmptyResultError(
            f"no row is left of {found.responses:,} responses",
            "change the filters, or accept it with --allow_empty",
        )
