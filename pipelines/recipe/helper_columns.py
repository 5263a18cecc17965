"""Whether the statistics and tags that steps of Data-Juicer's name are there when they run."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...operators import RecipeError
from ..data_juicer.run_columns import KINDS
from ..data_juicer.steps import ForeignOperator
from .recipe import Recipe
from .steps import Step


def check_helper_columns(recipe: Recipe, schema: pa.Schema) -> None:
    """Check that each statistic or tag that a step names may be there.

    Args:
        recipe: as it was read.
        schema: of its dataset.

    Raises:
        RecipeError: one is neither in the dataset, nor does an earlier step write it.
    """
    for at, step in enumerate(recipe.steps):
        if not isinstance(step.operator, ForeignOperator):
            continue
        for column, name in step.operator.named_entries:
            kind = KINDS[column]
            if not _is_in(schema, column, name) and not _is_written(
                recipe.steps[:at], column, name
            ):
                what = f"{kind} '{name}'" if name else f"a {kind}"
                raise RecipeError(
                    f"no step before it writes {what}",
                    f"put a step that writes {what} before it",
                    where=recipe.where(step),
                )


def _is_in(schema: pa.Schema, column: str, name: str) -> bool:
    if column not in schema.names:
        return False
    kind = schema.field(column).type
    # What a JSON text holds is only known when it is read.
    return not name or not pa.types.is_struct(kind) or kind.get_field_index(name) >= 0


def _is_written(steps: Sequence[Step], column: str, name: str) -> bool:
    return any(
        step.operator.may_write(column, name)
        if isinstance(step.operator, ForeignOperator)
        else column in step.operator.writes()
        for step in steps
    )
