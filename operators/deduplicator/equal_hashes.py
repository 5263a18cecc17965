"""Rows with equal hashes, found by one sort in place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..groups import Array

_BLOCK = 1 << 20
"""Rows for which there are intermediate values at once."""


class EqualHashes(NamedTuple):
    """The rows whose hash other rows have, too: equal hashes side by side, each by ascending row.

    Attributes:
        rows_R: the rows, int32 where there are few enough of them, else int64.
        first_R: bool, whether a row is the first of those with its hash.
    """

    rows_R: Array
    first_R: Array

    @classmethod
    def of(cls, hashes_M: Array) -> EqualHashes:
        """Find them among uint64[M].

        A hash and its row share one integer while they are sorted: numpy sorts integers in place
        several times faster than it finds their order, and in half the memory. What fits beside
        the row are the hash's top bits, so the few rows that agree in these are then compared in
        all bits.
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
    """The smallest type for the numbers of n rows."""
    return np.int32 if n <= np.iinfo(np.int32).max else np.int64


def occurred_before(hashes_M: Array) -> Array:
    """Which hashes have occurred before, bool[M].

    Example:
        >>> occurred_before(np.array([7, 3, 7, 7], np.uint64)).tolist()
        [False, False, True, True]
    """
    equal = EqualHashes.of(hashes_M)
    repeated_M = np.zeros(len(hashes_M), bool)
    repeated_M[equal.rows_R[~equal.first_R]] = True
    return repeated_M
