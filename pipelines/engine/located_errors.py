"""Which file an error is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...operators import DataError, RejuiceError
from ..recipe.recipe import Recipe
from ..recipe.steps import Step


@contextmanager
def prefix_errors_with_file(recipe: Recipe, step: Step) -> Iterator[None]:
    """Put a file in front of an error: the dataset for an error in the data, else the recipe."""
    try:
        yield
    except RejuiceError as error:
        in_data = isinstance(error, DataError)
        file = str(recipe.head.dataset_spec) if in_data else recipe.line_of(step)
        raise error.at(file) from error.__cause__
