"""Datasets that are in memory, in the forms in which notebooks have them, as Arrow tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...operators import RecipeError
from ...operators.errors import first_line, shortened
from .schemas import decoded

ACCEPTED = (
    "a path, a pyarrow.Table, a DataFrame of pandas or polars, a datasets.Dataset, "
    "or a list of dicts"
)


def as_table(data: Any) -> pa.Table | None:
    """Rows in memory as a table; None: `data` is something else, such as a path.

    No library is imported: an object of one that is not imported cannot be there.

    Args:
        data: a table, record batches or anything else with an Arrow stream (`__arrow_c_stream__`),
            a DataFrame or LazyFrame, a `datasets.Dataset`, or a list of dicts. An index of pandas
            becomes a column if it has a name.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, list | tuple):
        return _of_dicts(data) if any(isinstance(row, Mapping) for row in data) else None
    if _is(data, "datasets", "DatasetDict"):
        names = shortened(", ".join(map(str, data)))
        right = "give one of them: dataset['NAME']"
        raise RecipeError(f"dataset is a DatasetDict of splits: {names}", right)
    try:
        if _is(data, "pandas", "DataFrame"):
            return _of_pandas(data)
        if _is(data, "datasets", "Dataset"):
            return decoded("dataset", data.with_format("arrow")[:])
        if _is(data, "polars", "LazyFrame"):
            data = data.collect()
        if any(hasattr(data, name) for name in ("__arrow_c_stream__", "__arrow_c_array__")):
            return decoded("dataset", pa.table(data))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        found, line = f"dataset is a {type(data).__name__}", _line(error)
        if "non-struct" in line:
            raise RecipeError(f"{found}, which is a single column", f"give {ACCEPTED}") from None
        right = "change that, or give a pyarrow.Table"
        raise RecipeError(f"{found} that Arrow cannot hold: {line}", right) from None
    return None


def _is(data: Any, library: str, name: str) -> bool:
    """Whether something is of a class of a library, which may not be installed."""
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(data, kind)


def _of_dicts(rows: Sequence[Any]) -> pa.Table:
    """Rows as a table of all their keys; a key that a row lacks is null."""
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            found = f"dataset is a list whose item {number} is a {type(row).__name__}, not a dict"
            raise RecipeError(found, "give a list of dicts, or a list of paths")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        if not isinstance(name, str):
            found = f"dataset is a list of dicts with the key {name!r}"
            raise RecipeError(found, "give texts as keys: they are the names of columns")
        try:
            columns.append(pa.array([row.get(name) for row in rows]))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            found = f"no type of Arrow holds all values of '{name}': {_line(error)}"
            raise RecipeError(found, "give values of one type") from None
    return pa.Table.from_arrays(columns, names)


def _of_pandas(frame: Any) -> pa.Table:
    named = [name for name in frame.index.names if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    names = [str(name) for name in frame.columns]
    if len({*names}) < len(names):
        raise ValueError("two columns have the same name")
    # Texts as names before Arrow sees them: it warns of others.
    frame = frame.set_axis(names, axis="columns")
    return decoded("dataset", pa.Table.from_pandas(frame, preserve_index=False))


def _line(error: Exception) -> str:
    """What Arrow says in one line; pandas has it in several arguments."""
    return first_line(" ".join(map(str, error.args)))
