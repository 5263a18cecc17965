"""Who uses a cache: runs share it, and removing results needs it alone.

.rejuice/lock                  held by all that run, shared; alone while failures are retried. It
                               names the process that had it alone last
.rejuice/runs/5d1c….export     the export of a run; its run folder says which results it uses. The
                               name is a hash of the content

An object store knows no locks. Runs share a cache there all the same: a commit that is there stays,
whoever wrote it. Do not retry failures while another run uses it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TextIO

import xxhash

from ....operators import RejuiceError
from ....operators.disk import NotAFileError, open_file, read_file
from ....operators.logs import logger
from ...dataset.files import check_is_folder, write_file
from ...dataset.remote import AnyPath, RemotePath, to_path

RUNS = "runs"
_LOCK = "lock"
_SILENT_S = 1.0
"""Whoever waits longer reports it."""
_log = logger(__name__)


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
    check_is_folder(runs)
    runs.mkdir(parents=True, exist_ok=True)
    with _locked(cache, alone=alone) as share:
        content = str(export.resolve()).encode()
        named = runs / _name_of(content)
        if not isinstance(named, RemotePath) and _content_of(named) == content:
            os.utime(named)  # When it was last used.
        else:
            write_file(named, content)
        yield share


def named_exports(cache: Path) -> dict[Path, AnyPath | None]:
    """The exports that are named in a cache on disk, by the files that do; None: it is damaged."""
    found = dict[Path, AnyPath | None]()
    for file in (cache / RUNS).glob("*.export"):
        content = _content_of(file)
        whole = content is not None and file.name == _name_of(content)
        found[file] = None
        if content is not None and whole:
            with suppress(RejuiceError):  # An address that is not taken any more.
                found[file] = to_path(content.decode())
    return found


def _content_of(file: Path) -> bytes | None:
    """What names an export; None: it is not there, or no file."""
    with suppress(FileNotFoundError, NotAFileError):
        return read_file(file)
    return None


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
    number = open_file(cache / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with open(number, "a", encoding="utf-8") as file:
        if not alone:
            _wait_to_share(file, cache)
        elif _try(file, fcntl.LOCK_EX):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()  # For those that wait.
        else:
            raise RejuiceError(f"a run is using {cache}", "wait until it has ended")
        yield partial(fcntl.flock, file, fcntl.LOCK_SH)


def _wait_to_share(file: TextIO, cache: Path) -> None:
    """Share the lock, however long a process has it alone; which one is logged after a while."""
    silent_until = time.monotonic() + _SILENT_S
    while not _try(file, fcntl.LOCK_SH):
        if time.monotonic() > silent_until:
            who = read_file(cache / _LOCK).decode("utf-8", "replace") or "another process"
            why = "which removes results or has failures retried"
            _log.warning("%s: waiting for %s, %s", cache, who, why)
            fcntl.flock(file, fcntl.LOCK_SH)
            return
        time.sleep(_SILENT_S / 20)


def _try(file: TextIO, kind: int) -> bool:
    """Get a lock unless another process has it; gives whether it is there now."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
