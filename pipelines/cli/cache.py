"""`rejuice cache`: what runs have saved, and what of it can go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..dataset.remote import AnyPath, to_path
from .shared import CacheDir, Debug, Json

if TYPE_CHECKING:
    from ..engine.cache import CacheEntry, Removal


_KINDS = {"source": "dataset", "step": "results", "samples": "samples, scores"}
_USER_CACHES = {
    "scores.answers": "answers of judges",
    "tools.answers": "observations of tools",
}
"""What the user's cache folder holds, by name."""

app = typer.Typer(help="List and remove what runs have saved: finished chunks, samples, scores.")

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
    bool, typer.Option("--dry-run", help="Only show what would be removed; remove nothing.")
]


@app.command("ls")
def list_entries(
    path: CachePath = None, cache_dir: CacheDir = None, json: Json = False, debug: Debug = False
) -> None:
    """List what a cache holds: size, last use, and the exports of the finished runs that use it."""
    from rich.filesize import decimal

    from ...operators.disk import in_user_cache
    from ..console import as_json
    from ..engine.cache import cache_entries

    entries = cache_entries(_cache(path, cache_dir))
    if json:
        typer.echo(as_json(entries, pretty=True))
        return
    _show(entries)
    for folder in map(in_user_cache, _USER_CACHES):
        if folder.is_dir():
            size = decimal(sum(file.stat().st_size for file in folder.iterdir()))
            typer.echo(f"{folder}: {size}, {_USER_CACHES[folder.name]}, for all recipes")


@app.command()
def prune(
    path: CachePath = None,
    cache_dir: CacheDir = None,
    samples: Samples = False,
    dry_run: DryRun = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove what no finished run uses; samples and scores stay.

    A run that was stopped has not finished: its results are removed, and its samples stay.
    """
    from ..engine.cache import select_unused

    cache = _cache(path, cache_dir)
    select = partial(select_unused, cache, samples=samples)
    _remove(cache, select, dry_run=dry_run, again=False, json=json)


@app.command()
def rm(
    wanted: Annotated[
        str, typer.Argument(metavar="STEP|KEY", help="An operator's name, or how a key begins.")
    ],
    path: CachePath = None,
    cache_dir: CacheDir = None,
    samples: Samples = False,
    dry_run: DryRun = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove the results of a step, whoever uses them: the next run computes them again."""
    from ..engine.cache import select_matching

    cache = _cache(path, cache_dir)
    select = partial(select_matching, cache, wanted, samples=samples)
    _remove(cache, select, dry_run=dry_run, again=True, json=json)


def _remove(
    cache: Path, select: Callable[[], Removal], *, dry_run: bool, again: bool, json: bool
) -> None:
    from ..console import as_json
    from ..engine.cache import remove

    selected = select() if dry_run else remove(cache, select, again=again)
    if json:
        typer.echo(as_json(selected, pretty=True))
        return
    if not selected.removed:
        typer.echo(f"{cache}: nothing to remove")
    elif dry_run:
        _show(selected.removed)
    else:
        typer.echo(f"{cache}: removed {_total(selected.removed)}")
    if selected.kept:
        names = ", ".join(entry.path.name for entry in selected.kept)
        typer.echo(f"{names} stays: samples and scores cost something; --samples removes it")


def _show(entries: Sequence[CacheEntry]) -> None:
    from rich.filesize import decimal
    from rich.text import Text

    from ..console import Console, figures_table, path_text, widen_log

    console = Console()
    widen_log(console)
    table = figures_table("operator", "size", "chunks", "rows")
    for heading in ("holds", "key", "last used"):
        table.add_column(heading, no_wrap=True)
    table.add_column("used by", overflow="fold")
    for entry in entries:
        table.add_row(
            Text(entry.operator),
            decimal(entry.size),
            f"{entry.chunks:,}",
            "" if entry.rows is None else f"{entry.rows:,}",
            _KINDS[entry.kind],
            entry.key,
            f"{datetime.fromtimestamp(entry.used):%Y-%m-%d %H:%M}",
            Text(", ".join(path_text(path) for path in entry.exports)),
        )
    console.print(table)
    typer.echo(_total(entries))


def _total(entries: Iterable[CacheEntry]) -> str:
    from rich.filesize import decimal

    every = list(entries)
    samples = sum(entry.size for entry in every if entry.kind == "samples")
    size = decimal(sum(entry.size for entry in every))
    folders = "1 folder" if len(every) == 1 else f"{len(every):,} folders"
    return f"{folders}, {size}, of which samples and scores {decimal(samples)}"


def _cache(path: AnyPath | None, cache_dir: AnyPath | None) -> Path:
    from ...operators import RecipeError
    from ..dataset.files import run_folder
    from ..dataset.write import default_cache
    from ..engine.cache import is_cache
    from ..recipe.recipe import RECIPES, load_without_code

    if cache_dir is not None:
        cache = cache_dir
    elif path is None:
        raise RecipeError("no cache is given", "give a recipe, an export or a cache folder")
    else:
        if isinstance(path, Path) and path.suffix in RECIPES:
            path = load_without_code(path).head.export_path
        is_one = isinstance(path, Path) and is_cache(path)
        # Not where its report says: that may be anybody's.
        cache = path if is_one else default_cache(run_folder(path))
    if not isinstance(cache, Path):
        found = f"{cache} is in an object store, where no lock keeps runs from using it"
        raise RecipeError(found, "remove its folders by the tools of the store")
    return cache
