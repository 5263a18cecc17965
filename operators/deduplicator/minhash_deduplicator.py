"""Keep the first of nearly equal responses, or of nearly equal prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from ..groups import Array, EqualHashes, mix, occurred_before, row_type
from ..text.minhash import PERMUTATIONS, jaccard, signatures
from ..text.tokens import texts_of
from .text_deduplicator import TextDeduplicator, take_rows

# --- Which texts nearly repeat an earlier one, from their MinHash signatures ----------
# Ten million signatures are 1.3 GB. They stay where they are, as a rule in mapped files: one band
# of hashes is gathered at a time, and of whole signatures only those of candidate pairs.

_BLOCK = 1 << 16  # pairs whose signatures are compared at once
_MOST_PAIRS = 1 << 23
"""Near pairs that are kept at once, 8 bytes each; they are sorted, which takes as much again."""


class Signatures:
    """Rows of signatures in parts, uint8[n, PERMUTATIONS] each, as of mapped record batches, which
    are never joined; of these `rows_M`, ascending, or all."""

    def __init__(self, parts: Sequence[Array], rows_M: Array | None = None) -> None:
        self._parts = [part for part in parts if len(part)]
        self._starts = np.cumsum([0, *map(len, self._parts)])
        self._rows_M = rows_M

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> Signatures:
        """The values of fixed_size_binary[N], null or not."""
        parts = []
        for chunk in filter(len, column.chunks):
            start, size = chunk.offset * PERMUTATIONS, len(chunk) * PERMUTATIONS
            values = np.frombuffer(chunk.buffers()[1], np.uint8, size, start)
            parts.append(values.reshape(-1, PERMUTATIONS))
        return cls(parts)

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._rows_M is None else len(self._rows_M)

    def select(self, rows: Array) -> Signatures:
        return Signatures(self._parts, rows if self._rows_M is None else self._rows_M[rows])

    def take(self, rows_K: Array) -> Array:
        """In any order, uint8[K, PERMUTATIONS]."""
        rows_K = rows_K if self._rows_M is None else self._rows_M[rows_K]
        return take_rows(self._parts, rows_K, np.empty((len(rows_K), PERMUTATIONS), np.uint8))

    def hashes(self, keys_M: Array, word: np.dtype[np.unsignedinteger], words: slice) -> Array:
        """One hash of some words of each signature, as a sequence of `word`, and of its row's
        key."""
        hashes_M = np.empty(len(self), np.uint64)
        rows_M, bounds = self._rows_M, self._starts
        if rows_M is not None:
            bounds = np.searchsorted(rows_M, self._starts)
        for at, part in enumerate(self._parts):
            here = slice(bounds[at], bounds[at + 1])
            rows = slice(None) if rows_M is None else rows_M[here] - self._starts[at]
            folded = mix(keys_M[here])
            for word_N in part.view(word)[:, words].T:
                folded = mix(folded + word_N[rows].astype(np.uint64))
            hashes_M[here] = folded
        return hashes_M


def near_repeats(signatures: Signatures, keys_M: Array, threshold: float) -> Array:
    """Which rows have a near duplicate before them that is itself kept, bool[M]; rows with
    different keys are not compared."""
    # Equal signatures first, so that a repeated text is compared only once.
    eights = np.dtype(np.uint64)
    dropped_M = occurred_before(signatures.hashes(keys_M, eights, slice(None)))
    rows = np.flatnonzero(~dropped_M).astype(row_type(len(dropped_M)))
    dropped_M[rows] = _drops(signatures.select(rows), keys_M[rows], threshold)
    return dropped_M


def _drops(signatures: Signatures, keys_M: Array, threshold: float) -> Array:
    """As `near_repeats`, where no two rows have the same key and signature.

    Most rows may be near duplicates of each other, and have dozens of pairs each. So where there
    are too many pairs, only those of the earlier rows are collected at first; then it is known
    which of these stay, and a row that is dropped needs no pair any more.
    """
    n = len(keys_M)
    drops = bytearray(n)
    start, stop = 0, n
    while start < stop:
        codes = _near_pairs(signatures, keys_M, threshold, range(start, stop), drops)
        if codes is None:
            stop = start + (stop - start + 3) // 4
            continue
        for at in range(0, len(codes), _BLOCK):
            later, earlier = np.divmod(codes[at : at + _BLOCK], n)
            # In order of the later row, so it is already known whether the earlier one stays.
            for row, before in zip(later.tolist(), earlier.tolist(), strict=True):
                if not drops[before]:
                    drops[row] = 1
        start, stop = stop, min(n, stop + 4 * (stop - start))
    return np.frombuffer(drops, bool)


def _near_pairs(
    signatures: Signatures, keys_M: Array, threshold: float, later_rows: range, drops: bytearray
) -> Array | None:
    """Verified pairs, as later row * M + earlier row, ascending; None if there are too many of them
    and several later rows. Rows before those that are in `drops` are not compared with."""
    n, found, size = len(keys_M), [np.zeros(0, np.int64)], 0
    dropped_M = np.frombuffer(drops, bool)
    for hashes_M in _bands(signatures, keys_M, rows_per_band(threshold)):
        for later, earlier in _candidates(EqualHashes.of(hashes_M)):
            wanted = (later >= later_rows.start) & (later < later_rows.stop) & ~dropped_M[earlier]
            later, earlier = later[wanted], earlier[wanted]
            near = jaccard(signatures.take(later), signatures.take(earlier)) >= threshold
            near &= keys_M[later] == keys_M[earlier]
            # One number per pair sorts faster than rows of two.
            found.append(later[near].astype(np.int64) * n + earlier[near])
            size += len(found[-1])
            if size > _MOST_PAIRS:
                found = [np.unique(np.concatenate(found))]
                size = len(found[0])
                if size > _MOST_PAIRS // 2 and len(later_rows) > 1:
                    return None
    return np.unique(np.concatenate(found))


def _candidates(equal: EqualHashes) -> Iterator[tuple[Array, Array]]:
    """Pairs of rows with the same band, in blocks of (later rows, earlier rows).

    Each row with the first of its bucket and with the previous one. Not all pairs, of which a large
    bucket has too many; similar rows share several buckets.
    """
    rows_R, first_R = equal
    places_R = np.arange(len(rows_R), dtype=rows_R.dtype)
    head_R = np.maximum.accumulate(np.where(first_R, places_R, 0))
    for at in range(0, len(rows_R), _BLOCK):
        places = places_R[at : at + _BLOCK][~first_R[at : at + _BLOCK]]
        heads = head_R[places]
        yield rows_R[places], rows_R[heads]
        inner = places[heads != places - 1]
        yield rows_R[inner], rows_R[inner - 1]


def rows_per_band(threshold: float) -> int:
    """The most hashes per band, hence the fewest candidates, with which 9 of 10 pairs exactly at
    the threshold are found: 1 - (1 - t^r)^(128 / r) >= 0.9."""
    for rows in (16, 8, 4):
        if 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= 0.9:
            return rows
    return 2


def _bands(signatures: Signatures, keys_M: Array, rows: int) -> Iterator[Array]:
    word = np.dtype(f"u{min(rows, 8)}")
    per_band = max(1, rows // 8)
    for band in range(0, PERMUTATIONS // word.itemsize, per_band):
        yield signatures.hashes(keys_M, word, slice(band, band + per_band))


# --- Keep the first of nearly equal responses, or of nearly equal prompts -------------


class MinhashDeduplicator(TextDeduplicator):
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

    unit: Literal["response", "prompt"] = "response"
    """What repeats: `response` drops rows; `prompt` drops all rows of a prompt whose text an
    earlier prompt nearly had, and leaves the responses within a prompt alone."""
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

    reasons: ClassVar[Mapping[str, str]] = {
        "near_duplicate": "an earlier response has nearly the same text",
        "near_duplicate_prompt": "an earlier prompt has nearly the same text",
    }

    def digest(self, table: pa.Table) -> pa.Table:
        """Signature and key per row: only rows with the same key can be near duplicates."""
        texts = texts_of(table[self.column or self.unit])
        signatures_NK, numbers_N = signatures(texts, ngram=self.ngram, lowercase=self.lowercase)
        keys_N = numbers_N if self.keep_different_numbers else np.zeros_like(numbers_N)
        signed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(PERMUTATIONS), len(texts), [None, pa.py_buffer(signatures_NK)]
        )
        keys = self.keys(table, keys_N, np.asarray(texts.is_valid()))
        return pa.table({**keys, "signature": signed})

    def decide(self, table: pa.Table) -> pa.Array:
        signed = Signatures.of_column(table["signature"])

        def find(rows: Array, keys_M: Array) -> Array:
            own = signed if len(rows) == len(signed) else signed.select(rows)
            return near_repeats(own, keys_M, self.threshold)

        return self.repeats(table, "near_duplicate", find)
