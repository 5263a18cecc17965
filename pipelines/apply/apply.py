"""Apply one operator to rows in memory. Everything that runs operators goes through here."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...operators import (
    ALL,
    Change,
    DataError,
    Operator,
    OperatorError,
    RejuiceError,
    ResumableOperator,
    Scope,
)
from ...operators.check import checked
from .frame import Frame


def view(operator: Operator, frame: Frame) -> pa.Table:
    """The columns an operator reads.

    Raises:
        DataError: a column is not there.
    """
    reads = operator.reads()
    if reads == ALL:
        return frame.table()
    for name in reads:
        if name not in frame.column_names:
            raise DataError(
                f"column '{name}' is missing", f"there are: {', '.join(frame.column_names)}"
            )
    return frame.select(reads)


def digest(operator: Operator, frame: Frame) -> pa.Table:
    """What an operator of dataset scope keeps of some rows.

    Raises:
        RejuiceError: as `decide` does; also where the digest has not one row for each row.
    """
    table = view(operator, frame)
    with own_faults(operator):
        kept = operator.digest(table)
        if kept.num_rows != frame.num_rows:
            raise OperatorError(
                f"made a digest of {kept.num_rows} rows from {frame.num_rows}",
                "a digest has one row for each row",
            )
    return kept


def decide(operator: Operator, table: pa.Table, num_rows: int) -> Change:
    """Run `operator.apply` on a view (or, for dataset scope, on all digests) of `num_rows` rows.

    Raises:
        RejuiceError: what the operator raised, or an `OperatorError` where it failed otherwise.
    """
    with own_faults(operator):
        change = checked(operator, operator.apply(table), num_rows)
    return plain(change)


def plain(change: Change) -> Change:
    """A change without dictionaries, which are a way of storing; each chunk would have its own."""
    columns = {name: _plain(column) for name, column in change.columns.items()}
    return change._replace(columns=columns)


@contextmanager
def own_faults(operator: Operator) -> Iterator[None]:
    """Say of an exception that it is a bug of the operator, and where in its code."""
    try:
        yield
    except (RejuiceError, OSError, MemoryError):
        raise
    except Exception as error:
        raise _own_fault(operator, error) from error


def _own_fault(operator: Operator, error: Exception) -> OperatorError:
    column = re.search(r'Field "(.+)" does not exist in schema', str(error))
    if isinstance(error, KeyError) and column:
        return OperatorError(f"uses column '{column[1]}'", "name it in reads()")
    frames = traceback.extract_tb(error.__traceback__)
    at = ([frame for frame in frames if frame.filename == _file(operator)] or frames)[-1]
    place = f"{Path(at.filename).name}:{at.lineno}"
    return OperatorError(f"failed with {type(error).__name__}: {error} ({place})")


def _file(operator: Operator) -> str:
    return str(getattr(sys.modules.get(type(operator).__module__), "__file__", ""))


def _plain(column: Any) -> Any:
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def change_of(operator: Operator, frame: Frame) -> Change:
    """The change an operator makes to a whole frame, whatever its scope."""
    reduce = digest if operator.scope is Scope.DATASET else view
    return decide(operator, reduce(operator, frame), frame.num_rows)


def run_in_memory(operators: Sequence[Operator], table: pa.Table) -> pa.Table:
    """The rows that are left of `table` after some operators: the reference for every engine."""
    frame = Frame.of(table)
    for operator in operators:
        try:
            frame = frame.after(change_of(operator, frame))
        except RejuiceError as error:
            raise error.at(operator.name()) from error.__cause__
        finally:
            if isinstance(operator, ResumableOperator):
                operator.close()
    return frame.table()
