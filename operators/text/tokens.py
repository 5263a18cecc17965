"""Texts as hashed tokens, computed on Arrow's bytes without a Python object per text.

    strings ──> one byte buffer, a newline after each text ──> token starts ──> one hash per token

A token is a run of ASCII letters and digits, one ASCII punctuation mark, or one character beyond
ASCII. So words of alphabetic scripts, operators of formulas and characters of scripts without
spaces all count.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..arrow_compute import pc
from ..columns import is_list
from ..errors import DataError
from ..groups import Array, mix

BLOCK_BYTES = 1 << 18
"""Bytes of text processed at once, so that the temporary arrays stay in the processor's cache."""


class Tokens(NamedTuple):
    hashes_T: Array  # uint64, one hash per token, in the order of the text
    offsets_N1: Array  # int64[N + 1]; text i has the tokens offsets[i] to offsets[i + 1]


class Text(NamedTuple):
    """The bytes of N texts in one buffer, each followed by a newline."""

    bytes_B: Array  # uint8
    offsets_N1: Array  # int64[N + 1]; text i begins at byte offsets[i]


def texts_of(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as large_string[N]; the contents of a chat are joined. A DataError if it has
    neither."""
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_nested(flat.type):
        item = flat.type.value_type if is_list(flat.type) else pa.null()
        if not pa.types.is_struct(item) or item.get_field_index("content") < 0:
            raise DataError(
                f"a column of type {flat.type} has no text", "choose one of strings or of messages"
            )
        contents = pc.struct_field(flat.flatten(), "content").cast(pa.large_string())
        sizes_N = np.asarray(pc.fill_null(pc.list_value_length(flat), 0), np.int64)
        ends_N1 = np.concatenate([[0], np.cumsum(sizes_N)])
        lists = pa.LargeListArray.from_arrays(
            pa.array(ends_N1, pa.int64()), pc.fill_null(contents, ""), mask=flat.is_null()
        )
        # Joined by a character that no prompt contains: ["ab", "c"] and ["a", "bc"] differ.
        flat = pc.binary_join(lists, pa.scalar("\x1e", pa.large_string()))
    return flat.cast(pa.large_string())


def blocks(texts: pa.Array) -> Iterator[Text]:
    """The texts in blocks of about `BLOCK_BYTES`, which no result depends on; a null is an empty
    text."""
    if len(texts) == 0:
        return
    ends_N = np.cumsum(np.asarray(pc.fill_null(pc.binary_length(texts), 0), np.int64))
    limits = np.arange(BLOCK_BYTES, ends_N[-1] + BLOCK_BYTES, BLOCK_BYTES)
    cuts = [0, *np.unique(np.searchsorted(ends_N, limits, side="right")), len(texts)]
    for start, end in pairwise(cuts):
        if start < end:
            yield _joined(texts.slice(start, end - start))


def _joined(texts: pa.Array) -> Text:
    raw = pc.fill_null(texts.cast(pa.large_binary()), b"")
    nothing, newline = (pa.scalar(raw_end, pa.large_binary()) for raw_end in (b"", b"\n"))
    lines = pc.binary_join_element_wise(raw, nothing, newline)
    _, offsets, data = lines.buffers()
    offsets_N1 = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    bytes_B = np.frombuffer(data, np.uint8)[offsets_N1[0] : offsets_N1[-1]]
    return Text(bytes_B, offsets_N1 - offsets_N1[0])


_SPACE, _WORD, _MARK, _LEAD, _TAIL = range(5)


def _kinds() -> Array:
    kinds = np.full(256, _MARK, np.uint8)
    kinds[:33] = kinds[127] = _SPACE
    for byte in range(128):
        if chr(byte).isalnum():
            kinds[byte] = _WORD
    kinds[0x80:0xC0], kinds[0xC0:] = _TAIL, _LEAD  # the bytes of one UTF-8 character
    return kinds


def _values(lowercase: bool) -> Array:
    values = mix(np.arange(1, 257, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    values[_KINDS == _SPACE] = 0
    if lowercase:
        values[ord("A") : ord("Z") + 1] = values[ord("a") : ord("z") + 1]
    return values


_KINDS = _kinds()
_VALUES = {lowercase: _values(lowercase) for lowercase in (False, True)}
_VALUES_OF_WORDS = np.where(_KINDS == _MARK, np.uint64(0), _VALUES[True])


def tokens_of(text: Text, *, lowercase: bool = True, marks: bool = True) -> Tokens:
    """Hash the tokens of a block. Without `marks`, words are in lower case, and punctuation marks
    only separate them.

    >>> block = next(blocks(pa.array(["2 + x", "2+X"], pa.large_string())))
    >>> hashes, offsets = tokens_of(block)
    >>> offsets.tolist(), (hashes[:3] == hashes[3:]).all().item()
    ([0, 3, 6], True)
    """
    kinds_B = _KINDS[text.bytes_B]
    word_B = kinds_B == _WORD
    starts_B = kinds_B == _LEAD
    if marks:
        starts_B |= kinds_B == _MARK
    starts_B[1:] |= word_B[1:] & ~word_B[:-1]
    starts_B[0] |= word_B[0]
    starts_T = np.flatnonzero(starts_B)
    values = _VALUES[lowercase] if marks else _VALUES_OF_WORDS
    hashes_T = sums(values[text.bytes_B], starts_T)
    return Tokens(hashes_T, np.searchsorted(starts_T, text.offsets_N1))


def shingles(tokens: Tokens, n: int) -> Tokens:
    """Hashes of all runs of `n` tokens within a text, at least one per text."""
    sizes_N = np.diff(tokens.offsets_N1)
    padded_N = np.maximum(sizes_N, n)
    ends_N = np.cumsum(padded_N)
    slots = np.zeros(ends_N[-1] if len(ends_N) else 0, np.uint64)
    shift_N = ends_N - padded_N - tokens.offsets_N1[:-1]
    slots[np.arange(len(tokens.hashes_T)) + np.repeat(shift_N, sizes_N)] = tokens.hashes_T
    runs = slots.copy()
    whole = np.ones(len(slots), bool)
    for ahead in range(1, n):
        runs *= np.uint64(0x9E3779B97F4A7C15)
        runs[:-ahead] += slots[ahead:]
        whole[ends_N - ahead] = False  # a run from here would reach into the next text
    offsets_N1 = np.concatenate([[0], np.cumsum(padded_N - n + 1)])
    return Tokens(mix(runs[whole]), offsets_N1)


def sums(values_B: Array, starts_T: Array) -> Array:
    """Position-independent hashes of the runs of `values_B` that begin at `starts_T`, uint64[T].

    A run reaches to the next start; zeros at its end do not count. The hash is the polynomial
    sum_j values[start + j] P^j modulo 2^64, mixed.
    """
    if len(starts_T) == 0:
        return np.zeros(0, np.uint64)
    powers, inverses = _powers(max(BLOCK_BYTES, 1 << len(values_B).bit_length()))
    sums_T = np.add.reduceat(values_B * powers[: len(values_B)], starts_T)
    return mix(sums_T * inverses[starts_T])


@lru_cache(maxsize=2)
def _powers(n: int) -> tuple[Array, Array]:
    base = 0xD6E8FEB86659FD93  # odd, so that it has an inverse modulo 2^64
    both = []
    for factor in (base, pow(base, -1, 1 << 64)):
        powers = np.full(n, factor, np.uint64)
        powers[0] = 1
        both.append(np.multiply.accumulate(powers))
    return both[0], both[1]
