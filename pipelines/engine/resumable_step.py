"""Resumable operators: each row is kept as it finishes, and none is paid for twice.

    chunks ──open──> rows that are not kept ──operator──> finished row ──> kept rows
                                                             └── last one of its chunk ──> commit

Chunks of which every row is kept are committed; rows of the others are computed side by side. A
chunk is opened as soon as the operator can take more rows, and committed once its last row is
finished. Until then, finished rows are on the disk, not in memory. A killed run leaves them, and
the next run computes the others. A row is found by its content, whatever steps led to it, and in
whatever chunk it is.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import xxhash
from filelock import FileLock, Timeout

from ...operators import Change, DataError, OperatorError, ResumableOperator
from ...operators.check import RowTypes, checked
from ...operators.disk import check_is_file
from ...operators.kept_rows import KeptRows, open_kept_rows
from ...operators.logs import logger
from ...operators.operator import RowsOfChunk, concatenate
from ..recipe.steps import Step
from .conditional_step import matching
from .frame import Frame
from .plan import Plan, arrow_stream, as_table, kept_folder, of_table, save
from .progress import StepProgress
from .retry_missing import failed_rows
from .steps import (
    StepResult,
    apply_operator,
    attribute_operator_errors,
    located_at,
    read_columns,
    whole_result,
    without_dictionaries,
)

_log = logger(__name__)


def run_resumable(
    plan: Plan,
    step: Step,
    operator: ResumableOperator,
    sizes: Sequence[int],
    task: StepProgress,
    before: Callable[[], None] = lambda: None,
) -> tuple[int, int]:
    """Compute the rows of a step that are not kept yet, and commit all of its chunks.

    `sizes` are the rows of each chunk that the step is about; `before` is called before rows of a
    chunk are computed. Returns how many were, and how many of them had failed before.
    """
    kept = kept_folder(plan.cache, operator)
    with _sole_run(plan.folder(step)), closing(open_kept_rows(kept)) as rows:
        work = _OpenRows(plan, step, operator, sizes, rows, task, before)
        work.run()
    return work.computed, work.retried


@contextmanager
def _sole_run(folder: object) -> Iterator[None]:
    """Wait while another run computes the same step on the same rows: it would pay for them, too.

    In an object store there is no lock.
    """
    if not isinstance(folder, Path):
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    check_is_file(folder / "lock")
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _log.warning("another run computes the same rows: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@dataclass(eq=False)
class _Chunk:
    number: int
    frame: Frame  # before the step
    own: Frame  # its rows that the step is about
    table: pa.Table  # what the operator reads of these
    # of each row, its own key, and that of the first row of the chunk that is equal
    keys: Sequence[tuple[bytes, bytes]]
    lacking: set[int]  # rows to compute
    # rows that are kept once the chunk is whole: a run that is stopped before tries them again
    dropped: dict[int, StepResult] = field(default_factory=dict)


@dataclass(eq=False)
class _OpenRows:
    """The open chunks of a step. Everything happens in the thread that iterates."""

    plan: Plan
    step: Step
    operator: ResumableOperator
    sizes: Sequence[int]
    rows: KeptRows
    task: StepProgress
    before: Callable[[], None]
    given: dict[int, _Chunk] = field(default_factory=dict)  # by number in the operator's call
    failed: set[bytes] = field(default_factory=set)  # keys of rows that are tried again
    computed: int = 0
    retried: int = 0

    def __post_init__(self) -> None:
        self.retries, self.types = self.plan.retries(self.step), RowTypes(self.operator)

    def run(self) -> None:
        with attribute_operator_errors(self.operator):
            results = self.operator.process_chunks(self._opened())
        since = time.perf_counter()
        while True:
            with attribute_operator_errors(self.operator):
                item = next(results, None)
            if item is None:
                break
            number, row, change = item
            chunk = self.given.get(number)
            if chunk is None or row not in chunk.lacking:
                found = f"finished row {row}, which it was not asked for"
                raise OperatorError(f"{self.operator.name()} {found}")
            seconds, since = time.perf_counter() - since, time.perf_counter()
            result = StepResult(self._checked(chunk, row, change), 1, seconds)
            chunk.lacking.remove(row)
            if result.change.drops_all():
                chunk.dropped[row] = result
            else:
                self._keep(chunk.keys[row][0], result)
            self.task(1)
            if not chunk.lacking:
                del self.given[number]
                self._commit(chunk)
        for chunk in self.given.values():
            found = f"left out {len(chunk.lacking)} of {chunk.table.num_rows} rows"
            raise OperatorError(f"{self.operator.name()} {found}")

    def _opened(self) -> Iterator[RowsOfChunk]:
        given, committed = count(), self.plan.committed_chunks(self.step)
        for number, size in enumerate(self.sizes):
            if number in committed:
                self.task.find(size)
                continue
            chunk, kept = self._read(number)
            lacking = len(chunk.lacking)
            self.task.find(size - lacking)
            self.computed += lacking
            self.retried += sum(key in self.failed for key, _ in chunk.keys)
            if lacking:
                self.before()
                self.given[next(given)] = chunk
                yield RowsOfChunk(chunk.table, sorted(chunk.lacking))
            else:
                self._commit(chunk, kept)

    def _read(self, number: int) -> tuple[_Chunk, dict[bytes, bytes]]:
        """A chunk, which of its rows have to be computed, and what is kept of the others."""
        frame = self.plan.frame_before(number, self.step)
        own = matching(self.operator, frame) if self.operator.where else frame
        table = read_columns(self.operator, own)
        keys = self._keys(table)
        kept = self._kept(keys)
        lacking = {row for row, known in enumerate(keys) if kept.keys().isdisjoint(known)}
        return _Chunk(number, frame, own, table, keys, lacking), kept

    def _keys(self, table: pa.Table) -> list[tuple[bytes, bytes]]:
        """The keys of each row, see `_Chunk`; where no other has its result, it is of its place."""
        texts = (json.dumps(row, default=repr, sort_keys=True) for row in table.to_pylist())
        contents = [xxhash.xxh3_128_digest(text.encode()) for text in texts]
        seen = Counter[bytes]()
        whole = b"".join(contents)
        with attribute_operator_errors(self.operator):
            findable = frozenset(self.operator.findable(table, range(table.num_rows)))
        keys = list[tuple[bytes, bytes]]()
        for row, content in enumerate(contents):
            first = content if row in findable else _numbered(whole, row + 1)
            keys.append((_numbered(first, seen[first]), first))
            seen[first] += 1
        return keys

    def _kept(self, keys_of_rows: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
        """What is kept of rows, but for what was retried since."""
        found, keys = dict[bytes, bytes](), {key for keys in keys_of_rows for key in keys}
        for retry in range(self.retries.times, -1, -1):
            wanted = {self._of_retry(key, retry): key for key in keys - found.keys()}
            for of_retry, payload in self.rows.get(wanted).items():
                key, result = wanted[of_retry], _loaded(payload) if self.retries.times else None
                if result is None or self._counts(result, retry):
                    found[key] = payload
                elif not result.change.drops_all():
                    self.failed.add(key)
        return found

    def _counts(self, result: StepResult, retry: int) -> bool:
        """Whether what is kept of a row, since that retry, need not be computed again."""
        if result.change.drops_all():
            return retry >= self.retries.dropped
        return retry >= self.retries.missing or not self._has_failed(result)

    def _has_failed(self, result: StepResult) -> bool:
        return bool(failed_rows(self.operator, result.change, 1)[0])

    def _of_retry(self, key: bytes, retry: int) -> bytes:
        """The key of a row that a retry had no success with: successes are kept for all."""
        name = self.plan.first_folder(self.step).name.encode()
        return xxhash.xxh3_128_digest(b"%b %d %b" % (name, retry, key)) if retry else key

    def _keep(self, key: bytes, result: StepResult) -> None:
        times = self.retries.times
        if times and (result.change.drops_all() or self._has_failed(result)):
            key = self._of_retry(key, times)
        self.rows.put(key, arrow_stream(as_table(result)).to_pybytes())

    def _checked(self, chunk: _Chunk, row: int, change: Change) -> Change:
        """A change to a row, once it is known that it can be kept."""
        try:
            return self.types.check(without_dictionaries(checked(self.operator, change, 1)))
        except OperatorError as error:
            first_row = self.plan.source.first_row(chunk.number)
            raise located_at(error, chunk.own, row, first_row) from None

    def _commit(self, chunk: _Chunk, kept: Mapping[bytes, bytes] | None = None) -> None:
        for row, result in chunk.dropped.items():
            self._keep(chunk.keys[row][0], result)
        n, kept = len(chunk.keys), self._kept(chunk.keys) if kept is None else kept
        results = list[StepResult]()
        for key, first in chunk.keys:
            payload = kept.get(key) or kept.get(first)
            if payload is None:
                folder = kept_folder(self.plan.cache, self.operator)
                found = f"a row that was just written to {folder} cannot be read back"
                raise DataError(found, "check the disk, and run again: the other rows are kept")
            result = _loaded(payload)
            if key not in kept:  # What is noted and logged is counted with the row itself.
                same = result.change._replace(notes={}, logged={})
                result = result._replace(change=same, seconds=0.0)
            self.types.check(result.change)
            results.append(result)
        if results:
            change = concatenate([result.change for result in results], [1] * n)
            change = checked(self.operator, change, n)
        else:
            change = apply_operator(self.operator, chunk.table, 0)
        seconds = sum(result.seconds for result in results)
        whole = whole_result(self.step, chunk.frame, change, seconds=seconds)
        save(self.plan.path(self.step, chunk.number), whole)


def _numbered(key: bytes, number: int) -> bytes:
    """A key of the same row for each number; for 0 the key itself."""
    return xxhash.xxh3_128_digest(b"%d %b" % (number, key)) if number else key


def _loaded(payload: bytes) -> StepResult:
    return of_table(pa.ipc.open_stream(payload).read_all())
