"""Rows that are too dear to be lost: each is committed as it finishes, and none is done twice.

A killed run leaves pieces behind, one file for each row that was finished. The next run asks for
the other rows, and joins all pieces to one commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from filelock import FileLock

from ..operators import Change, OperatorError, StreamOperator
from ..operators.check import checked
from .apply import decide, own_faults, plain
from .commit import Commit, load, save
from .parts import joined
from .summary import summarise


def stream(
    operator: StreamOperator, table: pa.Table, path: Path, advance: Callable[[int], None]
) -> None:
    """Do the rows of `table` that are not done yet, and commit all of them at `path`.

    Args:
        operator: whose work it is.
        table: a chunk, with the columns that the operator reads.
        path: of the commit; its pieces lie beside it until it is there.
        advance: told how many rows are done.

    Raises:
        RejuiceError: what the operator raised; what finished before is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another recipe with the same beginning may be at the same rows: it goes first, or we do.
    with FileLock(path.with_suffix(".lock")):
        if path.exists():
            return
        done = {_row(piece) for piece in _pieces_of(path)}
        advance(len(done))
        left = set(range(table.num_rows)) - done
        dropped: list[tuple[int, Change]] = []
        with own_faults(operator):
            since = time.perf_counter()
            for row, change in operator.stream(table, sorted(left)) if left else ():
                if row not in left:
                    raise OperatorError(f"finished row {row}, which it was not asked for")
                left.remove(row)
                change = checked(operator, change, 1)
                if change.reasons is None or change.reasons.null_count:
                    seconds, since = time.perf_counter() - since, time.perf_counter()
                    _save_piece(path, row, change, seconds)
                else:  # Should the run be stopped, the next one may fare better.
                    dropped.append((row, change))
                advance(1)
        for row, change in dropped:
            _save_piece(path, row, change, 0.0)
        if left:
            raise OperatorError(f"left out {len(left)} of {table.num_rows} rows")
        save(path, _whole(operator, table, path))
        for piece in _pieces_of(path):
            piece.unlink(missing_ok=True)


def _save_piece(path: Path, row: int, change: Change, seconds: float) -> None:
    piece = path.with_name(f"{path.stem}-{row:08d}.arrow")
    save(piece, Commit(plain(change), 1, seconds, {}))


def _pieces_of(path: Path) -> list[Path]:
    """Of a chunk, in the order of its rows."""
    return sorted(path.parent.glob(f"{path.stem}-*.arrow"))


def _row(piece: Path) -> int:
    return int(piece.stem.rpartition("-")[2])


def _whole(operator: StreamOperator, table: pa.Table, path: Path) -> Commit:
    pieces = [load(piece) for piece in _pieces_of(path)]
    if pieces:
        change = joined([piece.change for piece in pieces], [1] * len(pieces))
    else:
        change = decide(operator, table, 0)
    seconds = sum(piece.seconds for piece in pieces)
    return Commit(change, table.num_rows, seconds, summarise(change.columns))
