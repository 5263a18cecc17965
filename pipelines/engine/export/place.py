"""Where a run is written: on disk under temporary names, in an object store where it belongs.

There is no renaming in an object store. What makes a run complete is its manifest, which is removed
first and written last, see `finished`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from ....operators.disk import sync
from ...dataset.files import remove_folder, write_file
from ...dataset.remote import AnyPath, RemotePath
from ...dataset.run_folder import (
    export_name,
    is_folder,
    made_by_file,
    run_folder,
    unfinished_run_folder,
)
from ...dataset.write import PARTS_LIST, parts_of
from .. import decision_files
from .sole_writer import Hold

_OLD_EXPORT, _OLD_RUN = "old_export", "old_run"
"""In a run folder that is about to be complete."""


class RunPlace(NamedTuple):
    """Where to write.

    Attributes:
        folder: for the report, the recipe and the decisions.
        export: for the export: the file, or the folder of parts.
        hold: what keeps other runs from writing there.
    """

    folder: AnyPath
    export: AnyPath
    hold: Hold


@contextmanager
def placed(hold: Hold, made_by: str) -> Iterator[RunPlace]:
    """Where to write a run; it is in place when the block ends without an error.

    Args:
        hold: of its export.
        made_by: what its recipe is recognised by.

    Raises:
        RejuiceError: in a store, another run has taken the export.
        OSError: on disk, something could not be renamed: the run before is as it was, and this one
            complete under its temporary name.
    """
    export = hold.export_path
    hold.check()
    if isinstance(export, RemotePath):
        marker = made_by_file(export)
        # First: this run may be killed while it removes the files of the one before.
        write_file(marker, made_by)
        remove_folder(run_folder(export))
        if is_folder(export):
            remove_folder(export)  # Another run may have cut it into more parts.
        yield RunPlace(run_folder(export), export, hold)
        hold.check()
        marker.unlink(missing_ok=True)
        # S3 keeps a folder from which the last file is removed.
        if next(marker.parent.iterdir(), None) is None:
            remove_folder(marker.parent)
        return
    folder, final = (Path(str(f(export))) for f in (unfinished_run_folder, run_folder))
    remove_folder(folder)  # What a killed run may have left.
    try:
        yield RunPlace(folder, folder / export_name(export), hold)
    except BaseException:
        remove_folder(folder)
        raise
    _put_in_place(folder, final, Path(str(export)))


def written_files(export: AnyPath) -> list[AnyPath]:
    """All files of a run that is in place, but for its manifest."""
    folder = run_folder(export)
    rows = [*parts_of(export), export / PARTS_LIST] if is_folder(export) else [export]
    about = [folder / name for name in ("recipe.yaml", "report.json")]
    return [*rows, *about, *decision_files.files(folder)]


def _put_in_place(folder: Path, final: Path, export: Path) -> None:
    """Give a complete run folder its final name, and move the export out of it.

    Each is a rename. Where one fails, those before it are undone.

    Raises:
        OSError: one of them failed; or what is put in place is gone.
    """
    renames = [(final, folder / _OLD_RUN)] if final.exists() else []
    renames.append((folder, final))
    if is_folder(export) and export.exists():  # A folder cannot be replaced in one step.
        renames.append((export, final / _OLD_EXPORT))
    renames.append((final / export_name(export), export))
    with ExitStack() as undone:
        for source, target in renames:
            source.replace(target)
            undone.callback(target.replace, source)
        undone.pop_all()
    for old in (_OLD_RUN, _OLD_EXPORT):
        remove_folder(final / old)
    sync(export.parent)
