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
    known = deque[tuple[int, RowsOfChunk, R]]()
    under_way = dict[int, tuple[int, RowsOfChunk]]()  # by index in the call of the engine
    failure: Exception | None = None
    exhausted = False
    left = (
        (number, RowsOfChunk(chunk.table, each.rows), each)
        for number, chunk in enumerate(chunks)
        for each in items_of(*chunk)
    )

    def for_one_call() -> Iterator[T]:
        """An error is not raised here, where it would end the call of the engine."""
        nonlocal exhausted, failure
        indices = count()
        try:
            for number, rows, each in left:
                if isinstance(each, ToCompute):
                    under_way[next(indices)] = number, rows
                    yield each.item
                else:
                    known.append((number, rows, each.result))
                    if len(known) >= _MOST_KNOWN:
                        return
        except Exception as error:
            failure = error
        exhausted = True

    def take_known() -> Iterator[tuple[int, RowsOfChunk, R]]:
        while known:
            yield known.popleft()

    while not exhausted:
        unfinished = for_one_call()
        first = next(unfinished, None)
        yield from take_known()
        if first is not None:  # Otherwise no engine is needed, nor opened.
            for index, result in compute(chain([first], unfinished)):
                yield *under_way.pop(index), result
                yield from take_known()
        yield from take_known()
    if failure is not None:
        raise failure
