"""Whether a recipe fits its dataset: its columns are followed from step to step."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...operators import ALL, DataError, RecipeError, Scope
from ...operators.errors import suggest
from ...operators.registry import load_all
from ..dataset.arrow_types import is_text
from ..dataset.read import Dataset
from ..dataset.write import check_export_path
from .recipe import Recipe


def checked_schema(recipe: Recipe, dataset: Dataset | None = None) -> pa.Schema:
    """The dataset's schema, once the paths are right and every column that is read is there.

    A dataset that the recipe generates need not be written yet.

    Args:
        recipe: as it was read.
        dataset: its dataset, where the caller has it open.

    Raises:
        RejuiceError: the dataset cannot be read, the export would harm it, or a step reads a
            column that is not there.
    """
    path = recipe.head.dataset_path
    check_export_path(recipe.path, recipe.head.export_path, path)
    generated = recipe.head.generated(path)
    if generated is not None:
        check_columns(recipe, generated.table_schema())
        return generated.table_schema()
    dataset = dataset or Dataset(path)
    try:
        check_columns(recipe, dataset.first_schema)
    except RecipeError:
        if dataset.schema.equals(dataset.first_schema):
            raise
        check_columns(recipe, dataset.schema)
        return dataset.schema
    return dataset.first_schema


def check_columns(recipe: Recipe, schema: pa.Schema) -> None:
    """Follow the columns through the recipe before anything is run.

    Raises:
        RecipeError: a step reads a column that neither the dataset nor an earlier step has.
        DataError: an id is not a text.
    """
    for name in ("prompt_id", "response_id"):
        if name in schema.names and not _may_be_text(schema.field(name).type):
            found = f"column '{name}' is {schema.field(name).type}"
            raise DataError(found, "make it a string", where=str(recipe.head.dataset_path))
    columns = set(schema.names)
    for step in recipe.steps:
        operator = step.operator
        if operator.reads() == ALL:
            return  # What it adds and removes is only known once it has run.
        for name in operator.reads():
            if name not in columns:
                raise RecipeError(
                    f"column '{name}' is missing",
                    _remedy(name, columns),
                    where=recipe.where(step),
                )
        columns.difference_update(operator.removes())
        columns.update(operator.writes())


def group_columns(recipe: Recipe, schema: pa.Schema) -> tuple[str, ...]:
    """Columns of the dataset whose consecutive equal values make a group.

    They are what the step that writes `prompt_id` reads. Where a step uses the dataset's own
    `prompt_id` before it is overwritten, or where no step writes it, it is that column.
    """
    own = ("prompt_id",) if "prompt_id" in schema.names else ()
    for step in recipe.steps:
        operator = step.operator
        if own and operator.scope is not Scope.ROW and "prompt_id" in operator.reads():
            return own
        if "prompt_id" in operator.writes():
            return tuple(name for name in operator.reads() if name in schema.names)
    return own


def _may_be_text(kind: pa.DataType) -> bool:
    """A column without a single value has type null."""
    return is_text(kind) or bool(pa.types.is_null(kind))


def _remedy(missing: str, columns: set[str]) -> str:
    """What to do about a missing column."""
    writers = []
    for name, kind in load_all()[0].items():
        # Only its output columns are asked for, so any value does for a required field.
        required: Any = {f: () for f, info in kind.model_fields.items() if info.is_required()}
        operator = kind.model_construct(**required)
        if missing in operator.writes() and missing not in operator.reads():
            writers.append(name)
    if writers:
        return f"{' or '.join(writers)} writes it: put that step before this one"
    return suggest(missing, columns) or f"there are: {', '.join(sorted(columns))}"
