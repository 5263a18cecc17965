"""Open whatever a command has left on file: `open_stored(path)`."""

from __future__ import annotations

import shlex
from pathlib import Path

from ...operators import DataError
from ..dataset.remote import AnyPath, to_path
from ..dataset.run_folder import run_folder
from ..engine.report import Report
from ..recipe.read import load_without_code
from .export import open_export
from .openers import RECIPES, RUNS, openers
from .stored import Stored

__all__ = ["RECIPES", "open_stored", "run_of"]


def open_stored(path: AnyPath | str, *, steps: range | None = None) -> Stored:
    """Open an export, its run folder, a recipe whose export was run, or what `openers` open.

    Args:
        path: `curated.parquet`, `curated.run`, `recipe.yaml`, and of training the folder of a run
            or of one of its steps.
        steps: of a training run, those that are wanted; None: all.

    Raises:
        RejuiceError: it is none of these, or it cannot be read.

    Example:
        >>> [part] = open_stored(Path("outputs/quickstart/curated.parquet")).sets
        >>> [step.name for step in part.steps]
        ['math_verify_mapper', ...]
    """
    path = to_path(path)
    if not path.exists() and not run_folder(path).is_dir():
        raise DataError(f"{path} does not exist", "give an export, a run folder or a recipe")
    if _is_run_folder(path):
        # A report is found from its folder, too.
        written_to = to_path(Report.read(path).export_path)
        return open_export(path, path.with_suffix(written_to.suffix))
    if _is_run_folder(run_folder(path)) and path.suffix not in RECIPES:
        return open_export(path, path)
    if not isinstance(path, Path):
        raise DataError(f"{path} is not a stored run", "give an export or its .run folder")
    for opener in openers:
        if (found := opener(path, steps)) is not None:
            return found
    if path.suffix in RECIPES:
        export = load_without_code(path).head.export_path
        if not _is_run_folder(run_folder(export)):
            for opener in openers:  # A recipe that trains has a run where training puts it.
                if (found := opener(RUNS / path.stem, steps)) is not None:
                    return found
            run = f"`rejuice run {shlex.quote(str(path))}`"
            raise DataError(f"{path} has not been run", f"{run} first")
        return open_export(path, export)
    raise DataError(
        f"{path} is not a stored run", "give an export, its .run folder, a recipe or a training run"
    )


def run_of(recipe: Path) -> AnyPath:
    """The export of a recipe or, where there is none, the folder of its training run.

    Raises:
        RejuiceError: it cannot be read.
    """
    export = load_without_code(recipe).head.export_path
    if _is_run_folder(run_folder(export)):
        return export
    own = recipe.resolve().parent
    return own if (own / "steps").is_dir() else RUNS / recipe.stem  # A run keeps its recipe.


def _is_run_folder(path: AnyPath) -> bool:
    return path.suffix == ".run" and (path / "report.json").is_file()
