"""Where groups start, to refuse a prompt whose rows are not contiguous."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import DataError, Groups
from ...operators.deduplicator.equal_hashes import EqualHashes
from ...operators.groups import hash_each
from .frame import Frame


class GroupStarts(NamedTuple):
    """Where the groups of a part of a dataset start.

    Attributes:
        hashes_G: uint64, a hash of each group's `prompt_id`.
        rows_G: int64, its first row in the dataset, from 0.
    """

    hashes_G: NDArray[np.uint64]
    rows_G: NDArray[np.int64]

    @classmethod
    def of(cls, frame: Frame, first_row: int) -> GroupStarts:
        """The groups of a frame whose source has `first_row` rows of the dataset before it.

        Groups of rows that an operator made are left out: they have no row in the dataset.
        """
        if "prompt_id" not in frame.column_names:
            return NO_GROUP_STARTS
        prompt_ids = frame.select(["prompt_id"])["prompt_id"]
        starts_G = Groups.of_column(prompt_ids).starts_G
        starts_G = starts_G[frame.source_rows[starts_G] >= 0]
        hashes_G = hash_each(prompt_ids.take(pa.array(starts_G)))
        return cls(hashes_G, frame.source_rows[starts_G] + first_row)


NO_GROUP_STARTS = GroupStarts(np.zeros(0, np.uint64), np.zeros(0, np.int64))


def _plain(row: int) -> str:
    return f"row {row + 1}"


def check_contiguous(parts: Sequence[GroupStarts], place: Callable[[int], str] = _plain) -> None:
    """Check that the rows of each prompt are contiguous; else it would be two smaller groups.

    Args:
        parts: the groups of all parts, in order.
        place: what to call a row of the dataset, from 0: `row 1`, or `row 1 of b.jsonl`.

    Raises:
        DataError: a prompt comes up again; the message names both rows, from 1.
    """
    hashes = np.concatenate([part.hashes_G for part in parts])
    again = EqualHashes.of(hashes).rows_R
    if len(again):
        rows = np.concatenate([part.rows_G for part in parts])
        first, second = (place(row) for row in rows[again[:2]].tolist())
        both = f"{first} and {second}"
        if " of " not in both:
            both = f"rows {both.replace('row ', '')}"
        raise DataError(
            f"{both} have the same prompt but are not next to each other",
            "sort the dataset by prompt, see docs/recipes.md",
        )
