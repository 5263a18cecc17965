"""Which texts go through an embedding model together, and how far they are padded.

Both plans take the lengths of texts in tokens, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ..groups import Array


class TextBatch(NamedTuple):
    """Texts that go through the model together.

    Attributes:
        rows: their places among the texts of the call.
        length: in tokens, to which each is padded.
        copies: of the first text, which fill the batch up.
    """

    rows: list[int]
    length: int
    copies: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that the model computes, padding and copies included."""
        return (len(self.rows) + self.copies) * self.length


Batching = Callable[[Array, int], Iterator[TextBatch]]
"""From the lengths of N texts and the longest length that the model takes, to batches."""

TOKEN_BUDGET = 16_384
_LEAST_SHARE = 0.75
_FIXED_ROWS, _FIXED_TOKENS = 8, 512


def of_fixed_shape(lengths_N: Array, longest: int) -> Iterator[TextBatch]:
    """Batches in which the arithmetic for a text does not depend on the other texts.

    A text is padded to a length that depends only on its own (16, 32, .., 128, 192, ..), and the
    batches of a length are all filled up to the same number of rows: 8, or as few as have 512
    tokens together, which keep a processor busy. So a text meets the same shapes in any company.
    """
    padded_N = np.array([min(_padded(length), longest) for length in lengths_N.tolist()])
    for length in np.unique(padded_N).tolist():
        of_each = max(1, min(_FIXED_ROWS, _FIXED_TOKENS // length))
        rows = np.flatnonzero(padded_N == length).tolist()
        for start in range(0, len(rows), of_each):
            batch = rows[start : start + of_each]
            yield TextBatch(batch, length, of_each - len(batch))


def _padded(length: int) -> int:
    step = 16 if length <= 128 else 64 if length <= 512 else 256
    return -(-length // step) * step


def of_similar_length(lengths_N: Array, longest: int) -> Iterator[TextBatch]:
    """Batches of texts of similar length, padded to the longest of them and not filled up.

    The longest text comes first, so that what is out of memory is known at once. A batch ends at
    `TOKEN_BUDGET` tokens, and before a text that would be padded by more than a third of its
    length: a launch more costs less than that.

    Example:
        >>> [batch.rows for batch in of_similar_length(np.array([9, 100, 10, 90]), 512)]
        [[1, 3], [2, 0]]
    """
    order = np.argsort(-lengths_N, kind="stable").tolist()
    rows, length = list[int](), 0
    for row in order:
        own = min(int(lengths_N[row]), longest)
        if rows and (own < _LEAST_SHARE * length or (len(rows) + 1) * length > TOKEN_BUDGET):
            yield TextBatch(rows, length)
            rows = []
        length = length if rows else own
        rows.append(row)
    if rows:
        yield TextBatch(rows, length)
