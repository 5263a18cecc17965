"""Keep the first of equal responses, or of equal prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from ..arrow_compute import pc
from ..groups import hash_each, occurred_before
from ..text.tokens import texts_of
from .text_deduplicator import TextDeduplicator


class ExactDeduplicator(TextDeduplicator):
    """Drop responses that repeat an earlier one word for word, or prompts that do.

    Rows are compared by a 64-bit hash, so 8 bytes are kept per row. Among ten million different
    texts the probability that any two share a hash is 3 in a million. Nulls are not compared and
    stay.
    """

    unit: Literal["response", "prompt"] = "response"
    """What repeats: `response` drops rows; `prompt` drops all rows of a prompt whose text an
    earlier prompt had, and leaves the responses within a prompt alone."""
    lowercase: bool = False
    """Ignore case."""
    ignore_whitespace: bool = False
    """Collapse runs of white space and strip both ends. `1 2` is still not `12`."""

    reasons: ClassVar[Mapping[str, str]] = {
        "duplicate": "an earlier response has the same text",
        "duplicate_prompt": "an earlier prompt has the same text",
    }

    def digest(self, table: pa.Table) -> pa.Table:
        """One 64-bit key per row, and for prompts one bit for the first row of each group."""
        texts = self._normalised(texts_of(table[self.column or self.unit]))
        return pa.table(self.keys(table, hash_each(texts), np.asarray(texts.is_valid())))

    def decide(self, table: pa.Table) -> pa.Array:
        return self.repeats(table, "duplicate", lambda _, keys_M: occurred_before(keys_M))

    def _normalised(self, texts: pa.Array) -> pa.Array:
        if self.lowercase:
            texts = pc.utf8_lower(texts)
        if self.ignore_whitespace:
            words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts))
            texts = pc.binary_join(words, pa.scalar(" ", pa.large_string()))
        return texts
