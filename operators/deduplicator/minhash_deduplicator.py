"""Keep the first of nearly equal responses, or of nearly equal prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..compute import pc
from ..groups import Array, group_starts, scoped_keys
from ..operator import Columns, Filter, Kind, Scope, drop
from ..text.minhash import PERMUTATIONS, signatures
from ..text.tokens import texts_of
from .near_repeats import Signatures, near_repeats
from .units import ComparedUnit, Within, checked_unit, repeats, shard


class MinhashDeduplicator(Filter):
    """Drop responses that nearly repeat an earlier one, or prompts that do.

    Two texts are near duplicates if the Jaccard similarity of their token n-grams is at least
    `threshold`, as estimated from 128 MinHashes (standard error at most 0.044). Candidates come
    from locality-sensitive hashing; every candidate is checked. Of a set of near duplicates the
    first stays; a row is dropped only for an earlier row that stays, never through a chain of
    rows that each differ a little. Nulls are not compared and stay. Until all rows are decided,
    140 bytes of each are kept on disk; only texts with the same numbers are decided together.

    Source: Broder, On the resemblance and containment of documents, 1997,
    https://doi.org/10.1109/SEQUEN.1997.666900.
    """

    unit: ComparedUnit = "response"
    """What repeats: `response` drops rows; `prompt` drops all rows of a prompt whose text an
    earlier prompt nearly had, and leaves the responses within a prompt alone."""
    column: str | None = None
    """The column to compare, of strings or of messages; by default `response` or `prompt`, as
    `unit` says. For prompts, the first row of each prompt is compared."""
    within: Within | None = None
    """Compare a response with those to the same prompt (`prompt`, the default) or with those to
    all prompts (`all`). Prompts are always compared with all others."""
    threshold: float = Field(0.7, ge=0.2, le=1)
    """Smallest Jaccard similarity of near duplicates."""
    ngram: int = Field(3, ge=1, le=32)
    """Tokens in a shingle: words, punctuation marks, characters beyond ASCII. A shorter text is
    one shingle, so short texts are near duplicates only if they have the same tokens."""
    lowercase: bool = True
    """Ignore the case of A to Z."""
    keep_different_numbers: bool = True
    """Never treat texts with different sequences of numbers as near duplicates: a problem with
    other numbers is another problem. Numbers are digits (`-2`, `3.50`, `1,000`) and English words
    from two upwards (`three`, `dozen`, `half`)."""

    kind: ClassVar[Kind] = Kind.DEDUPLICATOR
    scope: ClassVar[Scope] = Scope.DATASET
    reasons: ClassVar[Mapping[str, str]] = {
        "near_duplicate": "an earlier response has nearly the same text",
        "near_duplicate_prompt": "an earlier prompt has nearly the same text",
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
        """Signature and key per row: only rows with the same key can be near duplicates."""
        texts = texts_of(table[self.column or self.unit])
        signatures_NK, numbers_N = signatures(texts, ngram=self.ngram, lowercase=self.lowercase)
        keys_N = numbers_N if self.keep_different_numbers else np.zeros_like(numbers_N)
        if self.unit == "response" and self.within != "all":
            keys_N = scoped_keys(keys_N, table["prompt_id"])
        columns = {
            "key": pa.array(keys_N, mask=np.asarray(texts.is_null())),
            "signature": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(PERMUTATIONS), len(texts), [None, pa.py_buffer(signatures_NK)]
            ),
        }
        if self.unit == "prompt":
            columns["starts"] = group_starts(table)
        return pa.table(columns)

    def shard(self, digest: pa.Table) -> Array:
        return shard(digest, self.unit)

    def decide(self, table: pa.Table) -> pa.Array:
        keys_N = np.asarray(pc.fill_null(table["key"], 0))
        signed = Signatures.of_column(table["signature"])

        def find(rows: Array) -> Array:
            if len(rows) == len(keys_N):  # All of them, as a rule: then nothing is copied.
                return near_repeats(signed, keys_N, self.threshold)
            return near_repeats(signed.select(rows), keys_N[rows], self.threshold)

        slug = "near_duplicate" if self.unit == "response" else "near_duplicate_prompt"
        return drop({slug: repeats(table, self.unit, find)})
