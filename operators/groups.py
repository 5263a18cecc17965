"""Groups as integer offsets, and every computation per group.

Rows of a `prompt_id` are contiguous, so a group is a slice and group arithmetic is
`ufunc.reduceat` over offsets: no hashing, no sorting, no Python loop. Suffixes of names
give the axis: `_N` one value per row, `_G` one per group.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from .arrow_compute import pc

Array: TypeAlias = NDArray[Any]


class Groups(NamedTuple):
    """The groups of a table.

    Attributes:
        starts_G: int64, first row of each group.
        codes_N: int64, the group each row belongs to.
        sizes_G: int64, rows in each group.
    """

    starts_G: Array
    codes_N: Array
    sizes_G: Array

    @classmethod
    def of(cls, table: pa.Table, key: str = "prompt_id") -> Groups:
        """Groups of consecutive rows with the same `key` (a null equals a null)."""
        return cls.of_column(table[key])

    @classmethod
    def of_column(cls, column: pa.ChunkedArray | pa.Array) -> Groups:
        """Groups of consecutive equal values of one column."""
        n = len(column)
        if n == 0:
            empty = np.zeros(0, np.int64)
            return cls(empty, empty, empty)
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())  # Arrow does not compare nulls without a type.
        elif pa.types.is_nested(column.type):
            # Nor does it compare lists and structs, such as the messages of a chat.
            column = pa.chunked_array([[repr(value) for value in column.to_pylist()]])
        changed_N = np.ones(n, bool)
        left, right = column.slice(0, n - 1), column.slice(1)
        differs = pc.fill_null(pc.not_equal(left, right), False)
        if column.null_count:
            differs = pc.or_(differs, pc.xor(pc.is_null(left), pc.is_null(right)))
        changed_N[1:] = np.asarray(differs)
        starts_G = np.flatnonzero(changed_N)
        return cls(starts_G, np.cumsum(changed_N) - 1, np.diff(starts_G, append=n))

    def sum(self, values_N: Array) -> Array:
        """Sum per group, as float64 or int64[G]."""
        if len(self.starts_G) == 0:
            return np.zeros(0, np.result_type(values_N.dtype, np.int64))
        wide = values_N.astype(np.result_type(values_N.dtype, np.int64), copy=False)
        return np.add.reduceat(wide, self.starts_G)

    def mean(self, values_N: Array, valid_N: Array | None = None) -> Array:
        """Mean per group over valid rows, float64[G]; nan where a group has none."""
        valid_N = np.ones(len(values_N), bool) if valid_N is None else valid_N
        with np.errstate(invalid="ignore"):
            mean_G = self.sum(np.where(valid_N, values_N, 0.0)) / self.sum(valid_N)
        if values_N.dtype.kind != "f" or len(mean_G) == 0:
            return mean_G
        # Rounding can push a mean past its values: the mean of three 0.1 is 0.10000000000000002.
        # Clipped to their range, equal values have exactly themselves as mean, and 0 as spread.
        low_G = np.minimum.reduceat(np.where(valid_N, values_N, np.inf), self.starts_G)
        high_G = np.maximum.reduceat(np.where(valid_N, values_N, -np.inf), self.starts_G)
        return np.minimum(np.maximum(mean_G, low_G), high_G, where=~np.isnan(mean_G), out=mean_G)

    def std(self, values_N: Array, valid_N: Array | None = None, ddof: int = 0) -> Array:
        """Standard deviation per group over valid rows, exactly 0 where they are equal; nan where
        there are too few for `ddof`."""
        valid_N = np.ones(len(values_N), bool) if valid_N is None else valid_N
        # Two passes, the mean first, so that no digits cancel.
        mean_N = self.mean(values_N, valid_N)[self.codes_N]
        square_N = np.where(valid_N, (np.where(valid_N, values_N, 0.0) - mean_N) ** 2, 0.0)
        count_G = self.sum(valid_N) - ddof
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(np.where(count_G > 0, self.sum(square_N) / count_G, np.nan))

    def rank(self, order_N: Array) -> Array:
        """Place of each row within its group by ascending `order_N`, int64[N] from 0, stable."""
        by_group = np.lexsort((order_N, self.codes_N))
        ranks_N = np.empty(len(order_N), np.int64)
        ranks_N[by_group] = self.position()
        return ranks_N

    def position(self) -> Array:
        """Index of each row within its group, int64[N] from 0."""
        return np.arange(len(self.codes_N)) - self.starts_G[self.codes_N]


def uniform_N(table: pa.Table, *, seed: int, salt: str) -> Array:
    """Return one reproducible uniform number in [0, 1) per row.

    It depends only on (seed, salt, prompt_id, index within the group), so a result does not change
    with chunk size, worker count or engine.

    Args:
        table: whole groups, with `prompt_id`.
        seed: the operator's own seed.
        salt: the operator's name, so that two operators draw different numbers.

    Returns:
        float64[N].
    """
    groups = Groups.of(table)
    first_ids = table["prompt_id"].take(groups.starts_G)
    base = xxhash.xxh3_64_intdigest(salt.encode(), seed=seed & 0xFFFFFFFFFFFFFFFF)
    hashes_G = hash_each(first_ids, seed=base)
    golden = np.uint64(0x9E3779B97F4A7C15)
    drawn = hashes_G[groups.codes_N] + groups.position().astype(np.uint64) * golden
    return uniform_of(mix(drawn))


def uniform_of(bits: Array) -> Array:
    """Numbers in [0, 1), float64, of random uint64."""
    # The top 53 bits, as many as a float64 holds.
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def hash_each(strings: pa.ChunkedArray | pa.Array, *, seed: int = 0) -> Array:
    """xxh3 of each string's UTF-8 bytes, uint64[N]; a null hashes like an empty string."""
    raws = strings.cast("binary")
    if raws.null_count:
        raws = pc.fill_null(raws, b"")
    digest = partial(xxhash.xxh3_64_intdigest, seed=seed)
    return np.fromiter(map(digest, raws.to_pylist()), np.uint64, len(raws))


def mix(z: Array) -> Array:
    """A 64-bit finaliser, uint64 to uint64: each input bit flips about half of the output bits.
    Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def scoped_keys(keys_N: Array, prompt_ids: pa.ChunkedArray) -> Array:
    """Keys that are equal only where the key and the prompt are equal, uint64[N]."""
    groups = Groups.of_column(prompt_ids)
    prompts_G = mix(hash_each(prompt_ids.take(pa.array(groups.starts_G))))
    return mix(keys_N + prompts_G[groups.codes_N])


def group_starts(table: pa.Table) -> pa.Array:
    """Whether a row is the first of its prompt."""
    starts_N = np.zeros(table.num_rows, bool)
    starts_N[Groups.of(table).starts_G] = True
    return pa.array(starts_N)


# --- Rows with equal hashes, found by one sort in place -----------------------------

_BLOCK = 1 << 20  # rows for which there are intermediate values at once


class EqualHashes(NamedTuple):
    """Rows whose hash other rows have, too: equal hashes side by side, each by ascending row."""

    rows_R: Array  # int32 where there are few enough rows, else int64
    first_R: Array  # bool, whether a row is the first of those with its hash

    @classmethod
    def of(cls, hashes_M: Array) -> EqualHashes:
        """Find them among uint64[M].

        A hash and its row share one integer while they are sorted: numpy sorts integers in place
        several times faster than it finds their order, and in half the memory. What fits beside the
        row are the hash's top bits, so the few rows that agree in these are then compared in all
        bits.
        """
        n = len(hashes_M)
        row_bits = np.uint64(max(n - 1, 1).bit_length())
        row_mask = (np.uint64(1) << row_bits) - np.uint64(1)
        packed_M = hashes_M & ~row_mask
        for start in range(0, n, _BLOCK):
            stop = min(n, start + _BLOCK)
            packed_M[start:stop] |= np.arange(start, stop, dtype=np.uint64)
        packed_M.sort()
        same_M = np.zeros(n + 1, bool)
        for start in range(1, n, _BLOCK):
            stop = min(n, start + _BLOCK)
            differs = packed_M[start:stop] ^ packed_M[start - 1 : stop - 1]
            same_M[start:stop] = differs <= row_mask
        packed_R = packed_M[same_M[:-1] | same_M[1:]]
        del packed_M, same_M  # What follows takes their place in memory.
        rows_R = (packed_R & row_mask).astype(row_type(n))
        equal_R = hashes_M[rows_R]
        # Stable, so that the rows of one hash keep their order.
        order_R = np.argsort(equal_R, kind="stable")
        rows_R, equal_R = rows_R[order_R], equal_R[order_R]
        first_R1 = np.ones(len(rows_R) + 1, bool)
        np.not_equal(equal_R[1:], equal_R[:-1], out=first_R1[1:-1])
        is_alone_R = first_R1[:-1] & first_R1[1:]
        return cls(rows_R[~is_alone_R], first_R1[:-1][~is_alone_R])


def row_type(n: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if n <= np.iinfo(np.int32).max else np.int64


def occurred_before(hashes_M: Array) -> Array:
    equal = EqualHashes.of(hashes_M)
    repeated_M = np.zeros(len(hashes_M), bool)
    repeated_M[equal.rows_R[~equal.first_R]] = True
    return repeated_M


def average_ranks(codes_N: Array, values_N: Array) -> Array:
    """The place of each value in order of group and value, from 0, as `rankdata` of scipy has it:
    equal values of a group share the mean of their places. Codes ascend, and values are finite."""
    order_N = np.lexsort((values_N, codes_N))
    codes, values = codes_N[order_N], values_N[order_N]
    new = np.ones(len(order_N), bool)
    new[1:] = (codes[1:] != codes[:-1]) | (values[1:] != values[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order_N))
    ranks_N = np.empty(len(order_N))
    ranks_N[order_N] = np.repeat((starts + ends - 1) / 2, ends - starts)
    return ranks_N
