"""Who uses a cache: runs share it, and removing results needs it alone.

.rejuice/lock                  held by all that run, shared; alone while failures are retried
.rejuice/runs/5d1c….export     the export of a run; its run folder says which results it uses

An object store knows no locks. Runs share a cache there all the same: what they write under one
name is right, whoever wrote it. Do not retry failures while another run uses it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import xxhash

from ....operators import RejuiceError
from ...filesystem.files import write_file
from ...filesystem.remote import AnyPath, RemotePath

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
        text = str(export.resolve())
        named = runs / f"{xxhash.xxh3_64_hexdigest(text.encode())}.export"
        if isinstance(named, RemotePath) or not named.exists():
            write_file(named, text)
        else:
            os.utime(named)  # When it was last used.
        yield share


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
