"""Keep the first of equal responses, or of equal prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..groups import Array, group_starts, hash_each, occurred_before, scoped_keys
from ..operator import Columns, Filter, Kind, Scope, drop
from ..text.tokens import texts_of
from .compared_units import ComparedUnit, Within, checked_unit, repeats, shard


class ExactDeduplicator(Filter):
    """Drop responses that repeat an earlier one word for word, or prompts that do.

    Rows are compared by a 64-bit hash, so 8 bytes are kept per row. Among ten million different
    texts the probability that any two share a hash is 3 in a million. Nulls are not compared and
    stay.
    """

    unit: ComparedUnit = "response"
    """What repeats: `response` drops rows; `prompt` drops all rows of a prompt whose text an
    earlier prompt had, and leaves the responses within a prompt alone."""
    column: str | None = None
    """The column to compare, of strings or of messages; by default `response` or `prompt`, as
    `unit` says. For prompts, the first row of each prompt is compared."""
    within: Within | None = None
    """Compare a response with those to the same prompt (`prompt`, the default) or with those to
    all prompts (`all`). Prompts are always compared with all others."""
    lowercase: bool = False
    """Ignore case."""
    ignore_whitespace: bool = False
    """Collapse runs of white space and strip both ends. `1 2` is still not `12`."""

    kind: ClassVar[Kind] = Kind.DEDUPLICATOR
    scope: ClassVar[Scope] = Scope.DATASET
    reasons: ClassVar[Mapping[str, str]] = {
        "duplicate": "an earlier response has the same text",
        "duplicate_prompt": "an earlier prompt has the same text",
    }

    @model_validator(mode="after")
    def _fits(self) -> Self:
        checked_unit(self.unit, self.column, self.within)
        return self

    def reads(self) -> Columns:
        column = self.column or self.unit
        alone = self.unit == "response" and self.within == "all"
        return (column,) if alone else ("prompt_id", column)

    def drops_within_groups(self) -> bool:
        return self.unit == "response"

    def digest(self, table: pa.Table) -> pa.Table:
        """One 64-bit key per row, and for prompts one bit for the first row of each group."""
        texts = self._normalised(texts_of(table[self.column or self.unit]))
        keys_N = hash_each(texts)
        if self.unit == "response" and self.within != "all":
            keys_N = scoped_keys(keys_N, table["prompt_id"])
        columns = {"key": pa.array(keys_N, mask=np.asarray(texts.is_null()))}
        if self.unit == "prompt":
            columns["starts"] = group_starts(table)
        return pa.table(columns)

    def shard(self, digest: pa.Table) -> Array:
        return shard(digest, self.unit)

    def decide(self, table: pa.Table) -> pa.Array:
        keys_N = np.asarray(pc.fill_null(table["key"], 0))
        again_N = repeats(table, self.unit, lambda rows: occurred_before(keys_N[rows]))
        return drop({"duplicate" if self.unit == "response" else "duplicate_prompt": again_N})

    def _normalised(self, texts: pa.Array) -> pa.Array:
        if self.lowercase:
            texts = pc.utf8_lower(texts)
        if self.ignore_whitespace:
            words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts))
            texts = pc.binary_join(words, pa.scalar(" ", pa.large_string()))
        return texts
