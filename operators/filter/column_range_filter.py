"""Keep rows whose number in a column lies within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import FiniteFloat, model_validator
from typing_extensions import Self

from ..columns import numbers
from ..operator import Columns, Filter, drop


class ColumnRangeFilter(Filter):
    """Drop rows whose value in a numeric column is outside [min, max].

    0 is a value like any other. Null and nan are missing values.

    Raises:
        DataError: the column does not hold numbers.
    """

    column: str
    """The numeric column to filter by, such as `reward` or one of your own."""
    min: FiniteFloat | None = None
    """Lowest value to keep; none by default."""
    max: FiniteFloat | None = None
    """Highest value to keep; none by default."""
    on_missing: Literal["keep", "drop"] = "drop"
    """What to do with a row without a value."""

    reasons: ClassVar[Mapping[str, str]] = {
        "below_min": "the value is below `min`",
        "above_max": "the value is above `max`",
        "missing_value": "there is no value, and `on_missing` is `drop`",
    }

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("neither min nor max is given")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    def reads(self) -> Columns:
        return (self.column,)

    def decide(self, table: pa.Table) -> pa.Array:
        values_N = numbers(table, self.column)
        low = -np.inf if self.min is None else self.min
        high = np.inf if self.max is None else self.max
        # Comparisons with nan are false, so nan is neither below nor above.
        masks = {"below_min": values_N < low, "above_max": values_N > high}
        if self.on_missing == "drop":
            masks["missing_value"] = np.isnan(values_N)
        return drop(masks)
