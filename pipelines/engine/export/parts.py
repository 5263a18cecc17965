"""The files of an export, cut at groups: which rows of which chunks go into each.

chunk   0          1          2
rows    aabbbc  |  ddeeff  |  gghhhh
parts   0: aabbb   1: cdd ee    2: ffgg    3: hhhh         at most 5 rows each
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ExportSlice(NamedTuple):
    """Consecutive rows of a chunk after the last step.

    Attributes:
        chunk: its number.
        begin: the first of them.
        end: the first that is not; None: all of them.
        with_log: whether the decisions about the chunk go with these rows.
    """

    chunk: int
    begin: int
    end: int | None
    with_log: bool


class ExportPart(NamedTuple):
    """A file of an export.

    Attributes:
        number: from 0; None: it is the only one, as the recipe names it.
        slices: its rows, in order.
    """

    number: int | None
    slices: tuple[ExportSlice, ...]

    def name_of(self, stem: str, suffix: str) -> str:
        """`part-00003.parquet` of `part` and `.parquet`; the stem alone where it is the only one.

        Example:
            >>> ExportPart(3, ()).name_of("part", ".parquet")
            'part-00003.parquet'
        """
        return f"{stem}{suffix}" if self.number is None else f"{stem}-{self.number:05d}{suffix}"


def one_part(chunks: int) -> ExportPart:
    """All rows of so many chunks in one file."""
    return ExportPart(None, tuple(ExportSlice(chunk, 0, None, True) for chunk in range(chunks)))


def cut_parts(sizes: Sequence[NDArray[np.int64]], most: int) -> list[ExportPart]:
    """The parts of an export.

    Args:
        sizes: of each chunk, the rows of each of its groups, in order.
        most: rows of a part; only a group that has more by itself makes a larger one.

    Returns:
        At least one, even of no rows: a reader finds the columns there.
    """
    rows = np.array([int(sizes_G.sum()) for sizes_G in sizes], np.int64)
    starts = np.concatenate([[0], np.cumsum(rows)])
    ends_G = np.cumsum(np.concatenate([np.zeros(0, np.int64), *sizes]))
    ends_G = ends_G[np.diff(ends_G, prepend=0) > 0]
    cuts = [0]
    while cuts[-1] < starts[-1]:
        last = int(np.searchsorted(ends_G, cuts[-1] + most, side="right")) - 1
        first = int(np.searchsorted(ends_G, cuts[-1], side="right"))
        cuts.append(int(ends_G[max(first, last)]))
    if len(cuts) == 1:
        cuts.append(0)
    # Chunks without a row belong to the part of the row before them.
    owners = np.searchsorted(cuts[1:], starts[:-1], side="right").clip(max=len(cuts) - 2)
    parts = []
    for number, (begin, end) in enumerate(pairwise(cuts)):
        holds_rows = (starts[:-1] < end) & (starts[1:] > begin)
        chunks = np.flatnonzero(holds_rows | (owners == number))
        slices = (
            ExportSlice(
                int(chunk),
                int(max(begin - starts[chunk], 0)),
                int(min(end, starts[chunk + 1]) - starts[chunk]),
                bool(owners[chunk] == number),
            )
            for chunk in chunks
        )
        parts.append(ExportPart(number, tuple(slices)))
    return parts
