"""The page of whatever was given: exports, runs of training, training steps, or several of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..open import open_stored
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
    named = [_named(page, str(path)) for path, page in zip(paths, pages, strict=True)]
    return PageData(
        " | ".join(page.title for page in named),
        tuple(each for page in named for each in page.sets),
        curves=tuple(each for page in named for each in page.curves),
        signs=tuple(each for page in named for each in page.signs),
        recipe="\n".join(page.recipe for page in named),
    )


def _named(page: PageData, path: str) -> PageData:
    """One of several pages, with its path wherever more than one may be seen."""

    def name(own: str) -> str:
        return f"{path} {own}".rstrip()

    return page._replace(
        sets=tuple(each._replace(name=name(each.name), run=path) for each in page.sets),
        curves=tuple(each._replace(run=path) for each in page.curves),
        signs=tuple({**sign, "set": name(sign["set"])} for sign in page.signs),
        recipe=f"# {path}\n{page.recipe}",
    )
