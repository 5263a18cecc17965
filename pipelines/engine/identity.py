"""Rows with the same prompt that may be different prompts, because another column differs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from ...operators import RecordedRolloutMapper
from ...operators.columns import at_path, is_list
from ...operators.groups import Groups
from ...operators.sampling.rollout import RolloutMapper
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .frame import Frame

_NUMBERS_OF_ROWS = frozenset({"id", "idx", "index", "uid", "uuid"})
"""Columns that differ in all rows."""


def identity_lines(recipe: Recipe, step: Step, before: Frame, after: Frame) -> list[str]:
    """A line with the first column in which rows of the same prompt differ; none if none does.

    Rows with one recorded response each differ as they should.

    Args:
        recipe: of the step.
        step: that makes the prompts.
        before: rows of the dataset, of which only columns that are needed are read.
        after: the same rows after the step.
    """
    groups = Groups.of_column(after.select(["prompt_id"])["prompt_id"])
    if len(groups.starts_G) == after.num_rows or not _is_prompt_each(recipe, before.schema):
        return []
    repeats = [
        _sources(after, start, size)
        for start, size in zip(groups.starts_G.tolist(), groups.sizes_G.tolist(), strict=True)
        if size > 1
    ]
    read = _read_otherwise(recipe, before.column_names)
    for name in before.column_names:
        if name in read or name.lower() in _NUMBERS_OF_ROWS:
            continue
        values = before.select([name])[name]
        if any(len({repr(values[row]) for row in rows}) > 1 for rows in repeats):
            return [
                f"{step.name}: rows with the same prompt differ in column '{name}'; if that makes "
                f"them other prompts, set identity: [{name}]."
            ]
    return []


def _sources(frame: Frame, start: int, size: int) -> Sequence[int]:
    found: Sequence[int] = np.asarray(frame.source_rows[start : start + size]).tolist()
    return found


def _is_prompt_each(recipe: Recipe, schema: pa.Schema) -> bool:
    """Whether each row of the dataset has all responses of its prompt, or will be sampled for."""
    for step in recipe.steps:
        if isinstance(step.operator, RolloutMapper):
            return True
        if isinstance(step.operator, RecordedRolloutMapper):
            none = schema.empty_table()
            kinds = [at_path(none, name).type for name in step.operator.columns]
            return len(kinds) > 1 or is_list(kinds[0])
    return False


def _read_otherwise(recipe: Recipe, columns: Collection[str]) -> set[str]:
    """Columns with the responses and what goes with them."""
    return {
        name
        for step in recipe.steps
        if isinstance(step.operator, RecordedRolloutMapper)
        for name in step.operator.reads_of(columns)
    }
