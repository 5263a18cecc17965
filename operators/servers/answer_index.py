"""Where the answers to keys are: 16 bytes of memory for each, whatever they are."""

from __future__ import annotations

import numpy as np

_FEWEST_MERGED = 1 << 16


class AnswerIndex:
    """Finds places by the first 8 bytes of a key; places are integers below 2**63.

    Two keys with the same first bytes share their places: the caller reads which is which.
    """

    def __init__(self) -> None:
        self._prefixes_N = np.empty(0, np.uint64)  # in order
        self._places_N = np.empty(0, np.int64)
        self._recent: dict[int, list[int]] = {}
        self._recent_places = 0

    def __len__(self) -> int:
        return len(self._places_N) + self._recent_places

    def add(self, key: bytes, place: int) -> None:
        """Add a place of a key, which may have others."""
        self._recent.setdefault(_prefix(key), []).append(place)
        self._recent_places += 1
        # In proportion, so that all merges of N places take a time proportional to N.
        if self._recent_places > max(_FEWEST_MERGED, len(self._places_N) // 4):
            self._merge()

    def find(self, key: bytes) -> list[int]:
        """All places of a key, the latest last."""
        prefix = _prefix(key)
        recent = self._recent.get(prefix, [])
        wanted = np.uint64(prefix)
        first = int(np.searchsorted(self._prefixes_N, wanted))
        if first == len(self._prefixes_N) or self._prefixes_N[first] != wanted:
            return list(recent)
        last = int(np.searchsorted(self._prefixes_N, wanted, side="right"))
        return [*self._places_N[first:last].tolist(), *recent]

    def _merge(self) -> None:
        prefixes = [prefix for prefix, places in self._recent.items() for _ in places]
        places = [place for places in self._recent.values() for place in places]
        prefixes_N = np.concatenate([self._prefixes_N, np.array(prefixes, np.uint64)])
        order_N = np.argsort(prefixes_N, kind="stable")
        self._prefixes_N = prefixes_N[order_N]
        self._places_N = np.concatenate([self._places_N, np.array(places, np.int64)])[order_N]
        self._recent, self._recent_places = {}, 0


def _prefix(key: bytes) -> int:
    return int.from_bytes(key[:8], "little")
