"""Keep responses that are complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pydantic import Field

from ..arrow_compute import pc
from ..operator import Columns, Filter, drop


class TruncatedResponseFilter(Filter):
    """Drop unfinished responses, according to the sampling engine's `finish_reason`.

    A response that reached the token limit has no answer because it was truncated, not because
    the policy has none.
    """

    reasons_to_drop: tuple[str, ...] = Field(("length",), min_length=1)
    """The finish reasons of unfinished responses; vLLM and OpenAI's API report `length`."""
    keep_unknown: bool = True
    """Keep responses without a finish reason."""

    reasons: ClassVar[Mapping[str, str]] = {
        "truncated": "the finish reason is one of `reasons_to_drop`",
        "unknown_finish": "there is no finish reason, and `keep_unknown` is false",
    }

    def reads(self) -> Columns:
        return ("finish_reason",)

    def decide(self, table: pa.Table) -> pa.Array:
        finish = table["finish_reason"].cast(pa.string())
        masks = {"truncated": pc.is_in(finish, pa.array(self.reasons_to_drop, pa.string()))}
        if not self.keep_unknown:
            masks["unknown_finish"] = pc.is_null(finish)
        return drop(masks)
