"""The cache of runs: who uses it, what it holds, and how that is removed.

rejuice-cache                      says that this is a cache: nowhere else is anything removed
lock                               held by all that run, shared; alone while results are removed
runs/5d1c….export                  the export of a run, whose manifest says what it uses
source-a31f…                       a dataset, cut into chunks
pass_rate_filter-52c0…             what a step did to each chunk
kept-policy_rollout_mapper-77b1…   what a resumable operator computed: samples and scores
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

import xxhash

from ...operators import DataError, RecipeError, RejuiceError
from ...operators.disk import NotAFileError, kind_of, open_file
from ...operators.kept_rows import open_kept_rows
from ..dataset.files import check_is_folder, read_file, remove_file, run_folder, write_file
from ..dataset.remote import AnyPath, RemotePath, to_path
from .finished_export import read_manifest
from .plan import KEPT, count_retry, counts_retry

# --- Who uses a cache: runs share it, and removing results needs it alone -------------
# An object store knows no locks. Runs share a cache there all the same: a commit that is there
# stays, whoever wrote it.

RUNS = "runs"
_TAG, _TAGGED = "rejuice-cache", b"a cache of rejuice: see `rejuice cache ls`\n"


@contextmanager
def use_cache(cache: AnyPath, export: AnyPath) -> Iterator[None]:
    """Keep the results of a cache for as long as a run uses it, and name the run's export in it."""
    runs = cache / RUNS
    check_is_folder(runs)
    runs.mkdir(parents=True, exist_ok=True)
    with _locked(cache, fcntl.LOCK_SH):
        if not is_cache(cache):
            write_file(cache / _TAG, _TAGGED)
        content = str(export.resolve()).encode()
        named = runs / _name_of(content)
        if isinstance(named, Path) and _content_of(named) == content:
            os.utime(named)  # When it was last used.
        else:
            write_file(named, content)
        yield


@contextmanager
def _locked(cache: AnyPath, kind: int) -> Iterator[None]:
    if isinstance(cache, RemotePath):
        yield
        return
    # Not FileLock, which knows no lock that several hold. It ends with the process.
    with open(open_file(cache / "lock", os.O_RDWR | os.O_CREAT), "rb+") as file:
        try:
            fcntl.flock(file, kind)
        except BlockingIOError:
            raise RejuiceError(f"a run is using {cache}", "wait until it has ended") from None
        yield


def is_cache(folder: AnyPath) -> bool:
    return _content_of(folder / _TAG) == _TAGGED


def named_exports(cache: Path) -> dict[Path, AnyPath | None]:
    """The exports that are named in a cache on disk, by the files that do; None: it is damaged."""
    found = dict[Path, AnyPath | None]()
    for file in (cache / RUNS).glob("*.export"):
        content = _content_of(file)
        found[file] = None
        if content is not None and file.name == _name_of(content):
            with suppress(RejuiceError):  # An address that is not taken any more.
                found[file] = to_path(content.decode())
    return found


def _content_of(file: AnyPath) -> bytes | None:
    """What is in a small file; None: it is not there, or no file."""
    with suppress(FileNotFoundError, NotADirectoryError, NotAFileError):
        return read_file(file)
    return None


def _name_of(content: bytes) -> str:
    return f"{xxhash.xxh3_64_hexdigest(content)}.export"


# --- What a cache holds, and which runs use it ----------------------------------------

CacheKind = Literal["source", "step", "samples"]
_FOLDER = re.compile(rf"(?P<kept>{KEPT})?(?P<operator>\w+)-(?P<key>[0-9a-f]{{16}})(-\d+)?")
_FILE = re.compile(
    r"(\d{6}|schema|digest-[\d-]+(of-\d+)?|decided-\d+-of-\d+)[.]arrow|lock|retry-\d+-[a-z]+"
    r"|rows[.]sqlite(-wal|-shm)?|\d{20}-[0-9a-f]{8}[.]parquet|[.].*[.]\d+[.][0-9a-f]{8}"
)
"""What rejuice writes into these folders, unfinished files among it: nothing else is removed."""
_CHUNK = re.compile(r"\d{6}[.]arrow")


class CacheEntry(NamedTuple):
    path: Path  # the folder
    kind: CacheKind  # `samples` are what a resumable operator computed: they cost something
    operator: str  # its name; of a dataset, `source`
    key: str  # the key in the folder's name
    size: int  # bytes
    chunks: int  # finished ones
    rows: int | None  # of samples; None where they cannot be counted
    used: float  # when a run last wrote or used it, in seconds since the epoch
    exports: tuple[AnyPath, ...]  # of the finished runs that use it


class CacheUse(NamedTuple):
    export: AnyPath  # its export
    # names of the folders that it uses; None: its manifest is gone or damaged
    folders: frozenset[str] | None
    used: float  # when it last ran, in seconds since the epoch


def cache_entries(cache: Path) -> list[CacheEntry]:
    """The folders of a cache: datasets, then steps, then samples, by name."""
    _check_is_cache(cache)
    runs = runs_of(cache)
    folders = [path for path in cache.iterdir() if kind_of(path) == "a folder"]
    found = [_entry(path, runs) for path in folders]
    order = ("source", "step", "samples")
    entries = [entry for entry in found if entry is not None]
    return sorted(entries, key=lambda entry: (order.index(entry.kind), entry.path.name))


def runs_of(cache: Path) -> list[CacheUse]:
    """The runs that use a cache and whose run folders exist, as far as their names are whole."""
    runs = list[CacheUse]()
    for file, export in named_exports(cache).items():
        if export is None or not run_folder(export).is_dir():
            continue
        manifest = read_manifest(run_folder(export))
        if manifest is None or Path(manifest.cache) == cache.resolve():
            folders = None if manifest is None else frozenset(manifest.uses)
            runs.append(CacheUse(export, folders, file.stat().st_mtime))
    return runs


def _check_is_cache(cache: Path) -> None:
    if not is_cache(cache):
        found = f"{cache} is no cache of rejuice: it has no file {_TAG}"
        found = found if cache.is_dir() else f"there is no cache in {cache}"
        raise DataError(found, "give the recipe of a run, or its cache folder")


def _entry(path: Path, runs: Sequence[CacheUse]) -> CacheEntry | None:
    """A folder of a cache; None where it is something else, or empty but for the retries."""
    match = _FOLDER.fullmatch(path.name)
    if match is None:
        return None
    sizes = dict[str, int]()
    for file in _own_files(path):
        with suppress(FileNotFoundError):  # A run renames what it has written.
            if not counts_retry(file):
                sizes[file.name] = file.lstat().st_size
    if not sizes:
        return None
    operator, kind = match["operator"], _kind(match)
    users = [run for run in runs if run.folders is not None and path.name in run.folders]
    return CacheEntry(
        path=path,
        kind=kind,
        operator=operator,
        key=match["key"],
        size=sum(sizes.values()),
        chunks=sum(bool(_CHUNK.fullmatch(name)) for name in sizes),
        rows=_count_rows(path) if kind == "samples" else None,
        used=max([path.stat().st_mtime, *(run.used for run in users)]),
        exports=tuple(sorted((run.export for run in users), key=str)),
    )


def _count_rows(folder: Path) -> int | None:
    try:
        with closing(open_kept_rows(folder, writes=False)) as rows:
            return len(rows)
    except OSError:  # Damaged: it can be removed all the same.
        return None


def _own_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _FILE.fullmatch(path.name)]


def _kind(match: re.Match[str]) -> CacheKind:
    if match["kept"]:
        return "samples"
    return "source" if match["operator"] == "source" else "step"


# --- How it is removed ----------------------------------------------------------------


class Removal(NamedTuple):
    removed: Sequence[CacheEntry]  # these
    # samples and scores that stay, though they were named: they cost something
    kept: Sequence[CacheEntry] = ()


def select_unused(cache: Path, *, samples: bool) -> Removal:
    every = cache_entries(cache)
    _check_runs_are_known(cache)
    return Removal([e for e in every if not e.exports and (samples or e.kind != "samples")])


def select_matching(cache: Path, wanted: str, *, samples: bool) -> Removal:
    """What an operator's name, a folder's name or the beginning of a key names."""
    entries = cache_entries(cache)
    found = [e for e in entries if wanted in (e.operator, e.path.name)]
    found = found or [e for e in entries if wanted and e.key.startswith(wanted)]
    if not found:
        names = ", ".join(sorted({entry.operator for entry in entries})) or "nothing"
        raise DataError(f"nothing in the cache is called '{wanted}'", f"it holds: {names}")
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
                f"{folder} does not say which results it uses: the run has not finished",
                f"run its recipe again, or remove {folder}",
            )


def remove(cache: Path, select: Callable[[], Removal], *, again: bool) -> Removal:
    """Remove folders of a cache, while no run uses it; what rejuice has not written stays in them.

    `select` is called while the cache is locked: a run that ended before may use what no run used a
    moment ago. `again`: steps after these may have results, which must not be found for rows that
    are computed again and may differ.
    """
    _check_is_cache(cache)
    with _locked(cache, fcntl.LOCK_EX | fcntl.LOCK_NB):
        selected = select()
        for entry in selected.removed:
            if again and entry.kind == "step":
                count_retry(cache / f"{entry.operator}-{entry.key}", "dropped")
            for file in _own_files(entry.path):
                if not counts_retry(file):  # Keys of results depend on it.
                    remove_file(file)
            with suppress(OSError):  # Something else is in it, or what counts its retries.
                entry.path.rmdir()
        for file, export in named_exports(cache).items():
            if export is not None and not run_folder(export).is_dir():
                file.unlink()
    return selected
