"""`rejuice cache`: what runs have saved, and what of it can go."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..dataset.remote import AnyPath, RemotePath, to_path
from .options import CacheDir, Debug

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..console import Console
    from ..engine.cache import CacheEntry, Removal


# --- Print what a cache holds ---------------------------------------------------------

_UNITS = ("B", "kB", "MB", "GB", "TB")
_DAY_S = 86_400
_KINDS = {"source": "dataset", "step": "results", "samples": "samples, scores"}
_USER_CACHES = {
    "scores.answers": "answers of judges",
    "tools.answers": "observations of tools",
}
"""What the user's cache folder holds, by name."""


def show_cache(entries: Sequence[CacheEntry], console: Console) -> None:
    """Print a table with a line for each folder, and what all of them take."""
    from rich.table import Table
    from rich.text import Text

    from ..console import print_lines, widen_log

    widen_log(console)
    table = Table(box=None, pad_edge=False)
    for heading in ("operator", "holds", "key"):
        table.add_column(heading, no_wrap=True)
    for heading in ("size", "chunks", "rows", "last used"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("used by", overflow="fold")
    now = time.time()
    for entry in entries:
        table.add_row(
            Text(entry.operator),
            _KINDS[entry.kind],
            entry.key,
            size_text(entry.size),
            f"{entry.chunks:,}",
            "" if entry.rows is None else f"{entry.rows:,}",
            _ago(now - entry.used),
            Text(", ".join(_short(path) for path in entry.exports)),
        )
    console.print(table)
    print_lines([total_line(entries)], console)


def total_line(entries: Iterable[CacheEntry]) -> str:
    """What folders take together, and what of it cost something."""
    every = list(entries)
    samples = sum(entry.size for entry in every if entry.kind == "samples")
    size = size_text(sum(entry.size for entry in every))
    folders = "1 folder" if len(every) == 1 else f"{len(every):,} folders"
    return f"{folders}, {size}, of which samples and scores {size_text(samples)}"


def user_cache_lines(folder: Path) -> Iterator[str]:
    """Yield what the user's cache folder holds, a line for each cache."""
    for name, content in _USER_CACHES.items():
        if (folder / name).is_dir():
            size = size_text(sum(file.stat().st_size for file in (folder / name).iterdir()))
            yield f"{folder / name}: {size}, {content}, for all recipes"


def size_text(size: float) -> str:
    """A number of bytes, such as `1.2 GB`."""
    unit = 0
    while size >= 1_000 and unit < len(_UNITS) - 1:
        size, unit = size / 1_000, unit + 1
    digits = 0 if unit == 0 or size >= 100 else 1
    return f"{size:.{digits}f} {_UNITS[unit]}"


def _ago(seconds: float) -> str:
    if seconds >= _DAY_S:
        return f"{seconds / _DAY_S:.0f} d ago"
    if seconds >= 3_600:
        return f"{seconds / 3_600:.0f} h ago"
    return f"{max(seconds, 0) / 60:.0f} min ago"


def _short(path: AnyPath) -> str:
    if isinstance(path, RemotePath):
        return str(path)
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


# --- `rejuice cache`: what runs have saved, and what of it can go ---------------------

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
    from ...operators.disk import in_user_cache
    from ..console import Console
    from ..engine.cache import cache_entries

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
    from ..engine.cache import select_unused

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
    from ..engine.cache import select_matching

    cache = _cache(path, cache_dir)
    select = partial(select_matching, cache, wanted, samples=samples)
    _remove(cache, select, dry_run=dry_run, again=True)


def _remove(cache: Path, select: Callable[[], Removal], *, dry_run: bool, again: bool) -> None:
    from ..console import Console
    from ..engine.cache import remove

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
    """The cache folder that is meant."""
    from ...operators import RecipeError

    cache = _given(path, cache_dir)
    if isinstance(cache, RemotePath):
        found = f"{cache} is in an object store, where no lock keeps runs from using it"
        raise RecipeError(found, "remove its folders by the tools of the store")
    return cache


def _given(path: AnyPath | None, cache_dir: AnyPath | None) -> AnyPath:
    """The cache folder that is meant, wherever it is."""
    from ...operators import RecipeError
    from ..dataset.files import run_folder
    from ..dataset.write import default_cache
    from ..engine.cache import is_cache
    from ..recipe.recipe import RECIPES, load_without_code

    if cache_dir is not None:
        return cache_dir
    if path is None:
        raise RecipeError("no cache is given", "give a recipe, an export or a cache folder")
    if isinstance(path, Path) and path.suffix in RECIPES:
        path = load_without_code(path).head.export_path
    if isinstance(path, Path) and is_cache(path):
        return path
    # Not where its report says: that may be anybody's.
    return default_cache(run_folder(path))
