"""The folder of a run beside its export, and what shows that a run has not ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...operators import DataError
from .remote import AnyPath, RemotePath

RUN_SUFFIX = ".run"
PART, PART_SUFFIX = "part", ".parquet"
"""How the names of the files of an export in parts begin and end."""


def run_folder(export_path: AnyPath) -> AnyPath:
    """The folder of an export's report and decisions: `curated.run` beside `curated.parquet`."""
    return export_path.with_suffix(RUN_SUFFIX)


def unfinished_run_folder(export_path: AnyPath) -> AnyPath:
    """The run folder under the name that it has until it is complete."""
    final = run_folder(export_path)
    return final.with_name(f".{final.name}")


def made_by_file(export_path: AnyPath) -> AnyPath:
    """In the unfinished run folder of an export to a store: what its recipe is recognised by.

    Its name has the suffix of the export: exports that differ in nothing else share the folder.
    """
    return unfinished_run_folder(export_path) / f"made_by{export_path.suffix}"


def unfinished_made_by(export: AnyPath) -> str | None:
    """What the recipe of an unfinished export to a store is recognised by; None: there is none.

    On disk an export has another name until it is complete.
    """
    if not isinstance(export, RemotePath) or export.parent == export:  # A bucket is no export.
        return None
    try:
        return made_by_file(export).read_text()
    except FileNotFoundError:
        return None


def is_folder(export_path: AnyPath) -> bool:
    """Whether an export is a folder of parts: its path has no suffix."""
    return not export_path.suffix


def export_name(export: AnyPath) -> str:
    """The name of an export in its run folder on disk, until both are in place."""
    return f"export{export.suffix}"


def check_finished(export: AnyPath) -> None:
    """Check that no run was stopped while it put an export in place.

    Raises:
        DataError: one was: what is there may be of two runs, or of a part of one.
    """
    if isinstance(export, RemotePath):
        ended = unfinished_made_by(export) is None
    else:  # The working directory has no name.
        ended = not export.name or not (run_folder(export) / export_name(export)).exists()
    if not ended:
        raise DataError(f"the run that writes {export} has not ended", "run its recipe again")


def exports_in_parts(folder: AnyPath, names: Iterable[str]) -> Iterator[AnyPath]:
    """The exports in parts whose runs may not have ended, as the names in a folder show.

    The export itself may not be there: it is removed before another is written.
    """
    begin = "." if isinstance(folder, RemotePath) else ""
    for name in names:
        stem = name.removeprefix(begin).removesuffix(RUN_SUFFIX)
        if stem and "." not in stem and name == f"{begin}{stem}{RUN_SUFFIX}":
            yield folder / stem
