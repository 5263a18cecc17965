"""`rejuice preview`: what training on a recipe would get, from the responses of a run."""

from __future__ import annotations

import typer

from ..options import AllowEmpty, Debug, overrides_of
from .whatif import OfRun, RecipeOrRun


def preview(
    context: typer.Context,
    recipe: RecipeOrRun,
    run: OfRun = None,
    allow_empty: AllowEmpty = False,
    debug: Debug = False,
) -> None:
    """Show what training on a recipe would get: advantages, signal, gradient mass, refill, cost.

    The responses are those of a finished run, of training those of the last step; nothing is
    sampled or judged again.
    """
    from rich.console import Console

    from ...operators import EmptyResultError
    from ..compare.open import answers, opened
    from ..compare.preview import preview as previewed
    from ..compare.replay import replay, whole
    from ..show.preview import show_preview

    stored, wanted = opened(recipe, run, overrides_of(context))
    one = answers(stored)[-1]
    found = previewed(replay(*whole(one), one.fit(wanted)))
    title = f"{stored.path}, {one.name}" if stored.kind == "training run" else str(stored.path)
    show_preview(title, found, wanted.head.train, Console())
    if not found.kept and not allow_empty:
        raise EmptyResultError(
            f"no row is left of {found.responses:,} responses",
            "change the filters, or accept it with --allow_empty",
        )
