"""Rows with equal hashes, found by one sort in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ..arrow_compute import pc
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
    """Return the smallest type for the numbers of n rows."""
    return np.int32 if n <= np.iinfo(np.int32).max else np.int64


def occurred_before(hashes_M: Array) -> Array:
    """Return which hashes have occurred before, bool[M].

    Example:
        >>> occurred_before(np.array([7, 3, 7, 7], np.uint64)).tolist()
        [False, False, True, True]
    """
    equal = EqualHashes.of(hashes_M)
    repeated_M = np.zeros(len(hashes_M), bool)
    repeated_M[equal.rows_R[~equal.first_R]] = True
    return repeated_M


# --- Units ----------------------------------------------------------------------------
# What deduplicators compare: responses to a prompt, responses to all prompts, or prompts.

ComparedUnit = Literal["response", "prompt"]
Within = Literal["prompt", "all"]


def checked_unit(unit: ComparedUnit, column: str | None, within: Within | None) -> None:
    """Refuse fields that do not fit together.

    Raises:
        ValueError: `unit: prompt` with fields that apply only to responses.
    """
    if unit == "prompt" and within == "prompt":
        raise ValueError("unit prompt compares prompts with each other, so within must be all")
    if unit == "prompt" and column == "response":
        raise ValueError("unit prompt needs a column that all rows of a prompt share, not response")


def repeats(digest: pa.Table, unit: ComparedUnit, find: Callable[[Array], Array]) -> Array:
    """Return which rows repeat an earlier one, bool[N].

    Args:
        digest: with the column `key`, null if there is nothing to compare; for prompts also
            `starts`, because a whole group follows its first row.
        unit: what is compared.
        find: from int[M] rows to compare, ascending, to bool[M] which of them are repeats.
    """
    compared_N = np.asarray(digest["key"].is_valid())
    if unit == "prompt":
        compared_N &= np.asarray(digest["starts"])
    rows_M = np.flatnonzero(compared_N).astype(row_type(len(compared_N)))
    repeats_N = np.zeros(digest.num_rows, bool)
    repeats_N[rows_M] = find(rows_M)
    return _as_first(repeats_N, digest) if unit == "prompt" else repeats_N


def shard(digest: pa.Table, unit: ComparedUnit) -> Array:
    """Return the shard of each row, uint64[N]: only rows with the same key are ever compared.

    A row without a key is compared with none, so it may be in any shard. All rows of a prompt are
    in that of its first row.

    Args:
        digest: as for `repeats`.
        unit: what is compared.
    """
    keys_N = np.asarray(pc.fill_null(digest["key"], 0))
    return _as_first(keys_N, digest) if unit == "prompt" else keys_N


def _as_first(values_N: Array, digest: pa.Table) -> Array:
    """For each row the value of the first row of its group."""
    starts_N = np.asarray(digest["starts"])
    first_N: Array = values_N[starts_N][np.cumsum(starts_N) - 1]
    return first_N
