"""What deduplicators compare: responses to a prompt, responses to all prompts, or prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa

from ..groups import Array

ComparedUnit = Literal["response", "prompt"]
Within = Literal["prompt", "all"]


def checked_unit(unit: ComparedUnit, column: str | None, within: Within | None) -> None:
    """Refuse fields that do not fit together.

    Raises:
        ValueError: `unit: prompt` with fields that apply only to responses.
    """
    if unit == "prompt" and within == "prompt":
        raise ValueError("unit prompt compares prompts with each other, so within must be all")
    if unit == "prompt" and column == "response":
        raise ValueError("unit prompt needs a column that all rows of a prompt share, not response")


def repeats(digest: pa.Table, unit: ComparedUnit, find: Callable[[Array], Array]) -> Array:
    """Which rows repeat an earlier one, bool[N].

    Args:
        digest: with the column `key`, null if there is nothing to compare; for prompts also
            `starts`, because a whole group follows its first row.
        unit: what is compared.
        find: from int64[M] rows to compare, ascending, to bool[M] which of them are repeats.
    """
    compared_N = np.asarray(digest["key"].is_valid())
    if unit == "prompt":
        starts_N = np.asarray(digest["starts"])
        compared_N &= starts_N
    rows_M = np.flatnonzero(compared_N)
    repeats_N = np.zeros(digest.num_rows, bool)
    repeats_N[rows_M] = find(rows_M)
    if unit == "prompt":
        repeats_N = repeats_N[starts_N][np.cumsum(starts_N) - 1]
    return repeats_N
