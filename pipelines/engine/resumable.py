"""Resumable operators: each row is persisted as it finishes, and none is computed twice.

What such an operator computed is kept under a cache key of its own, whatever steps and whatever
code led to its rows; the commit of the step is a link to it. A row is found again by its content,
in whatever chunk it was. A killed run leaves a journal of the rows that were finished; the next run
computes the others, and writes all of them as one chunk.

    kept-policy_rollout_mapper-52c0…/generation          how often failed rows were retried
    kept-policy_rollout_mapper-52c0…/9af3….arrow         a finished chunk
    kept-policy_rollout_mapper-52c0…/9af3….keys          the content of its rows, hashed
    kept-policy_rollout_mapper-52c0…/77b1…-0.journal     finished rows of an unfinished chunk
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from filelock import FileLock, Timeout

from ...operators import Change, OperatorError, ResumableOperator
from ...operators.change import concatenate, split
from ...operators.check import checked
from ...operators.columns import BoolArray
from ..apply.frame import Frame
from ..apply.operator_call import (
    apply_operator,
    attribute_operator_errors,
    have_failures_kept,
    read_columns,
    without_dictionaries,
)
from ..apply.steps import StepResult
from ..dataset.files import temporary_path
from .commit import load, save
from .journal import Entry, Journal, entries, journals
from .progress import StepProgress

_log = logging.getLogger(__name__)
RETRIES_FILE = "generation"
"""In the folder of a step: how often its failures were computed again."""
_CHECKED_ROWS = 16

FindFailed = Callable[[Change, int], BoolArray]
"""Finds the rows that failed, among so many rows to which a change was made: bool[N]."""


class Computed(NamedTuple):
    """How many rows had to be computed, and how many of them had failed before."""

    rows: int
    retried: int


def run_resumable(
    operator: ResumableOperator,
    frame: Frame,
    kept: Path,
    path: Path,
    task: StepProgress,
    *,
    failed: Container[str] = frozenset[str](),
    before: Callable[[], None] = lambda: None,
) -> Computed:
    """Compute the rows of `frame` that are not finished yet, and commit all of them at `path`.

    Args:
        operator: the operator.
        frame: a chunk.
        kept: the folder of what this operator computed so far.
        path: of the commit.
        task: what counts the rows, found and computed.
        failed: keys of rows that `reopen` has opened again.
        before: called before a row is computed.

    Returns:
        How many rows had to be computed, and how many of them had failed before.

    Raises:
        RejuiceError: what the operator raised; rows that were finished before it are kept.
    """
    table, computed = read_columns(operator, frame), Computed(0, 0)
    keys = _row_keys(table)
    whole = kept / f"{xxhash.xxh3_128_hexdigest(' '.join(keys).encode())}.arrow"
    kept.mkdir(parents=True, exist_ok=True)
    with _locked(whole):
        if whole.exists():
            task.find(frame.num_rows)
        else:
            whole.with_suffix(".keys").write_text("\n".join(keys))
            finished = _finished_before(whole, keys)
            task.find(len(finished))
            left = [row for row in range(frame.num_rows) if row not in finished]
            computed = Computed(len(left), sum(keys[row] in failed for row in left))
            if left:
                before()
            save(whole, _finish(operator, table, whole, finished, task))
        for journal in journals(whole):
            journal.unlink(missing_ok=True)
    _link(path, whole)
    return computed


def _row_keys(table: pa.Table) -> list[str]:
    """A hash of each row's content."""
    texts = (json.dumps(row, default=repr, sort_keys=True) for row in table.to_pylist())
    return [xxhash.xxh3_128_hexdigest(text.encode()) for text in texts]


def _finished_before(path: Path, keys: Sequence[str]) -> dict[int, Entry]:
    """Rows that are finished: by a stopped run of this chunk, or as part of other chunks."""
    finished = _journalled(path)
    rows_by_key = defaultdict[str, list[int]](list)
    for row, key in enumerate(keys):
        if row not in finished:
            rows_by_key[key].append(row)
    for file in path.parent.glob("*.keys"):
        if not rows_by_key:
            break
        if file.stem == path.stem:
            continue  # This chunk, whose journals were read above.
        other_keys = file.read_text().split()
        wanted = {
            place: rows_by_key.pop(key)
            for place, key in enumerate(other_keys)
            if key in rows_by_key
        }
        for place, change in _rows_of_chunk(file.with_suffix(".arrow"), wanted):
            finished |= {row: Entry(row, change, 0.0) for row in wanted[place]}
            del wanted[place]
        for place, rows in wanted.items():
            rows_by_key[other_keys[place]] = rows  # It is not finished there either.
    return finished


def _journalled(whole: Path) -> dict[int, Entry]:
    """The rows of an unfinished chunk that are finished."""
    return {entry.row: entry for entry in entries(whole)}


def _rows_of_chunk(whole: Path, places: Container[int]) -> Iterator[tuple[int, Change]]:
    """The changes to these rows of a chunk; dropped rows are left out."""
    if whole.exists():
        commit = load(whole, mapped=False)
        each = enumerate(split(commit.change, range(commit.rows_in + 1)))
        yield from [(row, c) for row, c in each if row in places and not c.drops_all()]
    else:
        yield from [(each.row, each.change) for each in entries(whole) if each.row in places]


def _link(path: Path, whole: Path) -> None:
    """Put a link in place by one rename, as commits are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(whole, path.parent))
    temporary.replace(path)


def retry_count(folder: Path) -> int:
    """How often results of a step were retried; the keys of later steps depend on it."""
    path = folder / RETRIES_FILE
    return int(path.read_text()) if path.exists() else 0


def count_retry(folder: Path) -> None:
    """Count one more retry of a step, so that later steps get other keys."""
    (folder / RETRIES_FILE).write_text(str(retry_count(folder) + 1))


def reopen(
    kept: Path, find_failed: FindFailed, before: Callable[[], None] = lambda: None
) -> frozenset[str]:
    """Turn results with failed rows back into journals without them: these rows are retried.

    Args:
        kept: the folder of what the operator computed.
        find_failed: finds the failed rows.
        before: called once before anything is changed, if a row failed.

    Returns:
        The keys of the failed rows.
    """
    found = set[str]()
    for file in sorted(kept.glob("*.keys")):
        whole = file.with_suffix(".arrow")
        with _locked(whole):
            failed = _failed_places(whole, find_failed)
            if not failed:
                continue
            if not found:
                before()
                # First: no result of the old rows may ever be found under a key of the new rows.
                count_retry(kept)
            keys = file.read_text().split()
            found |= {keys[row] for row in failed}
            _rewrite_without(whole, failed)
    return frozenset(found)


def _failed_places(whole: Path, find_failed: FindFailed) -> set[int]:
    """The failed rows of a chunk, whether all of it is finished or not."""
    if not whole.exists():
        found = _journalled(whole).items()
        return {row for row, entry in found if find_failed(entry.change, 1)[0]}
    commit = load(whole)
    return set(np.flatnonzero(find_failed(commit.change, commit.rows_in)).tolist())


def _rewrite_without(whole: Path, failed: Container[int]) -> None:
    """Replace a chunk by journals of its rows, without the failed and the dropped ones."""
    old = journals(whole)
    if whole.exists():
        commit = load(whole, mapped=False)
        seconds = commit.seconds / commit.rows_in
        # Its notes are about all rows, and go with the first that stays.
        notes = commit.change.notes
        changes = split(commit.change._replace(notes={}), range(commit.rows_in + 1))
        each = (Entry(row, change, seconds) for row, change in enumerate(changes))
    else:
        notes, each = {}, (entry for entry in _journalled(whole).values())
    with Journal(whole) as journal:
        for entry in each:
            if entry.row in failed or entry.change.drops_all():
                continue
            noted = entry.change._replace(notes={**entry.change.notes, **notes})
            journal.add(entry._replace(change=noted))
            notes = {}
    for path in (*old, whole):
        path.unlink(missing_ok=True)


def dropped_rows(change: Change, num_rows: int) -> BoolArray:
    """Which rows a change drops, bool[N]."""
    if change.reasons is None:
        return np.zeros(num_rows, bool)
    return np.asarray(change.reasons.is_valid())


def _finish(
    operator: ResumableOperator,
    table: pa.Table,
    path: Path,
    finished: dict[int, Entry],
    task: StepProgress,
) -> StepResult:
    """Compute the rows that are not finished, and put all rows together."""
    if table.num_rows == 0:
        return StepResult(apply_operator(operator, table, 0), 0, 0.0, {})
    left = set(range(table.num_rows)) - set(finished)
    since = time.perf_counter()
    with Journal(path) as journal:
        for row, change in _changes(operator, table, sorted(left)) if left else ():
            if row not in left:
                raise OperatorError(f"finished row {row}, which it was not asked for")
            left.remove(row)
            seconds, since = time.perf_counter() - since, time.perf_counter()
            finished[row] = Entry(row, change, seconds)
            # A dropped row is not kept: should this run be stopped, the next one retries it.
            if not change.drops_all():
                journal.add(finished[row])
            task(1)
    if left:
        raise OperatorError(f"left out {len(left)} of {table.num_rows} rows")
    changes = [finished[row].change for row in range(table.num_rows)]
    change = checked(operator, concatenate(changes, [1] * len(changes)), table.num_rows)
    seconds = sum(entry.seconds for entry in finished.values())
    return StepResult.of(change, table.num_rows, seconds)


def _changes(
    operator: ResumableOperator, table: pa.Table, rows: Sequence[int]
) -> Iterator[tuple[int, Change]]:
    """The rows that the operator finishes, in its order; its exceptions are attributed to it."""
    with attribute_operator_errors(operator):
        have_failures_kept(operator, table)
        results = operator.process_rows(table, rows)
    for number in count():
        with attribute_operator_errors(operator):
            item = next(results, None)
        if item is None:
            return
        row, change = item
        if number < _CHECKED_ROWS:  # A bug shows in the first rows; all are checked at the end.
            change = checked(operator, change, 1)
        yield row, without_dictionaries(change)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a chunk: another recipe with the same first steps may be computing it."""
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _log.warning("another run computes the same rows: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
