"""One operator on one table: what it reads, what it does, and who caused an exception."""

from __future__ import annotations

import re
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
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
from ...operators.change import split
from ...operators.check import checked
from ...operators.errors import first_line
from ..data_juicer.failures import NotReadyError
from ..data_juicer.steps import asks_server
from .failing_rows import ApplyRange, located
from .frame import Frame

_NETWORK = (ConnectionError, TimeoutError, socket.gaierror)
_JUDGED = f"{Operator.__module__.rpartition('.')[0]}.servers.judged_mapper"
_LONGEST_SEARCH_S = 30.0  # seconds that the rows may have taken: they are computed once more


def read_columns(operator: Operator, frame: Frame) -> pa.Table:
    """The columns an operator reads.

    Raises:
        DataError: a column is missing.
    """
    reads = operator.reads()
    if reads == ALL:
        return frame.table()
    names = operator.reads_of(frame.column_names)
    for name in names:
        if name not in frame.column_names:
            raise DataError(
                f"column '{name}' is missing", f"there are: {', '.join(frame.column_names)}"
            )
    return frame.select(names)


def digest(operator: Operator, frame: Frame) -> pa.Table:
    """What an operator of dataset scope keeps of some rows.

    Raises:
        RejuiceError: as `apply_operator` does; also where the digest has not one row for each row.
    """
    table = read_columns(operator, frame)
    with attribute_operator_errors(operator):
        kept = operator.digest(table)
        if kept.num_rows != frame.num_rows:
            raise OperatorError(
                f"made a digest of {kept.num_rows} rows from {frame.num_rows}",
                "a digest has one row for each row",
            )
    return kept


def apply_operator(operator: Operator, table: pa.Table, num_rows: int) -> Change:
    """Run `operator.apply` on a view (or, for dataset scope, on all digests) of `num_rows` rows.

    Raises:
        RejuiceError: what the operator raised, or an `OperatorError` where it failed otherwise.
    """
    with attribute_operator_errors(operator):
        have_failures_kept(operator, table)
        change = checked(operator, operator.apply(table), num_rows)
    return without_dictionaries(change)


def have_failures_kept(operator: Operator, table: pa.Table) -> None:
    """Have a judge keep what it cannot read of the answers about some rows, before it is asked.

    Raises:
        EngineError: it cannot be opened.
    """
    loaded = sys.modules.get(_JUDGED)  # Without it no operator is one; it takes 0.2 s to load.
    if loaded is not None and isinstance(operator, loaded.JudgedMapper):
        from ...operators.servers.failures import keep_failures

        keep_failures(operator, table)


def apply_to_digests(operator: Operator, digests: Sequence[pa.Table]) -> list[Change]:
    """The change to each part of a dataset, decided from the digests of all parts together.

    Raises:
        RejuiceError: as `apply_operator` does.
    """
    starts = [0, *accumulate(table.num_rows for table in digests)]
    return list(split(decide(operator, digests), starts))


def decide(operator: Operator, digests: Sequence[pa.Table]) -> Change:
    """The change to all rows of these digests, one part after the other.

    Raises:
        RejuiceError: as `apply_operator` does.
    """
    try:
        table = pa.concat_tables(digests, promote_options="permissive")
    except pa.ArrowTypeError as error:
        found = f"a step before it wrote a column in two types: {error}"
        raise OperatorError(found, "let it write one type always") from None
    return apply_operator(operator, table, table.num_rows)


def compute_change(operator: Operator, frame: Frame, first_row: int = 0) -> Change:
    """The change an operator makes to a whole frame, whatever its scope.

    Args:
        operator: what is to be applied.
        frame: rows before it.
        first_row: rows that the dataset has before the source of the frame, for messages.

    Raises:
        RejuiceError: what the operator raised; where its code failed, with the row.
    """
    reduce = digest if operator.scope is Scope.DATASET else read_columns
    table = reduce(operator, frame)
    start = time.perf_counter()
    try:
        return apply_operator(operator, table, frame.num_rows)
    except OperatorError as error:
        if error.__cause__ is None or isinstance(error, NotReadyError):
            raise
        seconds = time.perf_counter() - start
        # What is resumable, or asks a server, is too expensive to be done again for a message.
        is_expensive = isinstance(operator, ResumableOperator) or asks_server(operator)
        is_expensive = is_expensive or seconds > _LONGEST_SEARCH_S
        found = located(
            error, operator, frame, first_row, None if is_expensive else _ranges(operator, table)
        )
        raise found from found.__cause__


def _ranges(operator: Operator, table: pa.Table) -> ApplyRange:
    return lambda start, stop: apply_operator(
        operator, table.slice(start, stop - start), stop - start
    )


def without_dictionaries(change: Change) -> Change:
    """A change whose columns are plain: each chunk would have a dictionary of its own."""
    columns = {name: _decoded(column) for name, column in change.columns.items()}
    return change._replace(columns=columns)


@contextmanager
def attribute_operator_errors(operator: Operator) -> Iterator[None]:
    """Report an exception as a bug of the operator, with the line of its code."""
    try:
        yield
    except (RejuiceError, MemoryError):
        raise
    except OSError as error:
        # The runner takes what passes for one of the disk. Libraries raise it for the network, too.
        if error.errno is not None and not isinstance(error, _NETWORK):
            raise
        raise _operator_error(operator, error) from error
    except Exception as error:
        raise _operator_error(operator, error) from error


def _operator_error(operator: Operator, error: Exception) -> OperatorError:
    column = re.search(r'Field "(.+)" does not exist in schema', str(error))
    if isinstance(error, KeyError) and column:
        return OperatorError(f"uses column '{column[1]}'", "name it in reads()")
    frames = traceback.extract_tb(error.__traceback__)
    at = ([frame for frame in frames if frame.filename == _file(operator)] or frames)[-1]
    place = f"{Path(at.filename).name}:{at.lineno}"
    found = first_line(error) if isinstance(error, OSError) else error
    return OperatorError(f"failed with {type(error).__name__}: {found} ({place})")


def _file(operator: Operator) -> str:
    return str(getattr(sys.modules.get(type(operator).__module__), "__file__", ""))


def _decoded(column: Any) -> Any:
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
