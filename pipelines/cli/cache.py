"""`rejuice cache`: what runs have saved, and what of it can go."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..dataset.remote import AnyPath, RemotePath, to_path
from ..options import CacheDir, Debug

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.cache.entries import Removal

app = typer.Typer(help="List and remove what runs have saved: finished chunks, samples, scores.")
"""The subcommand `cache`."""

CachePath = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH",
        parser=to_path,
        help="A recipe, an export, its run folder, or a cache folder.",
    ),
]
Samples = Annotated[
    bool,
    typer.Option("--samples", help="Remove samples and scores as well, which cost something."),
]
DryRun = Annotated[
    bool, typer.Option("--dry_run", help="Only show what would be removed; remove nothing.")
]


@app.command("ls")
def list_entries(path: CachePath = None, cache_dir: CacheDir = None, debug: Debug = False) -> None:
    """List what a cache holds: size, last use, and the exports of the finished runs that use it."""
    from ...operators.user_cache import in_user_cache
    from ..analysis.cache import show_cache, user_cache_lines
    from ..console import Console
    from ..engine.cache.entries import cache_entries

    show_cache(cache_entries(_cache(path, cache_dir)), Console())
    for line in user_cache_lines(in_user_cache("")):
        typer.echo(line)


@app.command()
def prune(
    path: CachePath = None,
    cache_dir: CacheDir = None,
    samples: Samples = False,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Remove what no finished run uses; samples and scores stay.

    A run that was stopped has not finished: its results are removed, and its samples stay.
    """
    from ..engine.cache.entries import select_unused

    cache = _cache(path, cache_dir)
    _remove(cache, partial(select_unused, cache, samples=samples), dry_run=dry_run, again=False)


@app.command()
def rm(
    wanted: Annotated[
        str, typer.Argument(metavar="STEP|KEY", help="An operator's name, or how a key begins.")
    ],
    path: CachePath = None,
    cache_dir: CacheDir = None,
    samples: Samples = False,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Remove the results of a step, whoever uses them: the next run computes them again."""
    from ..engine.cache.entries import select_matching

    cache = _cache(path, cache_dir)
    select = partial(select_matching, cache, wanted, samples=samples)
    _remove(cache, select, dry_run=dry_run, again=True)


def _remove(cache: Path, select: Callable[[], Removal], *, dry_run: bool, again: bool) -> None:
    from ..analysis.cache import show_cache, total_line
    from ..console import Console
    from ..engine.cache.entries import remove

    selected = select() if dry_run else remove(cache, select, again=again)
    if not selected.removed:
        typer.echo(f"{cache}: nothing to remove")
    elif dry_run:
        show_cache(selected.removed, Console())
    else:
        typer.echo(f"{cache}: removed {total_line(selected.removed)}")
    if selected.kept:
        names = ", ".join(entry.path.name for entry in selected.kept)
        typer.echo(f"{names} stays: samples and scores cost something; --samples removes it")


def _cache(path: AnyPath | None, cache_dir: AnyPath | None) -> Path:
    """The cache folder that is meant.

    Raises:
        RejuiceError: none is given, or it is in an object store.
    """
    from ...operators import RecipeError

    cache = _given(path, cache_dir)
    if isinstance(cache, RemotePath):
        found = f"{cache} is in an object store, where no lock keeps runs from using it"
        raise RecipeError(found, "remove its folders by the tools of the store")
    return cache


def _given(path: AnyPath | None, cache_dir: AnyPath | None) -> AnyPath:
    """The cache folder that is meant, wherever it is."""
    from ...operators import RecipeError
    from ..analysis.open import RECIPES
    from ..dataset.run_folder import run_folder
    from ..dataset.write import default_cache
    from ..engine.cache.entries import is_cache
    from ..engine.report import Report
    from ..recipe.read import load_without_code

    if cache_dir is not None:
        return cache_dir
    if path is None:
        raise RecipeError("no cache is given", "give a recipe, an export or a cache folder")
    if isinstance(path, Path) and path.suffix in RECIPES:
        path = load_without_code(path).head.export_path
    if (run_folder(path) / "report.json").is_file():
        return to_path(Report.read(path).cache)
    return path if isinstance(path, Path) and is_cache(path) else default_cache(path)
