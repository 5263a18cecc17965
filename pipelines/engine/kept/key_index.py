"""Where rows were kept, by the hash of their content: 24 bytes a row, in sorted arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_PLACE_BITS = 32


class _SortedKeys(NamedTuple):
    """Some keys in ascending order: their halves, and where they are.

    Attributes:
        high_N: uint64[N], the first 8 bytes of each key; ascending.
        low_N: uint64[N], the others.
        at_N: uint64[N], the number of the chunk and, in the lower 32 bits, the place in it.
    """

    high_N: NDArray[np.uint64]
    low_N: NDArray[np.uint64]
    at_N: NDArray[np.uint64]


class KeyIndex:
    """Finds rows in many chunks by their keys, which are 128-bit hashes in hex.

    What is added is sorted when the index is next asked, and merged with what is not much larger:
    adding chunks one by one takes N log N altogether.

    >>> index = KeyIndex()
    >>> index.add("first", ["00" * 16, "a1" * 16])
    >>> index.add("second", ["a1" * 16])
    >>> index.find(["ff" * 16, "a1" * 16])
    {'first': [(1, 1)], 'second': [(0, 1)]}
    """

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._names = set[str]()
        self._new: list[_SortedKeys] = []
        self._parts: list[_SortedKeys] = []

    def __contains__(self, chunk: str) -> bool:
        return chunk in self._names

    def __len__(self) -> int:
        return sum(len(part.at_N) for part in chain(self._new, self._parts))

    def add(self, chunk: str, keys: Sequence[str]) -> None:
        """Add the keys of all rows of a chunk, in their order."""
        high_N, low_N = _halves(keys)
        first = len(self._chunks) << _PLACE_BITS
        at_N = np.arange(first, first + len(keys), dtype=np.uint64)
        self._chunks.append(chunk)
        self._names.add(chunk)
        self._new.append(_SortedKeys(high_N, low_N, at_N))

    def find(self, keys: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
        """Where rows with these keys are.

        Returns:
            By chunk, in the order in which they were added: places in it, each with the index in
            `keys` of the key that is there.
        """
        self._merge()
        high_N, low_N = _halves(keys)
        found = list[tuple[int, int]]()
        for part in self._parts:
            start_N = np.searchsorted(part.high_N, high_N, "left")
            size_N = np.searchsorted(part.high_N, high_N, "right") - start_N
            # Each pair of a key that is looked for and one that begins like it.
            index_M = np.repeat(np.arange(len(keys)), size_N)
            first_M = np.repeat(np.cumsum(size_N) - size_N, size_N)
            place_M = np.repeat(start_N, size_N) + np.arange(len(index_M)) - first_M
            same = part.low_N[place_M] == low_N[index_M]
            found += zip(part.at_N[place_M[same]].tolist(), index_M[same].tolist(), strict=True)
        places = defaultdict[str, list[tuple[int, int]]](list)
        for at, index in sorted(found):
            place = at & ((1 << _PLACE_BITS) - 1)
            places[self._chunks[at >> _PLACE_BITS]].append((place, index))
        return dict(places)

    def _merge(self) -> None:
        if not self._new:
            return
        self._parts.append(_sorted(self._new))
        self._new = []
        while len(self._parts) > 1 and len(self._parts[-2].at_N) < 2 * len(self._parts[-1].at_N):
            self._parts[-2:] = [_sorted(self._parts[-2:])]


def _halves(keys: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The first and the last 8 bytes of each key, each uint64[N]."""
    both = np.frombuffer(bytes.fromhex("".join(keys)), ">u8").reshape(-1, 2).astype(np.uint64)
    return both[:, 0].copy(), both[:, 1].copy()


def _sorted(parts: list[_SortedKeys]) -> _SortedKeys:
    """Parts as one, column by column: at 10 million rows each takes 80 MB."""
    high_N = np.concatenate([part.high_N for part in parts])
    order_N = np.argsort(high_N, kind="stable")
    columns = (np.concatenate([part[column] for part in parts])[order_N] for column in range(1, 3))
    return _SortedKeys(high_N[order_N], *columns)
