"""Which row an operator fails on, for the message about it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...operators import Groups, Operator, OperatorError, RejuiceError, Scope
from .audit_log import NEW_ROW
from .frame import Frame

ApplyRange = Callable[[int, int], object]
"""Runs an operator on the rows from one to before another, for what it raises."""


def located(
    error: OperatorError,
    operator: Operator,
    frame: Frame,
    first_row: int,
    apply: ApplyRange | None,
) -> OperatorError:
    """An operator's error with the row that it fails on, or the group.

    The row is searched by halves; all in all, no row is computed more than once again.

    Args:
        error: what an exception in the operator's code became.
        operator: the one that failed on all rows of `frame` together.
        frame: rows before the operator.
        first_row: rows that the dataset has before the source of the frame.
        apply: None: the operator takes too long, or costs too much, to search the row.

    Returns:
        What the operator raises on that row alone. Where no row fails alone, the error with the
        range of rows; where the operator fails without any row, the error as it is.
    """
    if frame.num_rows == 0 or (apply is not None and _failure(apply, 0, 0)):
        return error
    if apply is None:
        return _add(error, _range(frame, first_row))
    starts = _starts(operator, frame)
    first, last = 0, len(starts) - 1
    while last - first > 1:
        middle = (first + last) // 2
        if _failure(apply, starts[first], starts[middle]):
            last = middle
        else:
            first = middle
    alone = _failure(apply, starts[first], starts[last])
    if alone is None:
        return _add(error, _range(frame, first_row))
    is_group = operator.scope is Scope.GROUP
    return _add(alone, _name(frame, int(starts[first]), first_row, is_group=is_group))


def located_at(error: OperatorError, frame: Frame, at: int, first_row: int) -> OperatorError:
    """An operator's error with a row of a frame, given its place there; see `located`."""
    return _add(error, _name(frame, at, first_row, is_group=False))


def _starts(operator: Operator, frame: Frame) -> NDArray[np.int64]:
    """Where the smallest parts start that the operator may be given, and the end of the last."""
    starts = np.arange(frame.num_rows)
    if operator.scope is Scope.GROUP and "prompt_id" in frame.column_names:
        starts = Groups.of(frame.select(["prompt_id"])).starts_G
    return np.append(starts, frame.num_rows)


def _failure(apply: ApplyRange, start: int, stop: int) -> OperatorError | None:
    try:
        apply(int(start), int(stop))
    except OperatorError as error:
        return error if error.__cause__ else None
    except (RejuiceError, OSError, MemoryError):
        return None
    return None


def _add(error: OperatorError, place: str) -> OperatorError:
    found = OperatorError(f"{error.found}, {place}", error.right, where=error.where)
    found.__cause__ = error.__cause__
    return found


def _name(frame: Frame, at: int, first_row: int, *, is_group: bool) -> str:
    """`at row 17, response_id 'a1b2'`: how the audit log and `rejuice explain` name the row."""
    number = int(frame.source_rows[at])
    names = [f"row {number + first_row + 1}"] if number >= 0 else []
    for column in ("prompt_id",) if is_group else ("response_id", "prompt_id"):
        value = frame.select([column])[column][at].as_py() if column in frame.column_names else None
        if value is not None:
            names.append(f"{column} {value!r}")
            break
    return f"{'in the group at' if is_group else 'at'} {', '.join(names) or NEW_ROW}"


def _range(frame: Frame, first_row: int) -> str:
    rows = frame.source_rows[frame.source_rows >= 0] + first_row + 1
    return f"in rows {rows.min():,} to {rows.max():,}" if len(rows) else "in new rows"
