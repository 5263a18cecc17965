"""What a cache holds, which runs use it, and how it is removed.

source-9af3…                       a dataset, cut into chunks
math_verify_mapper-52c0…           what a step did to each chunk
kept-policy_rollout_mapper-77b1…   what a resumable operator computed: samples and scores
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

import xxhash

from ...operators import DataError, RecipeError, RejuiceError
from ...operators.disk import NotAFileError, kind_of, open_file, read_file
from ...operators.logs import logger
from ..dataset.files import check_is_folder, remove_file, run_folder, write_file
from ..dataset.remote import AnyPath, RemotePath, to_path
from .commit import counts_retries, retry_count, write_retry_count
from .finished_export import read_manifest
from .report import Report

# --- Who uses a cache: runs share it, and removing results needs it alone -------------
# .rejuice/lock                  held by all that run, shared; alone while failures are retried. It
#                                names the process that had it alone last
# .rejuice/runs/5d1c….export     the export of a run; its run folder says which results it uses. The
#                                name is a hash of the content
#
# An object store knows no locks. Runs share a cache there all the same: a commit that is there
# stays, whoever wrote it. Do not retry failures while another run uses it.

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
    """Return what names an export; None: it is not there, or no file."""
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


# --- What a cache holds, which runs use it, and how it is removed ---------------------

CacheKind = Literal["source", "step", "samples"]
_FOLDER = re.compile(r"(?P<kept>kept-)?(?P<operator>\w+)-(?P<key>[0-9a-f]{16})")
_REMOVED = ".removed-"
_KEY_BYTES = 33
"""A row takes them in a file of keys: 32 digits and a line break."""


class CacheEntry(NamedTuple):
    """A folder of a cache."""

    path: Path  # the folder
    kind: CacheKind  # `samples` are what a resumable operator computed: they cost something
    operator: str  # its name; of a dataset, `source`
    key: str  # the key in the folder's name
    size: int  # bytes
    chunks: int  # finished ones
    rows: int | None  # of these; None: it is not known without reading them
    used: float  # when a run last wrote or used it, in seconds since the epoch
    exports: tuple[AnyPath, ...]  # of the finished runs that use it


class CacheUse(NamedTuple):
    """A run that uses a cache."""

    export: AnyPath  # its export
    # names of the folders that it uses; None: its manifest is gone or damaged
    folders: frozenset[str] | None
    used: float  # when it last ran, in seconds since the epoch


def is_cache(folder: Path) -> bool:
    """Return whether a folder is a cache, and not an export that is a folder."""
    # Earlier versions name no runs in it, but each run has a source.
    return (folder / RUNS).is_dir() or any(folder.glob("source-*"))


def cache_entries(cache: Path) -> list[CacheEntry]:
    """Return the folders of a cache: datasets, then steps, then samples, by name.

    Raises:
        DataError: there is no cache.
    """
    _check_exists(cache)
    runs = runs_of(cache)
    folders = [path for path in cache.iterdir() if kind_of(path) == "a folder"]
    found = [_entry(path, runs) for path in folders]
    order = ("source", "step", "samples")
    entries = [entry for entry in found if entry is not None]
    return sorted(entries, key=lambda entry: (order.index(entry.kind), entry.path.name))


def runs_of(cache: Path) -> list[CacheUse]:
    """The runs that use a cache and whose run folders exist, as far as their names are whole."""
    exports = dict[AnyPath, float]()
    for file, export in named_exports(cache).items():
        if export is not None:
            exports[export] = file.stat().st_mtime
    for folder in cache.resolve().parent.glob("*.run"):  # Earlier versions name none in the cache.
        if (report := _report(folder)) is not None and _is(report.cache, cache):
            beside = folder.with_suffix(Path(report.export_path).suffix)
            exports.setdefault(beside, folder.stat().st_mtime)
    runs = list[CacheUse]()
    for export, used in exports.items():
        if not run_folder(export).is_dir():
            continue
        manifest = read_manifest(run_folder(export))
        if manifest is None or _is(manifest.cache, cache):
            folders = None if manifest is None else frozenset(manifest.uses)
            runs.append(CacheUse(export, folders, used))
    return runs


class Removal(NamedTuple):
    """What of a cache is to be removed."""

    removed: Sequence[CacheEntry]  # these
    # samples and scores that stay, though they were named: they cost something
    kept: Sequence[CacheEntry] = ()


def select_unused(cache: Path, *, samples: bool) -> Removal:
    """Return what no finished run uses.

    Raises:
        DataError: there is no cache, or it is not known of each run which results it uses.
    """
    every = cache_entries(cache)
    _check_runs_are_known(cache)
    return Removal([e for e in every if not e.exports and (samples or e.kind != "samples")])


def select_matching(cache: Path, wanted: str, *, samples: bool) -> Removal:
    """What an operator's name, a folder's name or the beginning of a key names, see `matching`.

    Raises:
        DataError: there is no cache, or nothing in it is called so.
        RecipeError: only samples and scores are, and they are to stay.
    """
    found = matching(cache_entries(cache), wanted)
    kept = [] if samples else [entry for entry in found if entry.kind == "samples"]
    if len(kept) == len(found):
        names = ", ".join(entry.path.name for entry in kept)
        raise RecipeError(
            f"{names} has samples or scores, which cost something", "add --samples to remove it"
        )
    return Removal([entry for entry in found if entry not in kept], kept)


def _check_runs_are_known(cache: Path) -> None:
    for file, export in named_exports(cache).items():
        if export is None:
            raise DataError(
                f"{file} is damaged: it does not say which export uses results of {cache}",
                "run its recipe again, or remove the file if that export is not needed",
            )
    for run in runs_of(cache):
        if run.folders is None:
            folder = run_folder(run.export)
            raise DataError(
                f"{folder} does not say which results it uses: the run has not finished, or an "
                "earlier version made it",
                f"run its recipe again, or remove {folder}",
            )


def matching(entries: Sequence[CacheEntry], wanted: str) -> list[CacheEntry]:
    """Return the entries that an operator's name, a folder's name or the beginning of a key names.

    Raises:
        DataError: none.
    """
    found = [e for e in entries if wanted in (e.operator, e.path.name)]
    found = found or [e for e in entries if wanted and e.key.startswith(wanted)]
    if not found:
        names = ", ".join(sorted({entry.operator for entry in entries})) or "nothing"
        raise DataError(f"nothing in the cache is called '{wanted}'", f"it holds: {names}")
    return found


def remove(cache: Path, select: Callable[[], Removal], *, again: bool) -> Removal:
    """Remove folders of a cache, while no run uses it.

    Args:
        cache: the cache.
        select: gives what is removed. It is called while the cache is held: a run that ended before
            may use what no run used a moment ago.
        again: whether steps after these may have results, which must not be found for rows that are
            computed again and may differ.

    Returns:
        What was removed.

    Raises:
        RejuiceError: there is no cache, a run uses it, or what `select` raises.
    """
    _check_exists(cache)
    with sole_user(cache):
        _delete_renamed(cache)  # What a process that was killed has left.
        selected = select()
        # The last step first: should this process be killed, none is left without those before it.
        by_time = sorted(selected.removed, key=lambda entry: entry.path.stat().st_mtime)
        for entry in reversed(by_time):
            removed = cache / f"{_REMOVED}{entry.path.name}"
            if again and entry.kind != "source":
                # First: should this process be killed, what is left is found under no later key.
                write_retry_count(entry.path, retry_count(entry.path) + 1)
                for file in entry.path.iterdir():
                    if not counts_retries(file):
                        remove_file(file)
            else:
                entry.path.rename(removed)
        _delete_renamed(cache)
        for file, export in named_exports(cache).items():
            if export is not None and not run_folder(export).is_dir():
                file.unlink()
    return selected


def _check_exists(cache: Path) -> None:
    if not cache.is_dir():
        raise DataError(
            f"there is no cache in {cache}", "give the recipe of a run, or its cache folder"
        )


def _delete_renamed(cache: Path) -> None:
    """Delete what was renamed to be removed."""
    for folder in cache.glob(f"{_REMOVED}*"):
        if kind_of(folder) == "a folder":
            shutil.rmtree(folder)
        else:
            remove_file(folder)


def _entry(path: Path, runs: Sequence[CacheUse]) -> CacheEntry | None:
    """Return a folder of a cache; None where it is something else, or empty but for the retries."""
    match = _FOLDER.fullmatch(path.name)
    if match is None:
        return None
    sizes = dict[Path, int]()
    for file in path.iterdir():
        with suppress(FileNotFoundError):  # A run renames what it has written.
            if not counts_retries(file):
                sizes[file] = file.lstat().st_size
    if not sizes:
        return None
    operator, kind, files = match["operator"], _kind(match), tuple(sizes)
    users = [run for run in runs if run.folders is not None and path.name in run.folders]
    used = max([path.stat().st_mtime, *(run.used for run in users)])
    return CacheEntry(
        path=path,
        kind=kind,
        operator=operator,
        key=match["key"],
        size=sum(sizes.values()),
        chunks=sum(_is_chunk(file) for file in files),
        rows=_rows(kind, files),
        used=used,
        exports=tuple(sorted((run.export for run in users), key=str)),
    )


def _kind(match: re.Match[str]) -> CacheKind:
    if match["kept"]:
        return "samples"
    return "source" if match["operator"] == "source" else "step"


def _is_chunk(file: Path) -> bool:
    return file.suffix == ".arrow" and not file.name.startswith((".", "digest-", "schema"))


def _rows(kind: CacheKind, files: Sequence[Path]) -> int | None:
    if kind != "samples":
        return None
    keys = [file for file in files if file.suffix == ".keys"]
    return sum((file.stat().st_size + 1) // _KEY_BYTES for file in keys)


def _report(folder: Path) -> Report | None:
    export = folder.with_suffix(".parquet")
    try:
        return Report.read(export)
    except DataError:  # It is gone or damaged: the run is not finished.
        return None


def _is(path: str, cache: Path) -> bool:
    return Path(path) == cache.resolve()
