"""Where a run is written: on disk under temporary names, in an object store where it belongs.

There is no renaming in an object store. What makes a run complete is its manifest, which is removed
first and written last, see `finished`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ...apply import decision_files
from ...dataset.files import remove_folder, sync
from ...dataset.remote import AnyPath, RemotePath
from ...dataset.write import PARTS_LIST, is_folder, parts_of, run_folder, unfinished_run_folder

_EXPORT, _OLD = "export", "old"


class RunPlace(NamedTuple):
    """Where to write.

    Attributes:
        folder: for the report, the recipe and the decisions.
        export: for the export: the file, or the folder of parts.
    """

    folder: AnyPath
    export: AnyPath


@contextmanager
def placed(export: AnyPath) -> Iterator[RunPlace]:
    """Where to write a run; it is in place when the block ends without an error.

    Args:
        export: of the run.
    """
    if isinstance(export, RemotePath):
        remove_folder(run_folder(export))
        if is_folder(export):
            remove_folder(export)  # Another run may have cut it into more parts.
        yield RunPlace(run_folder(export), export)
        return
    folder, final = (Path(str(f(export))) for f in (unfinished_run_folder, run_folder))
    remove_folder(folder)  # What a killed run may have left.
    try:
        yield RunPlace(folder, folder / f"{_EXPORT}{export.suffix}")
        remove_folder(final)
        folder.replace(final)
        _move(final, export)
        sync(export.parent)
    finally:
        remove_folder(folder)


def written_files(export: AnyPath) -> list[AnyPath]:
    """All files of a run that is in place, but for its manifest."""
    folder = run_folder(export)
    rows = [*parts_of(export), export / PARTS_LIST] if is_folder(export) else [export]
    about = [folder / name for name in ("recipe.yaml", "report.json")]
    return [*rows, *about, *decision_files.files(folder)]


def _move(folder: Path, export: Path) -> None:
    """Move the export out of the run folder; a folder of parts replaces the one before it."""
    made = folder / f"{_EXPORT}{export.suffix}"
    if is_folder(export) and export.exists():
        old = folder / _OLD
        export.replace(old)  # A folder cannot be replaced by another in one step.
        made.replace(export)
        remove_folder(old)
    else:
        made.replace(export)
