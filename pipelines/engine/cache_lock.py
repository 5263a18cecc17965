"""Who uses a cache: runs share it, and removing results needs it alone.

.rejuice/lock                  held by all that run, shared
.rejuice/runs/5d1c….export     the export of a run; its run folder says which results it uses
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from ...operators import RejuiceError
from ..dataset.remote import AnyPath

RUNS = "runs"
_LOCK = "lock"


@contextmanager
def use_cache(cache: Path, export: AnyPath) -> Iterator[None]:
    """Keep the results of a cache for as long as a run uses it, and name the run's export in it."""
    runs = cache / RUNS
    runs.mkdir(parents=True, exist_ok=True)
    with _locked(cache, fcntl.LOCK_SH):
        text = str(export.resolve())
        named = runs / f"{xxhash.xxh3_64_hexdigest(text.encode())}.export"
        if named.exists():
            os.utime(named)  # When it was last used.
        else:
            named.write_text(text, "utf-8")
        yield


@contextmanager
def sole_user(cache: Path) -> Iterator[None]:
    """Hold a cache alone.

    Raises:
        RejuiceError: a run uses it.
    """
    try:
        with _locked(cache, fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield
    except BlockingIOError:
        raise RejuiceError(f"a run is using {cache}", "wait until it has ended") from None


@contextmanager
def _locked(cache: Path, kind: int) -> Iterator[None]:
    # Not FileLock, which knows no lock that several hold. It ends with the process.
    with (cache / _LOCK).open("a") as file:
        fcntl.flock(file, kind)
        yield
