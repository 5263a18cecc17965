"""Keep the first of nearly equal responses, or of nearly equal prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..compute import pc
from ..groups import Array, group_starts, mix, scoped_keys
from ..operator import Columns, Filter, Kind, Scope, drop
from ..text.minhash import PERMUTATIONS, jaccard, signatures
from ..text.tokens import texts_of
from .units import ComparedUnit, Within, checked_unit, occurred_before, repeats


class MinhashDeduplicator(Filter):
    """Drop responses that nearly repeat an earlier one, or prompts that do.

    Two texts are near duplicates if the Jaccard similarity of their token n-grams is at least
    `threshold`, as estimated from 128 MinHashes (standard error at most 0.044). Candidates come
    from locality-sensitive hashing; every candidate is checked. Of a set of near duplicates the
    first stays; a row is dropped only for an earlier row that stays, never through a chain of
    rows that each differ a little. 136 bytes are kept per row. Nulls are not compared and stay.

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

    def decide(self, table: pa.Table) -> pa.Array:
        keys_N = np.asarray(pc.fill_null(table["key"], 0))
        signatures_NK = _bytes_of(table["signature"])

        def find(rows: Array) -> Array:
            return near_repeats(signatures_NK[rows], keys_N[rows], self.threshold)

        slug = "near_duplicate" if self.unit == "response" else "near_duplicate_prompt"
        return drop({slug: repeats(table, self.unit, find)})


def near_repeats(signatures_MK: Array, keys_M: Array, threshold: float) -> Array:
    """Which rows have a near duplicate before them that is itself kept, bool[M].

    Args:
        signatures_MK: uint8[M, PERMUTATIONS].
        keys_M: uint64[M]; rows with different keys are not compared.
        threshold: smallest estimated Jaccard similarity.
    """
    # Equal signatures first, so that a repeated text is compared only once.
    dropped_M = occurred_before(_fold(signatures_MK.view(np.uint64), keys_M))
    rows = np.flatnonzero(~dropped_M)
    pairs = _near_pairs(signatures_MK[rows], keys_M[rows], threshold)
    drops = np.zeros(len(rows), bool).tolist()
    # Pairs come in order of the later row, so it is already known whether the earlier one stays.
    for later, earlier in pairs.tolist():
        if not drops[earlier]:
            drops[later] = True
    dropped_M[rows] = drops
    return dropped_M


def _near_pairs(signatures_MK: Array, keys_M: Array, threshold: float) -> Array:
    """Verified pairs (later row, earlier row), int64[P, 2], ascending."""
    found = [np.zeros((0, 2), np.int64)]
    for bands_M in _bands(signatures_MK, keys_M, _rows_per_band(threshold)):
        pairs = _candidates(bands_M)
        for start in range(0, len(pairs), 1 << 16):
            later, earlier = pairs[start : start + (1 << 16)].T
            near = jaccard(signatures_MK[later], signatures_MK[earlier]) >= threshold
            near &= keys_M[later] == keys_M[earlier]
            found.append(pairs[start : start + (1 << 16)][near])
    pairs = np.concatenate(found)
    # One number per pair sorts faster than rows of two.
    codes = np.unique(pairs[:, 0] * len(keys_M) + pairs[:, 1])
    return np.stack(np.divmod(codes, max(len(keys_M), 1)), axis=1)


def _candidates(bands_M: Array) -> Array:
    """Pairs of rows with the same band: each row with the first of its bucket and with the previous
    one. Not all pairs, of which a large bucket has too many; similar rows share several buckets."""
    order_M = np.argsort(bands_M, kind="stable")
    ordered_M = bands_M[order_M]
    repeated_M = np.zeros(len(bands_M), bool)
    repeated_M[1:] = ordered_M[1:] == ordered_M[:-1]
    first_M = np.maximum.accumulate(np.where(repeated_M, 0, np.arange(len(bands_M))))
    places = np.flatnonzero(repeated_M)
    with_head = np.stack([order_M[places], order_M[first_M[places]]], axis=1)
    inner = places[first_M[places] != places - 1]
    with_last = np.stack([order_M[inner], order_M[inner - 1]], axis=1)
    return np.concatenate([with_head, with_last])


def _rows_per_band(threshold: float) -> int:
    """The most hashes per band, hence the fewest candidates, with which 9 of 10 pairs exactly at
    the threshold are found: 1 - (1 - t^r)^(128 / r) >= 0.9."""
    for rows in (16, 8, 4):
        if 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= 0.9:
            return rows
    return 2


def _bands(signatures_MK: Array, keys_M: Array, rows: int) -> Iterator[Array]:
    word = np.dtype(f"u{min(rows, 8)}")
    words_MW = signatures_MK.view(word)
    per_band = max(1, rows // 8)
    for band in range(0, words_MW.shape[1], per_band):
        yield _fold(words_MW[:, band : band + per_band], keys_M)


def _fold(words_MW: Array, keys_M: Array) -> Array:
    """One hash of the words and the key of each row, uint64[M]."""
    folded_M = mix(keys_M)
    for column in range(words_MW.shape[1]):
        folded_M = mix(folded_M + words_MW[:, column].astype(np.uint64))
    return folded_M


def _bytes_of(column: pa.ChunkedArray) -> Array:
    """fixed_size_binary[N] as uint8[N, PERMUTATIONS]."""
    chunks = [
        np.frombuffer(chunk.buffers()[1], np.uint8)[
            chunk.offset * PERMUTATIONS : (chunk.offset + len(chunk)) * PERMUTATIONS
        ]
        for chunk in column.chunks
        if len(chunk)
    ]
    flat = np.concatenate(chunks) if chunks else np.zeros(0, np.uint8)
    return flat.reshape(-1, PERMUTATIONS)
