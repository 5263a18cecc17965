"""What deduplicators compare: responses to a prompt, responses to all prompts, or prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa

from ..arrow_compute import pc
from ..groups import Array, row_type

ComparedUnit = Literal["response", "prompt"]
Within = Literal["prompt", "all"]


def checked_unit(unit: ComparedUnit, column: str | None, within: Within | None) -> None:
    if unit == "prompt" and within == "prompt":
        raise ValueError("unit prompt compares prompts with each other, so within must be all")
    if unit == "prompt" and column == "response":
        raise ValueError("unit prompt needs a column that all rows of a prompt share, not response")


def repeats(digest: pa.Table, unit: ComparedUnit, find: Callable[[Array], Array]) -> Array:
    """Which rows repeat an earlier one, bool[N].

    `key` of the digest is null where there is nothing to compare; for prompts it has `starts`, too,
    because a whole group follows its first row. `find` says of rows, ascending, which are repeats.
    """
    compared_N = np.asarray(digest["key"].is_valid())
    if unit == "prompt":
        compared_N &= np.asarray(digest["starts"])
    rows_M = np.flatnonzero(compared_N).astype(row_type(len(compared_N)))
    repeats_N = np.zeros(digest.num_rows, bool)
    repeats_N[rows_M] = find(rows_M)
    return _as_first(repeats_N, digest) if unit == "prompt" else repeats_N


def shard(digest: pa.Table, unit: ComparedUnit) -> Array:
    """The shard of each row, uint64[N]: only rows with the same key are ever compared.

    A row without a key is compared with none, so it may be in any shard. All rows of a prompt are
    in that of its first row.
    """
    keys_N = np.asarray(pc.fill_null(digest["key"], 0))
    return _as_first(keys_N, digest) if unit == "prompt" else keys_N


def _as_first(values_N: Array, digest: pa.Table) -> Array:
    """For each row the value of the first row of its group."""
    starts_N = np.asarray(digest["starts"])
    first_N: Array = values_N[starts_N][np.cumsum(starts_N) - 1]
    return first_N
