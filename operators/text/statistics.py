"""Statistics of texts as in Data-Juicer's filters, computed on Arrow's bytes.

    strings ──> blocks of bytes ──> code points ──> one figure for each text

Each function names the filter with the same statistic; the numbers are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..groups import Array, mix
from .special_characters import special_characters
from .tokens import Text, blocks

_ODD = 0xD6E8FEB86659FD93
_BREAKS = np.isin(np.arange(256), [ord(c) for c in " \t\n"])


class Points(NamedTuple):
    """The code points of a block of N texts, with a newline after each.

    Attributes:
        codes_C: uint32.
        starts_N: int64, where each text begins.
        sizes_N: int64, its characters, without the newline.
    """

    codes_C: Array
    starts_N: Array
    sizes_N: Array


class Statistics(NamedTuple):
    """Statistics of N texts.

    Attributes:
        words_N: int64, number of words.
        repetition_N: float64, share of character n-grams that repeat, see `repetition`.
        special_N: float64, share of special characters.
    """

    words_N: Array
    repetition_N: Array
    special_N: Array


def statistics(texts: pa.Array, n: int) -> Statistics:
    """All statistics of the texts.

    Args:
        texts: large_string[N]; a null counts as empty.
        n: length of the n-grams of `repetition`.
    """
    parts = [
        (words(block), repetition(points, n), special_share(points))
        for block, points in _blocks(texts)
    ]
    empty = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    return Statistics(*map(np.concatenate, zip(empty, *parts, strict=True)))


def _blocks(texts: pa.Array) -> Iterator[tuple[Text, Points]]:
    for block in blocks(texts):
        yield block, _points(block)


def _points(block: Text) -> Points:
    bytes_B, offsets_N1 = block
    if bytes_B.max(initial=0) < 0x80:
        return Points(bytes_B.astype(np.uint32), offsets_N1[:-1], np.diff(offsets_N1) - 1)
    codes_C = np.frombuffer(bytes_B.tobytes().decode().encode("utf-32-le"), np.uint32)
    begun_B1 = np.concatenate([[0], np.cumsum((bytes_B & 0xC0) != 0x80)])
    ends_N1 = begun_B1[offsets_N1]
    return Points(codes_C, ends_N1[:-1], np.diff(ends_N1) - 1)


def words(block: Text) -> Array:
    """Number of words, separated by spaces, tabs and newlines, int64[N].

    They are the words of Data-Juicer's `words_num_filter` before it discards those without a
    letter: in `12 + 5 = 17` it finds none, and here there are 5.
    """
    break_B = _BREAKS[block.bytes_B]
    begins_B = ~break_B
    begins_B[1:] &= break_B[:-1]  # A newline stands before each text but the first.
    return _sums(begins_B, block.offsets_N1[:-1])


def special_share(points: Points) -> Array:
    """Share of special characters, float64[N]: `special_char_ratio` of `special_characters_filter`.

    Digits and white space are special; 0 in an empty text.
    """
    # Without the final newline, which is one.
    count_N = _sums(_special()[points.codes_C], points.starts_N) - 1
    return _share(count_N, points.sizes_N)


def repetition(points: Points, n: int) -> Array:
    """Share of n-grams that repeat, float64[N]: `char_rep_ratio` of `character_repetition_filter`.

    With d distinct n-grams of n characters, of which r occur more than once: the occurrences of
    the min(floor(sqrt(d)), r) most frequent ones, divided by all; 0 if there is no n-gram. n-grams
    are compared by hashes of about 50 bits.
    """
    texts = len(points.sizes_N)
    counts_N = np.maximum(points.sizes_N - n + 1, 0)
    rows_T, places_T = _places(points.starts_N, counts_N)
    row_bits = max(texts - 1, 1).bit_length()
    keys_T = (rows_T.astype(np.uint64) << np.uint64(64 - row_bits)) | (
        _hashes(points.codes_C, n)[places_T] >> np.uint64(row_bits)
    )
    keys_T.sort()
    starts_D = np.flatnonzero(np.concatenate([[True], keys_T[1:] != keys_T[:-1]])[: len(keys_T)])
    often_D = np.diff(starts_D, append=len(keys_T))
    rows_D = (keys_T[starts_D] >> np.uint64(64 - row_bits)).astype(np.int64)
    distinct_N = np.bincount(rows_D, minlength=texts)
    rows_R, often_R = rows_D[often_D > 1], often_D[often_D > 1]
    by_row = np.lexsort((-often_R, rows_R))
    rows_R, often_R = rows_R[by_row], often_R[by_row]
    repeated_N = np.bincount(rows_R, minlength=texts)
    rank_R = np.arange(len(rows_R)) - (np.cumsum(repeated_N) - repeated_N)[rows_R]
    top_R = rank_R < np.sqrt(distinct_N).astype(np.int64)[rows_R]
    return _share(np.bincount(rows_R[top_R], often_R[top_R], minlength=texts), counts_N)


def _places(starts_N: Array, counts_N: Array) -> tuple[Array, Array]:
    """The `counts` positions from each start on, and the row of each."""
    rows_T = np.repeat(np.arange(len(starts_N)), counts_N)
    before_N = np.cumsum(counts_N) - counts_N
    return rows_T, np.arange(len(rows_T)) + (starts_N - before_N)[rows_T]


def _hashes(codes_C: Array, n: int) -> Array:
    """A hash of the n characters from each position on, uint64[C]; fewer at the end."""
    values_C = mix((codes_C + np.uint32(1)).astype(np.uint64) * np.uint64(_ODD))
    hashes_C = values_C.copy()
    for ahead in range(1, min(n, len(codes_C))):
        hashes_C *= np.uint64(_ODD)
        hashes_C[:-ahead] += values_C[ahead:]
    return mix(hashes_C)


def _sums(values: Array, starts_N: Array) -> Array:
    return np.add.reduceat(values, starts_N, dtype=np.int64)


def _share(part_N: Array, whole_N: Array) -> Array:
    share_N: Array = part_N / np.maximum(whole_N, 1)
    return share_N


@cache
def _special() -> Array:
    return special_characters()
