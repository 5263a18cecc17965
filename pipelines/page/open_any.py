"""The page of whatever was given: exports, runs of training, training steps, or several of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..stored.open import open_stored
from .content import PageData
from .of_stored import page_of_stored


def page_of(paths: Sequence[Path], steps: range | None = None) -> PageData:
    """One page of one or more paths.

    Args:
        paths: exports, their run folders or recipes; runs of training, or steps of them.
        steps: of runs of training, the numbers of those to show.

    Raises:
        RejuiceError: nothing can be shown of a path.
    """
    pages = [page_of_stored(open_stored(path, steps=steps)) for path in paths]
    if len(pages) == 1:
        return pages[0]
    sets = [
        each._replace(name=" ".join(filter(None, (str(path), each.name))))
        for path, page in zip(paths, pages, strict=True)
        for each in page.sets
    ]
    return PageData(
        " | ".join(page.title for page in pages),
        tuple(sets),
        signs=tuple(
            {**sign, "set": " ".join(filter(None, (str(path), sign["set"])))}
            for path, page in zip(paths, pages, strict=True)
            for sign in page.signs
        ),
        points=max((page.points for page in pages), key=len),
        recipe="\n".join(f"# {p}\n{page.recipe}" for p, page in zip(paths, pages, strict=True)),
    )
