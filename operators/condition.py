"""The condition of a step, `where:`: which rows it is about.

    where: {data_source: [gsm8k, math], extra_info.level: {min: 3}}

A row matches if each of the columns does: it has the value, one of the values, or a number in the
range. Conditions are data and not code, so that whether two of them exclude each other is known
before anything is run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import Field, FiniteFloat, StrictBool, StrictFloat, StrictInt, StrictStr

from .arrow_compute import pc
from .columns import BoolArray, as_numbers, at_path, is_text
from .config import Config
from .errors import DataError, shown

Value: TypeAlias = StrictBool | StrictInt | StrictFloat | StrictStr | None


class ValueRange(Config):
    """A range of numbers; both ends belong to it."""

    min: FiniteFloat | None = None
    """The least number; null: there is no least one."""
    max: FiniteFloat | None = None
    """The greatest number; null: there is no greatest one."""


Wanted: TypeAlias = Value | Annotated[tuple[Value, ...], Field(min_length=1)] | ValueRange
"""A value, several of them, or a range."""
Where: TypeAlias = Mapping[str, Wanted]
"""What is wanted of each column, whose name may be a path such as `extra_info.level`."""


def checked_where(given: Any) -> Any:
    """A `where:` as it was given, or a ValueError that says what would be right."""
    if not isinstance(given, Mapping) or not given:
        raise ValueError("name a column and its value, such as {data_source: gsm8k}")
    for column, wanted in given.items():
        if not isinstance(column, str):
            raise ValueError(f"the column {shown(column)} is no text; quote its name")
        if isinstance(wanted, ValueRange):
            continue
        if isinstance(wanted, Mapping):
            _check_range(column, wanted)
            continue
        if wanted in ([], ()):
            raise ValueError(f"the list of '{column}' is empty: no row would match")
        for value in _values(wanted):
            if not (value is None or isinstance(value, bool | int | float | str)):
                found = f"'{column}' is compared with {shown(value)}"
                raise ValueError(f"{found}; give a text, a number, true, false or null")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"'{column}' is compared with {value}; give a finite number")
    return given


def _check_range(column: str, wanted: Mapping[Any, Any]) -> None:
    ends = {name: end for name, end in wanted.items() if end is not None}
    numeric = all(isinstance(e, int | float) and not isinstance(e, bool) for e in ends.values())
    if not ends or not wanted.keys() <= {"min", "max"} or not numeric:
        raise ValueError(f"'{column}' is {shown(dict(wanted))}; a range is {{min: 1, max: 3}}")
    if ends.get("min", -math.inf) > ends.get("max", math.inf):
        raise ValueError(f"the range of '{column}' has a min above its max: no row would match")


def matches(where: Where, table: pa.Table, by: str = "where") -> BoolArray:
    """bool[N]; a null matches only where null is among the values. A message names the field `by`
    which the columns are compared."""
    found_N = np.ones(table.num_rows, bool)
    for path, wanted in where.items():
        found_N &= _matches(f"{by} compares column '{path}'", wanted, at_path(table, path))
    return found_N


def _matches(what: str, wanted: Any, values: pa.Array) -> BoolArray:
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    bounds = _range(wanted)
    named = () if bounds is not None else _values(wanted)
    found_N = np.zeros(len(values), bool)
    if None in named:
        found_N |= np.asarray(pc.is_null(values))
    if pa.types.is_null(kind):
        return found_N
    if bounds is not None:
        if not _is_number(kind) and not is_text(kind):
            raise _mismatch(what, kind, "a range of numbers")
        number_N = np.asarray(pc.fill_null(as_numbers(values, f"{what}, which"), np.nan))
        return found_N | ((number_N >= bounds[0]) & (number_N <= bounds[1]))
    given = [value for value in named if value is not None]
    for value in given:
        if not _can_equal(kind, value):
            raise _mismatch(what, kind, shown(value))
    return found_N | _is_one_of(values, given) if given else found_N


def _is_one_of(values: pa.Array, given: list[Any]) -> BoolArray:
    """`given` are of the kind of the values, and compared as the column's type has it."""
    kind = values.type
    if pa.types.is_floating(kind):
        # 0.1 in YAML is meant to be the 0.1 of a float32 column, too.
        with np.errstate(over="ignore"):
            own = np.array(given, kind.to_pandas_dtype()).astype(np.float64)
        return np.isin(np.asarray(pc.fill_null(values.cast(pa.float64()), np.nan)), own)
    if pa.types.is_decimal(kind):
        equal = (pc.equal(values, pa.scalar(value)) for value in given)
        return np.asarray(np.any([pc.fill_null(each, False) for each in equal], axis=0))
    if pa.types.is_integer(kind):
        ends = np.iinfo(kind.to_pandas_dtype())
        given = [int(v) for v in given if v == int(v) and ends.min <= v <= ends.max]
    return np.asarray(pc.is_in(values, pa.array(given, kind)))


def _mismatch(what: str, kind: pa.DataType, wanted: str) -> DataError:
    return DataError(f"{what}, which is {kind}, with {wanted}", "give values of the column's type")


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _can_equal(kind: pa.DataType, value: Any) -> bool:
    if isinstance(value, str):
        return is_text(kind)
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    return _is_number(kind)


def _values(wanted: Any) -> tuple[Any, ...]:
    return tuple(wanted) if isinstance(wanted, list | tuple) else (wanted,)


def _range(wanted: Any) -> tuple[float, float] | None:
    if isinstance(wanted, ValueRange):
        wanted = wanted.model_dump()
    if not isinstance(wanted, Mapping):
        return None
    low, high = wanted.get("min"), wanted.get("max")
    return -math.inf if low is None else low, math.inf if high is None else high


# --- Whether two conditions exclude each other ----------------------------------------


def exclude_each_other(one: Where | None, other: Where | None) -> bool:
    """Whether no row can match both: they want different values of some column. None is the
    condition that all rows match."""
    if one is None or other is None:
        return False
    return any(_disjoint(wanted, other[path]) for path, wanted in one.items() if path in other)


def _disjoint(one: Any, other: Any) -> bool:
    a, b = _range(one), _range(other)
    if a and b:
        return a[1] < b[0] or b[1] < a[0]
    if ends := a or b:
        typed = map(_typed, _values(other if a else one))
        return not any(kind == "number" and ends[0] <= value <= ends[1] for kind, value in typed)
    return not {*map(_typed, _values(one))} & {*map(_typed, _values(other))}


def _typed(value: Any) -> tuple[str, Any]:
    """A value and its type, as columns have it: true is not 1, but 1.0 is."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__, value


def described(where: Where) -> str:
    """In words, such as `data_source is gsm8k or math, level from 2 to 4`."""
    return ", ".join(f"{path} {_described(wanted)}" for path, wanted in where.items())


def _described(wanted: Any) -> str:
    bounds = _range(wanted)
    if bounds is None:
        texts = ["null" if v is None else str(v).lower() if isinstance(v, bool) else str(v)
                 for v in _values(wanted)]  # fmt: skip
        return f"is {' or '.join(texts)}"
    low, high = bounds
    if math.isinf(low):
        return f"at most {high:g}"
    return f"at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
