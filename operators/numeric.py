"""Read a numeric column as float64, where nan is what Arrow calls null."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .errors import DataError


def numbers(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The numbers of column `name`, float64[N], nan where there is none.

    Raises:
        DataError: the column holds something else than numbers.

    Example:
        >>> numbers(pa.table({"reward": pa.array([1, None], pa.int64())}), "reward")
        array([ 1., nan])
    """
    column = table[name]
    kind = column.type
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not any(is_kind(kind) for is_kind in numeric):
        raise DataError(f"column '{name}' is {kind}, not numeric", "name a column of numbers")
    # Not safe: integers beyond 2**53 round to the nearest float64 instead of failing.
    return np.asarray(pc.fill_null(column.cast(pa.float64(), safe=False), np.nan))
