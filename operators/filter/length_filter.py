"""Keep texts that are neither too short nor too long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import is_list, is_text
from ..errors import DataError
from ..operator import Columns, Filter, drop

TOKENS = "response_token_ids"


class LengthFilter(Filter):
    """Drop rows whose text is shorter than `min` or longer than `max`.

    Characters are Unicode code points, words are separated by white space, and tokens are the
    sampled ones in `response_token_ids`, so that no tokenizer is needed.

    Raises:
        DataError: the column does not hold text.
    """

    column: str = "response"
    """The text column to measure, in characters or words; tokens are those of the response."""
    unit: Literal["characters", "words", "tokens"] = "characters"
    """What to count."""
    min: int | None = Field(None, ge=0)
    """Shortest length to keep; none by default."""
    max: int | None = Field(None, ge=0)
    """Longest length to keep; none by default."""

    reasons: ClassVar[Mapping[str, str]] = {
        "no_text": "there is no text to measure",
        "too_short": "the text is shorter than `min`",
        "too_long": "the text is longer than `max`",
    }

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.unit == "tokens" and self.column not in ("response", TOKENS):
            raise ValueError(f"tokens are counted in {TOKENS}, not in '{self.column}'")
        if self.min is None and self.max is None:
            raise ValueError("neither min nor max is given")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    def reads(self) -> Columns:
        return (TOKENS if self.unit == "tokens" else self.column,)

    def decide(self, table: pa.Table) -> pa.Array:
        length = self._lengths(table[self.reads()[0]])
        short = pc.less(length, 0 if self.min is None else self.min)
        long = pc.greater(length, np.iinfo(np.int64).max if self.max is None else self.max)
        return drop({"no_text": pc.is_null(length), "too_short": short, "too_long": long})

    def _lengths(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = column.type
        if pa.types.is_null(kind):
            return column.cast(pa.int64())
        if self.unit == "tokens":
            if not is_list(kind):
                raise DataError(
                    f"column '{TOKENS}' is {kind}, not a list", "fill it with lists of token ids"
                )
            return pc.list_value_length(column).cast(pa.int64())
        if not is_text(kind):
            raise DataError(f"column '{self.column}' is {kind}, not text", "name a text column")
        return (_words if self.unit == "words" else pc.utf8_length)(column).cast(pa.int64())


def _words(column: pa.ChunkedArray) -> pa.ChunkedArray:
    bare = pc.utf8_trim_whitespace(column)
    pieces = pc.list_value_length(pc.utf8_split_whitespace(bare))
    # Splitting an empty text gives one piece, itself.
    return pc.if_else(pc.equal(bare, ""), pa.scalar(0, pieces.type), pieces)
