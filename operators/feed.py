"""Hands items out one by one, as whoever works on them becomes free for them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
Numbered: TypeAlias = tuple[int, T]
"""An item, after its number among those that were taken, from 0."""
ASK_AGAIN_S = 1.0
"""Seconds after which an iterable that had no item is asked again, if none is finished before."""


class Feed(Generic[T]):
    """Takes items from an iterable, no earlier than they are wanted.

    The iterable gives None if it has none at present. It is asked again once an item is finished,
    or after `ASK_AGAIN_S`: it may have looked for one only for a while.

    Attributes:
        under_way: items that were taken and are not finished.
        exhausted: whether there are no more.

    >>> feed = Feed(["a", None, "b"])
    >>> feed.take(), feed.take()
    ((0, 'a'), None)
    >>> feed.finish()
    >>> feed.take(), feed.take(), feed.exhausted
    ((1, 'b'), None, True)
    """

    def __init__(self, items: Iterable[T | None]) -> None:
        self._items, self._number, self._paused_until = iter(items), 0, -math.inf
        self.under_way, self.exhausted = 0, False

    def take(self) -> Numbered[T] | None:
        """The next item; None if there are no more, or none at present.

        Raises:
            ValueError: the iterable gave None while no item was under way.
        """
        if self.exhausted or time.monotonic() < self._paused_until:
            return None
        try:
            item = next(self._items)
        except StopIteration:
            self.exhausted = True
            return None
        if item is None:
            if not self.under_way:
                raise ValueError("items gave None while none was under way: nothing would follow")
            self._paused_until = time.monotonic() + ASK_AGAIN_S
            return None
        self.under_way += 1
        self._number += 1
        return self._number - 1, item

    def take_up_to(self, number: int) -> list[Numbered[T]]:
        """The next items, at most so many, as far as there are any for now."""
        taken = list[Numbered[T]]()
        while len(taken) < number and (following := self.take()) is not None:
            taken.append(following)
        return taken

    def finish(self) -> None:
        """Note that an item is finished, so that the iterable may have another one."""
        self.under_way -= 1
        self._paused_until = -math.inf
