"""The argument of commands that open whatever a command has left on file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..dataset.remote import to_path

StoredPath = Annotated[
    Path,  # Or a path in an object store, which typer knows no type for.
    typer.Argument(
        metavar="PATH",
        parser=to_path,
        help="An export, its run folder or recipe, the folder of a training run, or one of its "
        "steps, such as RUN/steps/000012.",
    ),
]
