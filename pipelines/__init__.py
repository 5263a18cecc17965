"""Reads recipes and runs their operators over datasets.

    from rejuice.pipelines import Recipe, load, run

    result = run(load(Path("recipes/quickstart.yaml")))
    result = run(Recipe(process=[PassRateFilter(min=0.1)], dataset=dataframe))

Modules import one another in the order of the contract in `setup.cfg`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import EmptyRunError, Result, run
    from .recipe.recipe import Recipe, load

__all__ = ["EmptyRunError", "Recipe", "Result", "load", "run"]

_HOMES = {
    "EmptyRunError": "api",
    "Recipe": "recipe.recipe",
    "Result": "api",
    "load": "recipe.recipe",
    "run": "api",
}


if not TYPE_CHECKING:  # So that mypy knows the names above, and no others.

    def __getattr__(name: str) -> Any:
        # Lazy: `rejuice --help` imports this package, and needs none of them.
        if name in _HOMES:
            return getattr(import_module(f".{_HOMES[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
