"""Patterns such as `data/**/*.parquet`: which files they match, on disk and in object stores.

As in a folder, names that begin with `_` or `.` are left out, and so are the folders of runs. A
part of the pattern that begins, or ends, in the same way matches them, such as `.cache` or `*.run`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias

from ...operators import DataError
from .remote import AnyPath, RemotePath
from .run_folder import RUN_SUFFIX, check_finished, exports_in_parts

_WILD = frozenset("*?[")
_ANY_FOLDERS = "**"

_Parts: TypeAlias = tuple[str, ...]
"""The parts of a pattern that are still to be matched, one for each name of a path."""


class _InFolder(NamedTuple):
    """What is in a folder; a link to nothing is a file, which whoever reads it finds missing."""

    name: str
    is_file: bool
    is_folder: bool
    is_link: bool = False


def is_pattern(path: AnyPath) -> bool:
    """Whether a path has wildcards; one that exists under that very name has none."""
    return _has_wildcards(path) and not path.exists()


def is_broken(path: Path) -> bool:
    """Whether a path is a link to what does not exist."""
    return path.is_symlink() and not path.exists()


def folder_of(pattern: AnyPath) -> AnyPath:
    """The folder that is searched: the part of a pattern before its first wildcard."""
    above = pattern
    while _has_wildcards(above) and above.parent != above:  # Of a bucket it is itself.
        above = above.parent
    return above


def files_that_match(pattern: AnyPath) -> Iterator[AnyPath]:
    """The files that match a pattern, in no order. Each folder is listed once.

    `**` is any number of folders; it follows no links. At the end of a pattern it is all files.

    Raises:
        DataError: a folder cannot be listed, or is the export of a run that has not ended.
    """
    above = folder_of(pattern)
    check_finished(above)
    return _search(above, {_names(pattern, above)})


def is_matched(file: AnyPath, pattern: AnyPath) -> bool:
    """Whether a file that is not there yet would match a pattern; both paths are absolute."""
    above = folder_of(pattern)
    if above not in file.parents:
        return False
    left: Collection[_Parts] = {_names(pattern, above)}
    for name in _names(file, above):
        left = _after(left, name)
    return () in left


def _search(folder: AnyPath, left: Collection[_Parts]) -> Iterator[AnyPath]:
    """The files of a folder that match what is left of a pattern there."""
    for entry in _entries(folder, left):
        below = _after(left, entry.name, linked=entry.is_link)
        if entry.is_file and () in below:
            yield folder / entry.name
        further = set(filter(None, below))
        if entry.is_folder and further:
            yield from _search(folder / entry.name, further)


def _after(left: Collection[_Parts], name: str, *, linked: bool = False) -> set[_Parts]:
    """What is left of a pattern below a file or folder of that name; of all of it, `()`."""
    found, waiting = set[_Parts](), list(left)
    while waiting:
        parts = waiting.pop()
        if not parts:
            continue
        if parts[0] == _ANY_FOLDERS:
            waiting.append(parts[1:] or ("*",))
            if _fits(name, "*") and not linked:
                found.add(parts)
        elif _fits(name, parts[0]):
            found.add(parts[1:])
    return found


def _fits(name: str, part: str) -> bool:
    if name.startswith(("_", ".")) and part[0] != name[0]:
        return False
    if name.endswith(RUN_SUFFIX) and not part.endswith(RUN_SUFFIX):
        return False
    return fnmatchcase(name, part)


def _entries(folder: AnyPath, left: Collection[_Parts]) -> list[_InFolder]:
    """What is in a folder, as far as it may match; checks that exports there are finished."""
    names = {parts[0] for parts in left if parts}
    if all(_WILD.isdisjoint(name) for name in names):  # It need not be listed.
        found = [_entry(folder / name) for name in names]
        exports = [folder / entry.name for entry in found if not entry.is_file]
    else:
        found = _listed(folder)
        exports = list(exports_in_parts(folder, (entry.name for entry in found)))
    for export in exports:
        if any(_after(left, export.name)):
            check_finished(export)
    return found


def _entry(path: AnyPath) -> _InFolder:
    is_file = path.is_file() or (isinstance(path, Path) and is_broken(path))
    return _InFolder(path.name, is_file, not is_file and path.is_dir())


def _listed(folder: AnyPath) -> list[_InFolder]:
    if isinstance(folder, RemotePath):
        return [_InFolder(name, not below, below) for name, below in folder.listing().items()]
    try:
        with os.scandir(folder) as found:
            return list(map(_entry_on_disk, found))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DataError(
            f"{folder} cannot be listed: {error.strerror}",
            "make it readable, or give a pattern that does not search it",
        ) from None


def _entry_on_disk(found: os.DirEntry[str]) -> _InFolder:
    try:
        is_file, is_folder, is_link = found.is_file(), found.is_dir(), found.is_symlink()
        is_file = is_file or (is_link and not is_folder and is_broken(Path(found)))
        return _InFolder(found.name, is_file, is_folder, is_link)
    except OSError:  # A link to itself, or to where nothing may be looked up.
        return _InFolder(found.name, is_file=False, is_folder=False)


def _names(path: AnyPath, above: AnyPath) -> _Parts:
    """The names on the way from a folder to what is in it."""
    if isinstance(path, RemotePath):
        assert isinstance(above, RemotePath)
        return PurePosixPath(path.key).relative_to(above.key).parts
    assert isinstance(above, Path)
    return path.relative_to(above).parts


def _has_wildcards(path: AnyPath) -> bool:
    return not _WILD.isdisjoint(path.key if isinstance(path, RemotePath) else str(path))
