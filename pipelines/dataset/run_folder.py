"""The folder of a run beside its export, and what shows that a run has not ended."""

from __future__ import annotations

from ...operators import DataError
from ..filesystem.remote import AnyPath, RemotePath


def run_folder(export_path: AnyPath) -> AnyPath:
    """The folder of an export's report and decisions: `curated.run` beside `curated.parquet`."""
    return export_path.with_suffix(".run")


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


def not_ended(export: AnyPath) -> DataError:
    """The error for an export that may lack rows, or have some of the run before."""
    return DataError(f"the run that writes {export} has not ended", "run its recipe again")
