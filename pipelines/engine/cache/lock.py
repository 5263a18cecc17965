"""Who uses a cache: runs share it, and removing results needs it alone.

.rejuice/lock                  held by all that run, shared; alone while failures are retried
.rejuice/runs/5d1c….export     the export of a run; its run folder says which results it uses. The
                               name is a hash of the content

An object store knows no locks. Runs share a cache there all the same: what they write under one
name is right, whoever wrote it. Do not retry failures while another run uses it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import xxhash

from ....operators import RejuiceError
from ...filesystem.files import write_file
from ...filesystem.remote import AnyPath, RemotePath, to_path

RUNS = "runs"
_LOCK = "lock"


@contextmanager
def use_cache(
    cache: AnyPath, export: AnyPath, *, alone: bool = False
) -> Iterator[Callable[[], None]]:
    """Keep the results of a cache for as long as a run uses it, and name the run's export in it.

    Args:
        cache: the cache.
        export: of the run.
        alone: hold it alone at first, as for taking apart what other runs use.

    Yields:
        What lets other runs share the cache from then on.

    Raises:
        RejuiceError: it was to be held alone, and another run uses it.
    """
    runs = cache / RUNS
    runs.mkdir(parents=True, exist_ok=True)
    with _locked(cache, alone=alone) as share:
        content = str(export.resolve()).encode()
        named = runs / _name_of(content)
        if not isinstance(named, RemotePath) and named.exists() and named.read_bytes() == content:
            os.utime(named)  # When it was last used.
        else:
            write_file(named, content)
        yield share


def named_exports(cache: Path) -> dict[Path, AnyPath | None]:
    """The exports that are named in a cache on disk, by the files that do; None: it is damaged."""
    found = dict[Path, AnyPath | None]()
    for file in (cache / RUNS).glob("*.export"):
        content = file.read_bytes()
        whole = file.name == _name_of(content)
        found[file] = to_path(content.decode()) if whole else None
    return found


def _name_of(content: bytes) -> str:
    return f"{xxhash.xxh3_64_hexdigest(content)}.export"


@contextmanager
def sole_user(cache: AnyPath) -> Iterator[None]:
    """Hold a cache alone.

    Raises:
        RejuiceError: a run uses it.
    """
    with _locked(cache, alone=True):
        yield


@contextmanager
def _locked(cache: AnyPath, *, alone: bool) -> Iterator[Callable[[], None]]:
    if isinstance(cache, RemotePath):
        yield lambda: None
        return
    # Not FileLock, which knows no lock that several hold. It ends with the process.
    with (cache / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except BlockingIOError:
            raise RejuiceError(f"a run is using {cache}", "wait until it has ended") from None
        yield partial(fcntl.flock, file, fcntl.LOCK_SH)
