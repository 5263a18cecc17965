"""Results for rows of several tables, of which an engine takes items as it becomes free for them.

    chunks ──> items of a chunk ──> engine ──> result ──> the rows of its item
                    └── what is known without the engine ──────┘

How an operator overrides `ResumableOperator.process_chunks`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Generic, TypeAlias, TypeVar

import pyarrow as pa

from .operator import RowsOfChunk

# --- Items, taken as whoever works on them becomes free -------------------------------

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
        """Return the next item; None if there are no more, or none at present.

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
        """Return the next items, at most so many, as far as there are any for now."""
        taken = list[Numbered[T]]()
        while len(taken) < number and (following := self.take()) is not None:
            taken.append(following)
        return taken

    def finish(self) -> None:
        """Note that an item is finished, so that the iterable may have another one."""
        self.under_way -= 1
        self._paused_until = -math.inf


# --- Results of items, by the rows that they are for ----------------------------------

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class ToCompute(Generic[T]):
    """What an engine is given, and the rows of the table that its result is for."""

    rows: Sequence[int]
    item: T


@dataclass(frozen=True)
class KnownResult(Generic[R_co]):
    """A result that needs no engine, and its rows of the table."""

    rows: Sequence[int]
    result: R_co


ItemsOf: TypeAlias = Callable[[pa.Table, Sequence[int]], Iterator[ToCompute[T] | KnownResult[R]]]
"""From a table and some of its rows to items; each row is of one of them."""

ResultsOf: TypeAlias = Callable[[Iterable[T | None]], Iterator[tuple[int, R]]]
"""Results of items as they finish, each with the index of its item. Items are taken as `Engine`
takes prompts: in the thread that iterates, as they are wanted, and None stands for none at present,
which does not count as an index."""


def results_of_chunks(
    chunks: Iterator[RowsOfChunk | None], items_of: ItemsOf[T, R], compute: ResultsOf[T, R]
) -> Iterator[tuple[int, RowsOfChunk, R]]:
    """Yield the result of each row, as they finish; of one call of the engine as a rule.

    Yields:
        The number of a table, from 0, the table with some rows, and the result that they have.

    Raises:
        Exception: what `chunks` or `items_of` raised, after the results of all items before it:
            they may have been paid for.
    """
    items = _Items(chunks, items_of)
    while True:
        unfinished = items.for_one_call()
        first = next(unfinished, None)
        known = list(items.take_known())
        yield from known
        if first is not None:
            for index, result in compute(chain([first], unfinished)):
                yield *items.under_way.pop(index), result
                yield from items.take_known()
        if items.error is not None:
            yield from items.take_known()
            raise items.error
        if first is None and not known:
            return


class _Items(Generic[T, R]):
    """The items of tables, one table after the other.

    Attributes:
        under_way: of items that were taken, by their index in the call: number of the table, rows.
        error: why there are no more.
    """

    def __init__(self, chunks: Iterator[RowsOfChunk | None], items_of: ItemsOf[T, R]) -> None:
        self._chunks, self._items_of, self._number = chunks, items_of, -1
        self._known = deque[tuple[int, RowsOfChunk, R]]()
        self._table = pa.table({})
        self._left: Iterator[ToCompute[T] | KnownResult[R]] = iter(())
        self.under_way: dict[int, tuple[int, RowsOfChunk]] = {}
        self.error: Exception | None = None

    def for_one_call(self) -> Iterator[T | None]:
        """Items until no row under way could free the next table: what is known without the engine
        has to be taken before. An error is the end of them, and not raised here, where it would end
        the call of the engine."""
        try:
            yield from self._for_one_call()
        except Exception as error:
            self.error = error

    def _for_one_call(self) -> Iterator[T | None]:
        indices = count()
        while True:
            for each in self._left:
                place = self._number, RowsOfChunk(self._table, each.rows)
                if isinstance(each, ToCompute):
                    self.under_way[next(indices)] = place
                    yield each.item
                else:
                    self._known.append((*place, each.result))
            try:
                chunk = next(self._chunks)
            except StopIteration:
                return
            if chunk is not None:
                self._number, self._table = self._number + 1, chunk.table
                self._left = self._items_of(*chunk)
            elif self.under_way:
                yield None
            else:
                return

    def take_known(self) -> Iterator[tuple[int, RowsOfChunk, R]]:
        """Yield what is known without the engine, each once."""
        while self._known:
            yield self._known.popleft()
