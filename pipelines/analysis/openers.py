"""Who else opens stored runs: apart from `open`, so that registering one loads nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stored import Stored

RECIPES = (".yaml", ".yml")
"""The suffixes of recipes."""
RUNS = Path("outputs")
"""Where training puts the run of a recipe, unless another folder is given."""
openers: list[Callable[[Path, range | None], Stored | None]] = []
"""Open further kinds of runs: the package that trains adds its own. Each gets a path and the
training steps that are wanted (None: all), and returns None where the path is not of its kind."""
