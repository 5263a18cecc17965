"""Results for rows of several tables, of which an engine takes items as it becomes free for them.

    chunks ──> items of a chunk ──> engine ──> result ──> the rows of its item
                    └── what is known without the engine ──────┘

How an operator overrides `ResumableOperator.process_chunks`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Generic, TypeAlias, TypeVar

import pyarrow as pa

from .operator import RowsOfChunk

T = TypeVar("T")
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

ResultsOf: TypeAlias = Callable[[Iterable[T]], Iterator[tuple[int, R]]]
"""Results of items as they finish, each with the index of its item. Items are taken as `Engine`
takes prompts: in the thread that iterates, and as they are wanted."""

_MOST_KNOWN = 8192
"""Most results that wait, with their tables, while the engine works on other rows."""


def results_of_chunks(
    chunks: Iterator[RowsOfChunk], items_of: ItemsOf[T, R], compute: ResultsOf[T, R]
) -> Iterator[tuple[int, RowsOfChunk, R]]:
    """The number of a table, from 0, the table with some rows, and the result that they have, as
    they finish; of one call of the engine as a rule. What `chunks` or `items_of` raises comes after
    the results of all items before it: they may have been paid for."""
    items = _Items(chunks, items_of)
    while not items.exhausted:
        unfinished = items.for_one_call()
        first = next(unfinished, None)
        yield from items.take_known()
        if first is not None:  # Otherwise no engine is needed, nor opened.
            for index, result in compute(chain([first], unfinished)):
                yield *items.under_way.pop(index), result
                yield from items.take_known()
        yield from items.take_known()
    if items.error is not None:
        raise items.error


class _Items(Generic[T, R]):
    """The items of tables, one table after the other.

    Attributes:
        under_way: of items that were taken, by their index in the call: number of the table, rows.
        exhausted: whether there are no more.
        error: why, if they have not all been given.
    """

    def __init__(self, chunks: Iterator[RowsOfChunk], items_of: ItemsOf[T, R]) -> None:
        self._left = (
            (number, RowsOfChunk(chunk.table, each.rows), each)
            for number, chunk in enumerate(chunks)
            for each in items_of(*chunk)
        )
        self._known = deque[tuple[int, RowsOfChunk, R]]()
        self.under_way: dict[int, tuple[int, RowsOfChunk]] = {}
        self.exhausted = False
        self.error: Exception | None = None

    def for_one_call(self) -> Iterator[T]:
        """Items until so many results are known without the engine that they have to be taken. An
        error is the end of them, and not raised here, where it would end the call of the engine."""
        indices = count()
        try:
            for number, rows, each in self._left:
                if isinstance(each, ToCompute):
                    self.under_way[next(indices)] = number, rows
                    yield each.item
                else:
                    self._known.append((number, rows, each.result))
                    if len(self._known) >= _MOST_KNOWN:
                        return
        except Exception as error:
            self.error = error
        self.exhausted = True

    def take_known(self) -> Iterator[tuple[int, RowsOfChunk, R]]:
        """Yield what is known without the engine, each once."""
        while self._known:
            yield self._known.popleft()
