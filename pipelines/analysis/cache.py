"""Print what a cache holds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..dataset.remote import AnyPath, RemotePath
from ..engine.cache.entries import CacheEntry

_WIDTH = 140
_UNITS = ("B", "kB", "MB", "GB", "TB")
_DAY_S = 86_400
_KINDS = {"source": "dataset", "step": "results", "samples": "samples, scores"}
_USER_CACHES = {
    "scores.answers": "answers of judges",
    "scores.sqlite": "answers of judges, of an earlier version",
    "tools.answers": "observations of tools",
    "tools.sqlite": "observations of tools, of an earlier version",
    "code-*.parsed": "parsed source files",
}
"""What the user's cache folder holds, by patterns of names."""


def show_cache(entries: Sequence[CacheEntry], console: Console) -> None:
    """Print a table with a line for each folder, and what all of them take."""
    if not console.is_terminal:
        console.width = _WIDTH
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
    console.print(Text(total_line(entries)), soft_wrap=True)


def total_line(entries: Iterable[CacheEntry]) -> str:
    """What folders take together, and what of it cost something."""
    every = list(entries)
    samples = sum(entry.size for entry in every if entry.kind == "samples")
    size = size_text(sum(entry.size for entry in every))
    folders = "1 folder" if len(every) == 1 else f"{len(every):,} folders"
    return f"{folders}, {size}, of which samples and scores {size_text(samples)}"


def user_cache_lines(folder: Path) -> Iterator[str]:
    """What the user's cache folder holds, a line for each cache."""
    for pattern, content in _USER_CACHES.items():
        for path in sorted(folder.glob(pattern)):
            files = path.iterdir() if path.is_dir() else [path]
            size = size_text(sum(file.stat().st_size for file in files))
            yield f"{path}: {size}, {content}, for all recipes"


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
