"""MinHash signatures of texts, and the sequence of their numbers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from ..groups import Array, mix
from .tokens import Text, Tokens, blocks, shingles, sums, tokens_of

PERMUTATIONS = 128
"""Hash functions of a signature; the standard error of an estimated Jaccard J is
sqrt(J (1 - J) / 128), at most 0.044."""

_NUMBER_WORDS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand million billion half third quarter twice thrice double triple dozen"
)


def signatures(texts: pa.Array, *, ngram: int, lowercase: bool) -> tuple[Array, Array]:
    """MinHash signature and number hash of each text; a null is an empty text.

    A text with fewer than `ngram` tokens is a single shingle, so two short texts agree only if they
    are equal. The signatures, uint8[N, PERMUTATIONS], have 8 bits of the smallest hash under each
    permutation (Li and König, https://arxiv.org/abs/0910.3349); the numbers, uint64[N], are a hash
    of the sequence of numbers.
    """
    signatures_NK = np.empty((len(texts), PERMUTATIONS), np.uint8)
    numbers_N = np.empty(len(texts), np.uint64)
    start = 0
    for text in blocks(texts):
        tokens = tokens_of(text, lowercase=lowercase)
        end = start + len(text.offsets_N1) - 1
        signatures_NK[start:end] = _minhash(shingles(tokens, ngram))
        numbers_N[start:end] = _numbers(text, tokens)
        start = end
    return signatures_NK, numbers_N


def jaccard(one_NK: Array, other_NK: Array) -> Array:
    """Estimated Jaccard similarity of pairs of signatures, float64[N].

    8 bits agree by chance once in 256 times; the estimate is corrected for this.
    """
    agree_N: Array = (one_NK == other_NK).mean(axis=1)
    estimate_N: Array = (agree_N - 1 / 256) / (1 - 1 / 256)
    return estimate_N


def _multipliers() -> tuple[Array, Array]:
    draws = mix(np.arange(1, 2 * PERMUTATIONS + 1, dtype=np.uint64) << np.uint64(32))
    draws = (draws >> np.uint64(32)).astype(np.uint32)
    return draws[:PERMUTATIONS] | np.uint32(1), draws[PERMUTATIONS:]


_FACTORS, _SHIFTS = _multipliers()


def _minhash(runs: Tokens) -> Array:
    hashes = (runs.hashes_T >> np.uint64(32)).astype(np.uint32)
    smallest_KN = np.empty((PERMUTATIONS, len(runs.offsets_N1) - 1), np.uint32)
    permuted = np.empty_like(hashes)
    for k in range(PERMUTATIONS):
        np.multiply(hashes, _FACTORS[k], out=permuted)
        permuted += _SHIFTS[k]
        np.minimum.reduceat(permuted, runs.offsets_N1[:-1], out=smallest_KN[k])
    # The top bits of a minimum are nearly always 0; multiplying mixes all bits into the top 8.
    smallest_KN *= np.uint32(0x9E3779B1)
    return (smallest_KN.T >> np.uint32(24)).astype(np.uint8)


_DIGIT = np.zeros(256, bool)
_DIGIT[ord("0") : ord("9") + 1] = True
# Values of the bytes of numbers.
_NUMBER_VALUES = mix(np.arange(1, 257, dtype=np.uint64) << np.uint64(8))


@cache
def _number_words() -> Array:
    # Not at import: the first array makes Arrow import pandas, which `rejuice check` avoids.
    spellings = [*_NUMBER_WORDS.split(), *_NUMBER_WORDS.title().split()]
    text = next(blocks(pa.array(spellings, pa.large_string())))
    return np.unique(tokens_of(text, lowercase=False).hashes_T)


def _numbers(text: Text, tokens: Tokens) -> Array:
    """Hash of the sequence of numbers of each text, in digits and in words."""
    starts, hashes = _numerals(text.bytes_B)
    digits_N = _sequence(hashes, np.searchsorted(starts, text.offsets_N1))
    words = _number_words()
    known = words[np.minimum(np.searchsorted(words, tokens.hashes_T), len(words) - 1)]
    spelled = np.flatnonzero(known == tokens.hashes_T)
    words_N = _sequence(tokens.hashes_T[spelled], np.searchsorted(spelled, tokens.offsets_N1))
    return mix(digits_N + np.uint64(3) * words_N)


def _numerals(bytes_B: Array) -> tuple[Array, Array]:
    """First byte and hash of each number in digits, such as `-2`, `3.50`; `1,000` is `1000`."""
    near = np.concatenate([np.zeros(1, bool), _DIGIT[bytes_B], np.zeros(4, bool)])
    n = len(bytes_B)
    before, here, after = near[:n], near[1 : n + 1], near[2 : n + 2]
    point = (bytes_B == ord(".")) & before & after
    comma = (bytes_B == ord(",")) & before & after & near[3 : n + 3] & near[4 : n + 4]
    comma &= ~near[5 : n + 5]
    minus = (bytes_B == ord("-")) & after
    inside = here | point | minus
    carries_on = np.zeros(n, bool)
    carries_on[1:] = (here | point | comma)[:-1]
    carries_on[1:] |= minus[:-1]
    carries_on &= ~minus
    places = np.flatnonzero(inside)  # without commas, which must not shift the digits
    first = np.flatnonzero(~carries_on[places])
    return places[first], sums(_NUMBER_VALUES[bytes_B[places]], first)


def _sequence(hashes_T: Array, offsets_N1: Array) -> Array:
    """Order-dependent hash of each segment; 0 for an empty one."""
    sizes_N = np.diff(offsets_N1)
    place_T = np.arange(len(hashes_T)) - np.repeat(offsets_N1[:-1], sizes_N)
    placed_T = mix(hashes_T + place_T.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    total_T1 = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed_T, dtype=np.uint64)])
    hashes_N: Array = np.diff(total_T1[offsets_N1])
    return hashes_N
