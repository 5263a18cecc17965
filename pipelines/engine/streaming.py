"""Rows that are too dear to be lost: each is kept as it finishes, and none is done twice.

What a stream gave is kept under a key of its own (what decides the result), whatever steps and
whatever code led to the rows; the step's commit is a link to it. A row is found again by its
content, in whatever chunk it was. A killed run leaves a journal of the rows that were finished; the
next run asks for the other rows, and joins all.

    kept-policy_rollout_mapper-52c0…/generation
    kept-policy_rollout_mapper-52c0…/9af3….arrow         a chunk
    kept-policy_rollout_mapper-52c0…/9af3….keys          the content of its rows, hashed
    kept-policy_rollout_mapper-52c0…/77b1…-0.journal     rows of a chunk that is not done
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

import pyarrow as pa
import xxhash
from filelock import FileLock, Timeout

from ...operators import Change, OperatorError, ResumableOperator
from ...operators.check import checked
from ..apply.apply import decide, own_faults, plain, view
from ..apply.frame import Frame
from ..apply.parts import joined, shares
from ..apply.summary import summarise
from ..dataset.arrow_files import temporary_of
from .commit import Commit, load, save
from .journal import Entry, Journal, entries, journals

_log = logging.getLogger(__name__)
_GENERATION = "generation"
_LOOKED_AT = 16


def stream(
    operator: ResumableOperator,
    frame: Frame,
    kept: Path,
    path: Path,
    advance: Callable[[int], None],
) -> int:
    """Do the rows of `frame` that are not done yet, and commit all of them at `path`.

    Args:
        operator: whose work it is.
        frame: a chunk.
        kept: the folder of what this operator gave.
        path: of the commit.
        advance: told how many rows are done.

    Returns:
        How many rows had to be done.

    Raises:
        RejuiceError: what the operator raised; what finished before is kept.
    """
    table, done = view(operator, frame), 0
    keys = _keys(table)
    whole = kept / f"{xxhash.xxh3_128_hexdigest(' '.join(keys).encode())}.arrow"
    kept.mkdir(parents=True, exist_ok=True)
    with _held(whole):
        if whole.exists():
            advance(frame.num_rows)
        else:
            whole.with_suffix(".keys").write_text("\n".join(keys))
            found = _found(whole, keys)
            advance(len(found))
            done = frame.num_rows - len(found)
            save(whole, _finished(operator, table, whole, found, advance))
        for journal in journals(whole):
            journal.unlink(missing_ok=True)
    _link(path, whole)
    return done


def _keys(table: pa.Table) -> list[str]:
    """What each row holds, hashed."""
    texts = (json.dumps(row, default=repr, sort_keys=True) for row in table.to_pylist())
    return [xxhash.xxh3_128_hexdigest(text.encode()) for text in texts]


def _found(path: Path, keys: Sequence[str]) -> dict[int, Entry]:
    """Rows that were done before: in a run of this chunk that was stopped, or in other chunks."""
    found = {entry.row: entry for entry in entries(path)}
    rows_of = defaultdict[str, list[int]](list)
    for row, key in enumerate(keys):
        if row not in found:
            rows_of[key].append(row)
    for file in path.parent.glob("*.keys"):
        theirs = file.read_text().split()
        wanted = {place: rows_of.pop(key) for place, key in enumerate(theirs) if key in rows_of}
        for place, change in _kept(file.with_suffix(".arrow"), wanted):
            found |= {row: Entry(row, change, 0.0) for row in wanted[place]}
            del wanted[place]
        for place, rows in wanted.items():
            rows_of[theirs[place]] = rows  # It is not done there either.
    return found


def _kept(whole: Path, places: Container[int]) -> Iterator[tuple[int, Change]]:
    """What was done to these rows of a chunk, as far as they were not dropped."""
    if whole.exists():
        commit = load(whole, mapped=False)
        each = enumerate(shares(commit.change, range(commit.rows_in + 1)))
        yield from [(row, c) for row, c in each if row in places and not _drops(c)]
    else:
        yield from [(each.row, each.change) for each in entries(whole) if each.row in places]


def _link(path: Path, whole: Path) -> None:
    """Put a link in place, by one rename, as commits are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_of(path)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(whole, path.parent))
    temporary.replace(path)


def generation(kept: Path) -> int:
    """How often dropped rows of a step were given another try: what follows depends on it."""
    path = kept / _GENERATION
    return int(path.read_text()) if path.exists() else 0


def reopen(kept: Path, paths: Sequence[Path]) -> None:
    """Take commits apart, so that rows that were dropped are tried again and the others are kept.

    Args:
        kept: the folder of what the operator gave.
        paths: of the commits of one step.
    """
    wholes = [path.resolve() for path in paths if path.exists()]
    commits = {whole: load(whole, mapped=False) for whole in wholes}
    with_drops = {w: c for w, c in commits.items() if c.change.reasons is not None}
    if with_drops:
        # First, so that nothing that was made of the old rows is ever taken for the new ones'.
        (kept / _GENERATION).write_text(str(generation(kept) + 1))
    for whole, commit in with_drops.items():
        seconds = commit.seconds / commit.rows_in
        with Journal(whole) as journal:
            for row, change in enumerate(shares(commit.change, range(commit.rows_in + 1))):
                if not _drops(change):
                    journal.add(Entry(row, change, seconds))
        whole.unlink()


def _finished(
    operator: ResumableOperator,
    table: pa.Table,
    path: Path,
    done: dict[int, Entry],
    advance: Callable[[int], None],
) -> Commit:
    """Do the rows that are not done; all rows together."""
    if table.num_rows == 0:
        return Commit(decide(operator, table, 0), 0, 0.0, {})
    left = set(range(table.num_rows)) - set(done)
    since = time.perf_counter()
    with Journal(path) as journal:
        for row, change in _changes(operator, table, sorted(left)) if left else ():
            if row not in left:
                raise OperatorError(f"finished row {row}, which it was not asked for")
            left.remove(row)
            seconds, since = time.perf_counter() - since, time.perf_counter()
            done[row] = Entry(row, change, seconds)
            # What was dropped may fare better in the next run, should this one be stopped.
            if not _drops(change):
                journal.add(done[row])
            advance(1)
    if left:
        raise OperatorError(f"left out {len(left)} of {table.num_rows} rows")
    changes = [done[row].change for row in range(table.num_rows)]
    change = checked(operator, joined(changes, [1] * len(changes)), table.num_rows)
    seconds = sum(entry.seconds for entry in done.values())
    return Commit(change, table.num_rows, seconds, summarise(change.columns))


def _drops(change: Change) -> bool:
    return change.reasons is not None and not change.reasons.null_count


def _changes(
    operator: ResumableOperator, table: pa.Table, rows: Sequence[int]
) -> Iterator[tuple[int, Change]]:
    """What the operator finishes; its own faults are said to be its own."""
    with own_faults(operator):
        stream = operator.process_rows(table, rows)
    for number in count():
        with own_faults(operator):
            found = next(stream, None)
        if found is None:
            return
        row, change = found
        # A fault of the code shows in the first rows; all are looked at together in the end.
        yield row, plain(checked(operator, change, 1) if number < _LOOKED_AT else change)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Do it alone: another recipe that begins alike may be at the same rows."""
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _log.warning("another run is at the same rows: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
