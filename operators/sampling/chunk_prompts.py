"""Samples for rows of several tables, of which an engine takes prompts as it becomes free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from ..operator import Change, RowsOfChunk
from .protocol import Failure, Group, Prompt

PromptOrChange: TypeAlias = tuple[int, Prompt | Change]
"""A row, and its prompt or, where it needs no sample, the change to it."""

SamplePrompts: TypeAlias = Callable[
    [Iterable[Prompt | None]], Iterator[tuple[int, Group | Failure]]
]
"""Samples as an engine does, see `Engine.sample`."""


class _Place(NamedTuple):
    """Where a prompt comes from: the table, by its number, the row, and its `prompt_id`."""

    table: int
    row: int
    prompt_id: pa.ChunkedArray


def changes_of_chunks(
    chunks: Iterator[RowsOfChunk | None],
    rows_of: Callable[[pa.Table, Sequence[int]], Iterator[PromptOrChange]],
    sample: SamplePrompts,
    change_of: Callable[[pa.ChunkedArray, Group | Failure], Change],
) -> Iterator[tuple[int, int, Change]]:
    """What `ResumableOperator.process_chunks` gives, of one call of the engine as a rule.

    Args:
        chunks: the tables.
        rows_of: the prompts of some rows of a table.
        sample: called when there are prompts.
        change_of: from the `prompt_id` of a row, string[1], and its result to the change to it.
    """
    feed = _Feed(chunks, rows_of)
    while True:
        prompts = feed.prompts()
        first = next(prompts, None)
        known = list(feed.take_known())
        yield from known
        if first is not None:
            for index, found in sample(chain([first], prompts)):
                place = feed.under_way.pop(index)
                yield place.table, place.row, change_of(place.prompt_id, found)
                yield from feed.take_known()
        elif not known:
            return


class _Feed:
    """The prompts of tables, one table after the other.

    Attributes:
        under_way: where prompts that were taken come from, by their index in the call.
    """

    def __init__(
        self,
        chunks: Iterator[RowsOfChunk | None],
        rows_of: Callable[[pa.Table, Sequence[int]], Iterator[PromptOrChange]],
    ) -> None:
        self._chunks, self._rows_of = chunks, rows_of
        self._known = deque[tuple[int, int, Change]]()
        self._rows: Iterator[PromptOrChange] = iter(())
        self._prompt_ids = pa.chunked_array([], pa.string())
        self._number = -1
        self.under_way: dict[int, _Place] = {}

    def prompts(self) -> Iterator[Prompt | None]:
        """For one call of the engine, which ends where no row under way could free the next table:
        what is known without the engine has to be taken before."""
        indices = count()
        while True:
            for row, found in self._rows:
                if isinstance(found, Prompt):
                    prompt_id = self._prompt_ids.slice(row, 1)
                    self.under_way[next(indices)] = _Place(self._number, row, prompt_id)
                    yield found
                else:
                    self._known.append((self._number, row, found))
            try:
                chunk = next(self._chunks)
            except StopIteration:
                return
            if chunk is not None:
                self._number += 1
                self._rows = self._rows_of(*chunk)
                self._prompt_ids = chunk.table["prompt_id"]
            elif self.under_way:
                yield None
            else:
                return

    def take_known(self) -> Iterator[tuple[int, int, Change]]:
        """The changes to rows that need no sample, each once."""
        while self._known:
            yield self._known.popleft()
