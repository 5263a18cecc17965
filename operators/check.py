"""`check_operator`: the contract that every operator passes, built-in or yours."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from contextlib import suppress
from numbers import Real
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from .columns import flat
from .errors import DataError, OperatorError, RejuiceError
from .groups import Array, Groups, mix
from .operator import (
    ALL,
    Change,
    Kind,
    Operator,
    ResumableOperator,
    RowsOfChunk,
    Scope,
    concatenate,
    interleave,
    split,
)
from .registry import build

_SLUG = re.compile(r"[a-z][a-z0-9_]*")
_MOST_SHARDS = 16


def check_operator(operator: Operator, table: pa.Table) -> Change:
    """Check that an operator keeps its promises on `table`, and on what is made of it.

    Checked: it reads only declared columns, writes exactly the declared ones, of the right
    length; reasons are declared slugs; parents ascend and no row vanishes without a reason; whole
    groups are dropped where `drops_within_groups` says so; the
    result is the same again, after pickling, from rebuilt config, and on any split of the rows
    its scope allows; an empty table, one-row groups and nulls do not break it (nulls may be
    refused with a DataError); a column has the same type every time. Where `shard` gives values,
    deciding the shards apart gives the same. A ResumableOperator also has
    to finish each row that `process_rows` is asked for once and no other, whether all rows are
    asked for or some, and with the change that `apply` makes to the row.

    Args:
        operator: the operator to check.
        table: rows it should handle, with at least two groups where its scope is `group`.

    Returns:
        What the operator did to `table`, for further assertions.

    Raises:
        OperatorError: the first broken promise.
        DataError: what the operator itself says of `table`.
    """
    unwritten = sorted(set(operator.replaces()) - set(operator.writes()))
    if unwritten:
        _broken(operator, f"replaces {unwritten}, which it does not write")
    change = _attempt(operator, table, "the columns it declares to read")
    _equal(operator, change, _attempt(operator, table, "a second run"), "a second run")
    _equal(operator, change, _attempt(_pickled(operator), table, "pickling"), "pickling")
    rebuilt = build(type(operator), operator.model_dump(mode="json"))
    after = "a rebuild from its config"
    _equal(operator, change, _attempt(rebuilt, table, after), after)
    empty = _attempt(operator, table.slice(0, 0), "an empty table")
    _same_types(operator, change, empty, "an empty table")
    _attempt(operator, _one_row_groups(table), "one-row groups")
    # An operator may stop here if it was configured to do so: `on_missing: fail`.
    with suppress(DataError):
        _attempt(operator, _with_nulls(table), "nulls")
    _check_whole_groups(operator, table, change)
    for at in _splits(operator, table):
        _check_split(operator, table, change, at)
    if operator.scope is Scope.DATASET:
        _check_shards(operator, table, change)
    if isinstance(operator, ResumableOperator):
        given, every = _declared(operator, table), range(table.num_rows)
        for rows in (every, every[1::2]):
            _check_finished(operator, change, [RowsOfChunk(given, rows)], "process_rows")
        if type(operator).process_chunks is not ResumableOperator.process_chunks:
            two = [RowsOfChunk(given, every)] * 2
            _check_finished(operator, change, two, "process_chunks")
    return change


def run(operator: Operator, table: pa.Table) -> Change:
    whole = operator.scope is Scope.DATASET
    change = operator.apply(operator.digest(table) if whole else table)
    return checked(operator, change, table.num_rows)


def checked(operator: Operator, change: Change, n: int) -> Change:
    rows_out = n if change.parents is None else len(change.parents)
    # What an operator that reads ALL will write is only known once it has run.
    if operator.reads() != ALL and set(change.columns) != set(operator.writes()):
        _broken(operator, f"wrote {sorted(change.columns)}, declared {sorted(operator.writes())}")
    if operator.reads() != ALL and set(change.without) != set(operator.removes()):
        _broken(operator, f"took {sorted(change.without)}, declared {sorted(operator.removes())}")
    for name in change.columns:
        is_value = name.startswith("reward_") and not name.endswith("_missing")
        if is_value and f"{name}_missing" not in change.columns:
            _broken(operator, f"wrote '{name}' without '{name}_missing': see component()")
    for name, column in change.columns.items():
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            _broken(operator, f"gave column '{name}' as a {type(column).__name__}: see pa.array()")
        if len(column) != rows_out:
            _broken(operator, f"column '{name}' has {len(column)} values for {rows_out} rows")
    if change.reasons is not None:
        if not isinstance(change.reasons, pa.Array | pa.ChunkedArray):
            _broken(operator, f"gave reasons as a {type(change.reasons).__name__}: see drop()")
        if len(change.reasons) != n:
            _broken(operator, f"gave {len(change.reasons)} reasons for {n} rows")
        if change.reasons.type != pa.string():
            _broken(operator, f"gave reasons of type {change.reasons.type}, not string")
        for slug in change.reasons.unique().to_pylist():
            if slug is not None and not _SLUG.fullmatch(slug):
                _broken(operator, f"reason {slug!r} is not a slug such as too_short")
            if slug is not None and operator.reasons and slug not in operator.reasons:
                _broken(operator, f"reason '{slug}' is not declared in `reasons`")
    if change.parents is not None:
        _check_parents(operator, change, n)
    if (failed := change.failed) is not None:
        if not isinstance(failed, np.ndarray) or failed.ndim != 1 or failed.dtype.kind not in "iu":
            _broken(operator, "gave failed rows that are no array of whole numbers")
        if len(failed) and (failed.min() < 0 or failed.max() >= n):
            _broken(operator, f"gave failed rows that are none of the {n}")
    for name, figure in change.notes.items():
        if not isinstance(figure, Real):  # As numpy's numbers are.
            _broken(operator, f"gave note '{name}' as a {type(figure).__name__}, not as a number")
    return change


class RowTypes:
    """The columns and types of the first row of a resumable operator, which all have: rows are kept
    one by one, and could not be put together otherwise."""

    def __init__(self, operator: ResumableOperator) -> None:
        self._operator = operator
        self._types: dict[str, pa.DataType] = {}

    def check(self, change: Change) -> Change:
        types = {name: column.type for name, column in change.columns.items()}
        first = self._types = self._types or types
        if types == first:
            return change
        for name in types.keys() & first.keys():
            if types[name] != first[name]:
                found = f"gave column '{name}' as {types[name]}, and before as {first[name]}"
                _broken(self._operator, found)
        _broken(self._operator, f"wrote {sorted(types)}, and before {sorted(first)}")


def shard_values(operator: Operator, digest: pa.Table) -> Array | None:
    values_N = operator.shard(digest)
    if values_N is None:
        return None
    if not isinstance(values_N, np.ndarray) or values_N.dtype != np.uint64:
        kind = getattr(values_N, "dtype", type(values_N).__name__)
        _broken(operator, f"gave shards as {kind}, not as an array of uint64")
    if values_N.shape != (digest.num_rows,):
        _broken(operator, f"gave {values_N.size} shards for {digest.num_rows} rows")
    return values_N


def check_shard(operator: Operator, change: Change) -> Change:
    if change.parents is not None:
        _broken(operator, "makes rows, so that shard() must return None")
    return change


def _check_parents(operator: Operator, change: Change, n: int) -> None:
    parents = np.asarray(change.parents)
    parents = parents[parents != -1]
    if len(parents) and (parents.min() < 0 or parents.max() >= n or (np.diff(parents) < 0).any()):
        _broken(operator, "parents must ascend and name rows of the input, or be -1")
    dropped = np.zeros(n, bool) if change.reasons is None else np.asarray(change.reasons.is_valid())
    born = np.zeros(n, bool)
    born[parents] = True
    if (born == dropped).any():
        row = int(np.flatnonzero(born == dropped)[0])
        _broken(operator, f"row {row} must have either children or a reason")


def _check_whole_groups(operator: Operator, table: pa.Table, change: Change) -> None:
    promised = operator.kind is not Kind.MAPPER and not operator.drops_within_groups()
    if not promised or change.reasons is None or "prompt_id" not in table.column_names:
        return
    dropped_N = np.asarray(change.reasons.is_valid())
    groups = Groups.of(table)
    if (np.isin(groups.mean(dropped_N), (0, 1), invert=True)).any():
        _broken(operator, "drops some rows of a group and keeps others: see drops_within_groups()")


def _check_split(operator: Operator, table: pa.Table, change: Change, at: int) -> None:
    after = f"a split at row {at}"
    tables = [table.slice(0, at), table.slice(at)]
    if operator.scope is Scope.DATASET:
        digests = [operator.digest(_declared(operator, half)) for half in tables]
        joined = pa.concat_tables(digests)
        values = [shard_values(operator, each) for each in (*digests, joined)]
        if _shards(values[:-1]) != _shards(values[-1:]):
            _broken(operator, f"shards differ after {after}")
        whole = operator.apply(joined)
        return _equal(operator, change, checked(operator, whole, table.num_rows), after)
    halves = [_attempt(operator, half, after) for half in tables]
    for half in halves:
        _same_types(operator, change, half, after)
    joined = concatenate(halves, [half.num_rows for half in tables])
    return _equal(operator, change, joined, after)


def _check_shards(operator: Operator, table: pa.Table, change: Change) -> None:
    digest = operator.digest(_declared(operator, table))
    values_N = shard_values(operator, digest)
    if values_N is None or not len(values_N):
        return
    check_shard(operator, change)
    order_N = np.argsort(mix(values_N), kind="stable")
    _, codes_N = np.unique(values_N[order_N], return_inverse=True)
    parts = [order_N[codes_N % _MOST_SHARDS == at] for at in range(_MOST_SHARDS)]
    parts = [rows for rows in parts if len(rows)]
    changes = [
        checked(operator, operator.apply(digest.take(pa.array(rows))), len(rows)) for rows in parts
    ]
    after = "deciding its shards apart"
    for each in changes:
        _same_types(operator, change, check_shard(operator, each), after)
    joined = interleave(changes, parts)
    _equal(operator, change, joined, after)
    if dict(change.notes) != dict(joined.notes):
        _broken(operator, f"notes do not add up after {after}")


def _shards(parts: Sequence[Array | None]) -> list[int] | None:
    values = [each.tolist() for each in parts if each is not None]
    return None if len(values) < len(parts) else [value for each in values for value in each]


def _check_finished(
    operator: ResumableOperator, change: Change, chunks: Sequence[RowsOfChunk], see: str
) -> None:
    asked = {(number, row) for number, chunk in enumerate(chunks) for row in chunk.rows}
    if not asked:
        return  # A run always asks for at least one row.
    left, of_table = set(asked), " of table {}" if len(chunks) > 1 else ""
    try:
        if see == "process_chunks":
            finished = operator.process_chunks(iter(chunks))
        else:
            finished = ((0, *each) for each in operator.process_rows(*chunks[0]))
        for number, row, own in finished:
            which = f"row {row}{of_table.format(number)}"
            if (number, row) not in left:
                again = "a second time" if (number, row) in asked else "which it was not asked for"
                _broken(operator, f"finishes {which}, {again}: see {see}()")
            left.remove((number, row))
            (share,) = split(change, [row, row + 1])
            _equal(operator, share, checked(operator, own, 1), f"processing {which} alone")
    except RejuiceError:
        raise
    except Exception as error:
        what = f"fails to process {len(asked)} rows one by one: {type(error).__name__}: {error}"
        _broken(operator, what, error)
    if left:
        number, row = min(left)
        which = f"row {row}{of_table.format(number)}"
        found = f"leaves out {which} of the {len(asked)} that it was asked for"
        _broken(operator, f"{found}: see {see}()")


def _attempt(operator: Operator, table: pa.Table, on: str) -> Change:
    try:
        return run(operator, _declared(operator, table))
    except RejuiceError:
        raise
    except Exception as error:
        # Operators are anybody's code: whatever they raise is reported as theirs, with its cause.
        _broken(operator, f"fails on {on}: {type(error).__name__}: {error}", error)


def _pickled(operator: Operator) -> Operator:
    try:
        copy: Operator = pickle.loads(pickle.dumps(operator))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        _broken(operator, f"cannot be pickled: {error}", error)
    return copy


def _declared(operator: Operator, table: pa.Table) -> pa.Table:
    # What the runner hands over: nothing else.
    if operator.reads() == ALL:
        return table
    reads = operator.reads_of(table.column_names)
    return table.select([name for name in table.column_names if name in reads])


def _splits(operator: Operator, table: pa.Table) -> list[int]:
    if table.num_rows < 2:
        return []
    if operator.scope is Scope.ROW and "prompt_id" not in operator.reads():
        return [1, table.num_rows // 2]
    if "prompt_id" not in table.column_names:
        return []
    return [int(start) for start in Groups.of(table).starts_G[1:3]]


def _with_nulls(table: pa.Table) -> pa.Table:
    """The last row is null, but for its group."""
    last = max(0, table.num_rows - 1)
    rows = pa.array([*range(last), *([None] if table.num_rows else [])], pa.int64())
    nulled = table.take(rows)
    if "prompt_id" in table.column_names:
        at = table.column_names.index("prompt_id")
        nulled = nulled.set_column(at, "prompt_id", table["prompt_id"])
    return nulled


def _one_row_groups(table: pa.Table) -> pa.Table:
    if "prompt_id" not in table.column_names:
        return table.slice(0, 1)
    return table.take(Groups.of(table).starts_G)


def _reasons(change: Change, n: int) -> pa.Array:
    return pa.nulls(n, pa.string()) if change.reasons is None else flat(change.reasons)


def _same_types(operator: Operator, one: Change, other: Change, after: str) -> None:
    for name in one.columns:
        types = one.columns[name].type, other.columns[name].type
        if types[0] != types[1]:
            _broken(operator, f"column '{name}' is {types[0]}, but {types[1]} after {after}")


def _equal(operator: Operator, one: Change, other: Change, after: str) -> None:
    _same_types(operator, one, other, after)
    for name in one.columns:
        if not _same(one.columns[name], other.columns[name]):
            _broken(operator, f"column '{name}' differs after {after}")
    # Where neither change says how many rows it is about, no reason differs.
    n = max((len(each.reasons) for each in (one, other) if each.reasons is not None), default=0)
    if not _same(_reasons(one, n), _reasons(other, n)):
        _broken(operator, f"reasons differ after {after}")
    # No parents (every row its own) and parents that name no row are not the same.
    lineages = [c.parents if c.parents is None else [*map(int, c.parents)] for c in (one, other)]
    if lineages[0] != lineages[1]:
        _broken(operator, f"parents differ after {after}")


def _same(one: Any, other: Any) -> bool:
    # Bitwise on the values, where nan is equal to nan.
    return repr(one.to_pylist()) == repr(other.to_pylist())


def _broken(operator: Operator, what: str, cause: Exception | None = None) -> NoReturn:
    found, right = f"{operator.name()} {what}", "see CONTRIBUTING.md, the operator contract"
    raise OperatorError(found, right) from cause
