"""Keep the prompts of the current stage of a curriculum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from ..condition import Wanted, checked_where, matches
from ..operator import Columns, Filter, drop
from ..training_step import PerStepOperator


class CurriculumFilter(PerStepOperator, Filter):
    """Keep the prompts of the current stage of a curriculum, such as easy ones before hard ones.

    `{column: level, stages: {0: 1, 0.3: [1, 2], 0.6: {min: 2}}}` trains on level 1 until 30% of the
    steps are done, then on levels 1 and 2, and from 60% on without level 1. A stage lasts until the
    next begins. The filter runs before the sampling of each training step; offline, where there are
    none, it keeps what any stage has. A null matches only where null is among the values.
    """

    column: str
    """Column of the prompts."""
    stages: dict[Annotated[float, Field(ge=0, le=1)], Wanted] = Field(min_length=1)
    """What is wanted of the column, as in `where`: a value, a list of values, or a range. Keys are
    the shares of `train.steps` after which a stage begins; one is 0."""

    reasons: ClassVar[Mapping[str, str]] = {"other_stage": "the current stage does not have it"}

    @field_validator("stages", mode="before")
    @classmethod
    def _check(cls, value: Any) -> Any:
        for start, wanted in value.items() if isinstance(value, Mapping) else ():
            checked_where({f"stages.{start}": wanted})
        return value

    @model_validator(mode="after")
    def _begins(self) -> Self:
        if 0 not in self.stages:
            raise ValueError("no stage begins at 0: nothing would be trained on at first")
        return self

    def paths(self) -> Columns:
        return (self.column,)

    def decide(self, table: pa.Table) -> pa.Array:
        # All of them, so that a value of another type is found before training.
        found = {
            s: matches({self.column: wanted}, table, "stages") for s, wanted in self.stages.items()
        }
        if self.step is None:
            return drop({"other_stage": ~np.logical_or.reduce([*found.values()])})
        current = max(start for start in self.stages if start <= self.step.progress)
        return drop({"other_stage": ~found[current]})
