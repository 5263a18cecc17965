"""Progress bars on stderr, where it is a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def tracked(items: Iterable[Item], total: int, what: str = "steps") -> Iterator[Item]:
    """The same items, with a progress bar.

    Args:
        items: one after the other.
        total: how many there are.
        what: is counted.
    """
    from rich.progress import track

    from ..console import Console

    console = Console(stderr=True)
    quiet = not console.is_terminal
    yield from track(items, what, total, console=console, transient=True, disable=quiet)
