"""Resumable operators: each row is persisted as it finishes, and none is computed twice.

What such an operator computed is kept under a cache key of its own, see `paid_rows.py`; the
commit of the step is a link to it. A killed run leaves a journal of the rows that were finished;
the next run computes the others, and writes all of them as one chunk.

Rows of several chunks are computed side by side. A chunk is opened as soon as the operator can
take more rows, and written once its last row is finished:

    chunks ──open──> rows to compute ──operator──> row finished ──> journal of its chunk
                                                       └── last one of its chunk ──> commit

Finished rows are on the disk, not in memory, until their chunk is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from ...operators import Change, DataError, OperatorError, ResumableOperator
from ...operators.check import RowTypes, checked
from ...operators.operator import RowsOfChunk, concatenate
from ..dataset.remote import AnyPath
from . import paid_rows_format as kept_chunk
from .commit import link
from .frame import Frame
from .paid_rows import (
    ChunkLock,
    Entry,
    Journal,
    KeptRows,
    Syncer,
    chunk_path,
    is_finished,
    journalled,
    journals,
    row_keys,
)
from .progress import StepProgress
from .steps import (
    StepResult,
    apply_operator,
    attribute_operator_errors,
    located_at,
    read_columns,
    without_dictionaries,
)

_OPEN_CHUNKS = 64
_OPEN_BYTES = 1 << 30
"""What open chunks may hold in memory: their input, and results that are in no journal."""
_WALKED_CHUNKS = 64
"""Most chunks without rows to compute that are passed at a time while rows of others are computed:
meanwhile no finished row is put on the disk."""
_ATTEMPTS = 3
"""How often the rows of a chunk are computed while their journals are damaged."""


class ChunkToRun(NamedTuple):
    """A chunk that a step has no commit of."""

    frame: Callable[[], Frame]  # gives its rows before the step
    path: AnyPath  # of the commit
    first_row: int = 0  # rows that the dataset has before it, for messages


class Computed(NamedTuple):
    """How many rows had to be computed, and how many of them had failed before."""

    rows: int
    retried: int


def run_resumable(
    operator: ResumableOperator,
    chunks: Iterable[ChunkToRun],
    kept: AnyPath,
    task: StepProgress,
    *,
    failed: Container[str] = frozenset[str](),
    before: Callable[[], None] = lambda: None,
) -> Computed:
    """Compute the rows of some chunks that are not finished yet, and commit all chunks.

    Returns:
        How many rows had to be computed, and how many of them had failed before.

    Raises:
        RejuiceError: what the operator raised; rows that were finished before it are kept.
    """
    kept.mkdir(parents=True, exist_ok=True)
    with Syncer() as syncer:
        window = _Window(operator, iter(chunks), KeptRows(kept), task, failed, before, syncer)
        try:
            window.run()
        finally:
            window.close()
    return window.computed


class _OpenChunk:
    """A chunk of which rows are being computed; its lock is held.

    Attributes:
        table: the rows that the operator reads.
        rows: how many they are.
        unwritten: finished rows that are in no journal of the chunk: they were dropped, or found.
        left: rows that are not finished.
        bytes: what it holds in memory.
    """

    def __init__(
        self, todo: ChunkToRun, table: pa.Table, rows: int, kept: KeptRows, types: RowTypes
    ) -> None:
        self.table, self.keys, self.rows = table, row_keys(table), rows
        self.whole = chunk_path(kept.folder, self.keys)
        self.lock = ChunkLock(self.whole)
        self.unwritten: dict[int, Entry] = {}
        self.left: set[int] = set()
        self.bytes = table.nbytes
        self._todo, self._kept, self._types = todo, kept, types
        self._journal: Journal | None = None
        self._damages = 0

    def open(self, operator: ResumableOperator) -> bool:
        """Find the rows that are finished; gives whether the whole chunk is."""
        finished = dict[int, Entry]()
        is_whole = is_finished(self.whole, self.keys)
        if not is_whole:
            finished = journalled(self.whole)
            # Once more: in a store another run may have finished it, and removed the journals.
            is_whole = is_finished(self.whole)
        if is_whole:
            self._kept.add(self.whole, self.keys)
            return True
        rows = [row for row in range(self.rows) if row not in finished]
        with attribute_operator_errors(operator):
            findable = operator.findable(self.table, rows)
        self.unwritten = self._kept.find(self.whole, self.keys, findable)
        self._kept.add(self.whole, self.keys)  # Not before, or it would find its own rows.
        self._check_types({**finished, **self.unwritten})
        self.left = set(rows) - self.unwritten.keys()
        self.bytes += sum(map(_size, self.unwritten.values()))
        return False

    def add(self, entry: Entry, syncer: Syncer) -> None:
        """Keep a row that was computed."""
        self.left.remove(entry.row)
        # A dropped row is not kept: should this run be stopped, the next one retries it.
        if entry.change.drops_all():
            self.unwritten[entry.row] = entry
            self.bytes += _size(entry)
            return
        self._journal = self._journal or Journal(self.whole, syncer)
        self._journal.add(entry)

    def commit(self, operator: ResumableOperator) -> bool:
        """Have all rows written as one chunk; False: some of them were damaged meanwhile.

        Raises:
            DataError: that happened before, as often as it is tried.
        """
        self._close_journal()
        with self.lock.writing():
            return self._commit(operator)

    def _commit(self, operator: ResumableOperator) -> bool:
        finished = {**self.unwritten, **journalled(self.whole)}
        if is_finished(self.whole):
            # In a store, where no lock keeps it away, another run was faster. Its chunk stays: it
            # may have been used already. Not looked for before the journals are read: that run has
            # removed them.
            return True
        self.left = set(range(self.rows)) - finished.keys()
        if self.left:
            self._check_damage()
            return False
        self._check_types(finished)
        if self.rows:
            changes = [finished[row].change for row in range(self.rows)]
            change = checked(operator, concatenate(changes, [1] * len(changes)), self.rows)
        else:
            change = apply_operator(operator, self.table, 0)
        seconds = sum(entry.seconds for entry in finished.values())
        result = StepResult.of(change, self.rows, seconds)
        kept_chunk.save(self.whole, result, self.keys, self._kept.retries)
        return True

    def finish(self) -> None:
        """Link the step's commit to the chunk, and let others have it."""
        for journal in journals(self.whole):
            journal.unlink(missing_ok=True)
        link(self._todo.path, self.whole)
        self.lock.release()

    def checked_row(self, operator: ResumableOperator, row: int, change: Change) -> Change:
        """Return the change to a row, once it is known that it can be kept.

        Raises:
            OperatorError: it does not fit what the operator declares, or the rows before it.
        """
        with self._named(row):
            return self._types.check(without_dictionaries(checked(operator, change, 1)))

    def _check_types(self, found: Mapping[int, Entry]) -> None:
        for row, entry in found.items():
            with self._named(row):
                self._types.check(entry.change)

    @contextmanager
    def _named(self, row: int) -> Iterator[None]:
        """Name the row in an error about it."""
        try:
            yield
        except OperatorError as error:
            raise located_at(error, self._todo.frame(), row, self._todo.first_row) from None

    def close(self) -> None:
        """Put on the disk what was computed, and let others have it."""
        try:
            self._close_journal()
        finally:
            self.lock.release()

    def _close_journal(self) -> None:
        if self._journal is not None:
            journal, self._journal = self._journal, None
            journal.close()

    def _check_damage(self) -> None:
        """Count that rows which were computed cannot be read."""
        self._damages += 1
        if self._damages == _ATTEMPTS:
            *_, file = self.whole, *journals(self.whole)  # The newest one, where there is one.
            lost = f"{len(self.left)} of {self.rows} rows could not be read back"
            found = f"{file} is damaged: {lost}, {_ATTEMPTS} times in a row"
            raise DataError(found, "check the disk; what can be read is kept")


def _size(entry: Entry) -> int:
    return sum(column.nbytes for column in entry.change.columns.values())


class _Window:
    """The open chunks of a step. Everything happens in the thread that iterates."""

    def __init__(
        self,
        operator: ResumableOperator,
        chunks: Iterator[ChunkToRun],
        kept: KeptRows,
        task: StepProgress,
        failed: Container[str],
        before: Callable[[], None],
        syncer: Syncer,
    ) -> None:
        self._operator, self._todo, self._kept, self._task = operator, chunks, kept, task
        self._failed, self._before, self._syncer = failed, before, syncer
        self._types = RowTypes(operator)
        self._locked = set[_OpenChunk]()
        self._given: dict[int, _OpenChunk] = {}  # by their numbers in a call of the operator
        self._damaged: list[_OpenChunk] = []
        self._numbers = count()
        self.computed = Computed(0, 0)

    def run(self) -> None:
        """Compute and commit all chunks.

        Raises:
            OperatorError: the operator finished other rows than those it was asked for.
            DataError: what was written of a chunk was damaged again and again.
        """
        self._run(self._opened())
        while self._damaged:  # Hardly ever: journals that were damaged while the last rows ended.
            self._run(self._wait())

    def close(self) -> None:
        """Put on the disk what is finished of chunks that are not, and let others have them."""
        with ExitStack() as stack:  # All of them, even where the disk refuses some.
            for chunk in self._locked:
                stack.callback(chunk.close)

    def _run(self, chunks: Iterator[RowsOfChunk | None]) -> None:
        self._numbers = count()
        since = time.perf_counter()
        for number, row, change in self._changes(chunks):
            chunk = self._given.get(number)
            if chunk is None or row not in chunk.left:
                raise OperatorError(f"finished row {row}, which it was not asked for")
            seconds, since = time.perf_counter() - since, time.perf_counter()
            chunk.add(Entry(row, change, seconds), self._syncer)
            self._task(1)
            if not chunk.left:
                del self._given[number]
                self._commit(chunk)
        for chunk in self._given.values():
            raise OperatorError(f"left out {len(chunk.left)} of {chunk.rows} rows")

    def _changes(self, chunks: Iterator[RowsOfChunk | None]) -> Iterator[tuple[int, int, Change]]:
        """The rows that the operator finishes, in its order; its errors are attributed to it."""
        operator = self._operator
        with attribute_operator_errors(operator):
            results = operator.process_chunks(chunks)
        while True:
            with attribute_operator_errors(operator):
                item = next(results, None)
                if item is None:
                    return
                number, row, change = item
                chunk = self._given.get(number)
                if chunk is not None and row in chunk.left:
                    change = chunk.checked_row(operator, row, change)
            yield number, row, change

    def _opened(self) -> Iterator[RowsOfChunk | None]:
        """What is left of each chunk; None while another one must be finished before, and from time
        to time, so that what was finished meanwhile is put on the disk."""
        walked = 0
        for todo in self._todo:
            while self._is_full():
                yield from self._wait()
            if walked >= _WALKED_CHUNKS and self._given:
                yield from self._wait()
                walked = 0
            frame = todo.frame()
            table = read_columns(self._operator, frame)
            chunk = _OpenChunk(todo, table, frame.num_rows, self._kept, self._types)
            yield from self._wait_for(chunk)
            is_whole = chunk.open(self._operator)
            self._task.find(chunk.rows - len(chunk.left))
            if chunk.left:
                self._before()
                self._count(chunk)
                self._operator.before_apply(table)
                yield self._give(chunk)
                walked = 0
                continue
            walked += 1
            if is_whole:
                self._finish(chunk)
            else:
                self._commit(chunk)

    def _give(self, chunk: _OpenChunk) -> RowsOfChunk:
        """Return what the operator is asked for, under the next number."""
        self._given[next(self._numbers)] = chunk
        return RowsOfChunk(chunk.table, sorted(chunk.left))

    def _count(self, chunk: _OpenChunk) -> None:
        """Count the rows of a chunk that are computed."""
        retried = sum(chunk.keys[row] in self._failed for row in chunk.left)
        rows = self.computed.rows + len(chunk.left)
        self.computed = Computed(rows, self.computed.retried + retried)

    def _is_full(self) -> bool:
        size = sum(chunk.bytes for chunk in self._locked)
        return bool(self._locked) and (len(self._locked) >= _OPEN_CHUNKS or size >= _OPEN_BYTES)

    def _wait(self) -> Iterator[RowsOfChunk | None]:
        """What the operator is asked for while nothing can be opened: what was damaged, or None."""
        if not self._damaged:
            yield None
        while self._damaged:
            yield self._give(self._damaged.pop())

    def _wait_for(self, chunk: _OpenChunk) -> Iterator[RowsOfChunk | None]:
        """Get the lock of a chunk; others are finished while another run, or one of them, has it.

        It never waits while it has locks that the other run may wait for.
        """
        while self._locked:
            if chunk.lock.try_acquire():
                break
            yield from self._wait()
        else:
            chunk.lock.acquire()
        self._locked.add(chunk)

    def _commit(self, chunk: _OpenChunk) -> None:
        """Write a chunk of which all rows are finished, or have what was damaged computed again."""
        if chunk.commit(self._operator):
            self._finish(chunk)
        else:
            self._damaged.append(chunk)

    def _finish(self, chunk: _OpenChunk) -> None:
        """Commit a chunk that is written."""
        chunk.finish()
        self._locked.remove(chunk)
