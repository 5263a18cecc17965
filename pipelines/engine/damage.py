"""What is damaged in the cache counts as missing: it is removed, and computed again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..dataset.checked import DamagedError
from ..dataset.files import remove_file
from ..dataset.remote import AnyPath
from .commit import RetriesGoneError
from .kept.folder import ChunkLock, is_finished, is_kept

T = TypeVar("T")


def undamaged(first: Callable[[], T], again: Callable[[], T], warn: Callable[[str], object]) -> T:
    """What `first` returns or, each time that it finds a damaged file, what `again` returns.

    Each damaged file costs one pass over the work that was done before it, in which the commits
    are loaded, and not computed: what is removed may be a chunk of the source, or what a later
    commit links to, so the work is planned again. Damage is rare, and passes are at most as many as
    files are damaged.

    Args:
        first: some work on the cache, which goes on where it was when it is done once more.
        again: the same work, as it begins after a file was removed.
        warn: called with a line for each file.

    Raises:
        DamagedError: a file is damaged once more, after it was written again.
    """
    removed, work = set[AnyPath](), first
    while True:
        try:
            return work()
        except DamagedError as error:
            path = error.path
            if path is None or path in removed:
                raise
            removed.add(path)
            if isinstance(error, RetriesGoneError):
                warn(error.found)
            elif is_kept(path):
                with ChunkLock(path), suppress(DamagedError):
                    is_finished(path)  # What is still good of it stays, and the rest is named.
            else:
                remove_file(path)
                warn(f"{error.found}: it was removed, and what was in it is computed again")
            work = again
