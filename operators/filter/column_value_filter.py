"""Keep rows by the values of a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import StrictBool, StrictInt, StrictStr, model_validator
from typing_extensions import Self

from ..condition import matches
from ..operator import Columns, Filter
from ..operator import drop as drop_where

Value = StrictBool | StrictInt | StrictStr


class ColumnValueFilter(Filter):
    """Keep only rows with one of the values in `keep`, or drop rows with one of those in `drop`.

    The column has strings, numbers or booleans, and the values must be of the same kind, so that
    `"1"` never matches 1.

    Raises:
        DataError: the column has another type than one of the values.
    """

    column: str
    """The column to filter by, such as `verdict` or one of your own."""
    keep: tuple[Value, ...] | None = None
    """Values to keep; rows with any other value are dropped. Give this or `drop`."""
    drop: tuple[Value, ...] | None = None
    """Values to drop; rows with any other value are kept. Give this or `keep`."""
    on_missing: Literal["keep", "drop"] = "drop"
    """What to do with a row without a value."""

    reasons: ClassVar[Mapping[str, str]] = {
        "value_not_kept": "the value is not one of `keep`",
        "value_dropped": "the value is one of `drop`",
        "missing_value": "there is no value, and `on_missing` is `drop`",
    }

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        if (self.keep is None) == (self.drop is None):
            raise ValueError("exactly one of keep and drop must be given")
        if not (self.keep or self.drop):
            raise ValueError("the list of values is empty")
        return self

    def reads(self) -> Columns:
        return (self.column,)

    def decide(self, table: pa.Table) -> pa.Array:
        values, by = (self.drop, "drop") if self.keep is None else (self.keep, "keep")
        listed_N = matches({self.column: values or ()}, table, by)
        missing_N = np.asarray(table[self.column].is_null())
        masks = {"missing_value": missing_N & (self.on_missing == "drop")}
        if self.keep is None:
            masks["value_dropped"] = listed_N
        else:
            masks["value_not_kept"] = ~(listed_N | missing_N)
        return drop_where(masks)
