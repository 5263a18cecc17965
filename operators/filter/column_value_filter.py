"""Keep rows by the values of a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import StrictBool, StrictInt, StrictStr, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import is_text
from ..errors import DataError
from ..operator import Columns, Filter
from ..operator import drop as drop_where

Value = StrictBool | StrictInt | StrictStr


class ColumnValueFilter(Filter):
    """Keep only rows with one of the values in `keep`, or drop rows with one of those in `drop`.

    The column holds strings, integers or booleans; the values must be of the same kind, so that
    `"1"` never matches 1.

    Raises:
        DataError: the column has another type, or cannot contain one of the values.
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
        column = table[self.column]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        listed = pc.is_in(column, self._values(column.type))
        present = pc.is_valid(column)
        masks = {}
        if self.on_missing == "drop":
            masks["missing_value"] = pc.invert(present)
        if self.keep is None:
            masks["value_dropped"] = listed
        else:
            masks["value_not_kept"] = pc.and_(present, pc.invert(listed))
        return drop_where(masks)

    def _values(self, kind: Any) -> pa.Array:
        values = self.keep or self.drop or ()
        if pa.types.is_null(kind):
            return pa.nulls(0)
        allowed = _python_type(kind)
        if allowed is None:
            found = f"column '{self.column}' is {kind}, not a string, integer or boolean"
            raise DataError(found, "name such a column")
        for value in values:
            # The exact type is compared, because a bool is also an int.
            if type(value) is not allowed:
                found = f"column '{self.column}' is {kind}, and cannot contain {value!r}"
                raise DataError(found, f"give values of type {allowed.__name__}")
        return pa.array([value for value in values if _fits(value, kind)], kind)


def _python_type(kind: Any) -> type | None:
    if is_text(kind):
        return str
    if pa.types.is_integer(kind):
        return int
    return bool if pa.types.is_boolean(kind) else None


def _fits(value: Value, kind: Any) -> bool:
    # No row can hold an integer that is too wide for the column.
    if not pa.types.is_integer(kind):
        return True
    width: int = kind.bit_width
    low = -(1 << width - 1) if pa.types.is_signed_integer(kind) else 0
    return low <= int(value) < low + (1 << width)
