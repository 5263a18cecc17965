"""How long responses are, in tokens, and how they were batched for embedding before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rejuice.operators.text.embedding import Batching, TextBatch


def response_lengths(groups: int, size: int, longest: int = 1024) -> npt.NDArray[np.int64]:
    """Lengths of responses to GSM8K that think first, int64[groups, size], the same each time.

    Log-normal around 220 tokens: problems differ by a standard deviation of 0.35, and the responses
    to one problem by 0.3.
    """
    random = np.random.default_rng(0)
    centre_G = random.normal(np.log(220), 0.35, groups)
    logs_GM = centre_G[:, None] + random.normal(0, 0.3, (groups, size))
    return np.minimum(np.exp(logs_GM).astype(np.int64) + 1, longest)


def filled_up_to(rows_each: int) -> Batching:
    """Batches of so many rows for each padded length, as rejuice made them before: 8 on CPUs and 64
    on GPUs."""

    def batches(lengths_N: npt.NDArray[np.int64], longest: int) -> Iterator[TextBatch]:
        steps_N = np.select([lengths_N <= 128, lengths_N <= 512], [16, 64], 256)
        padded_N = np.minimum(-(-lengths_N // steps_N) * steps_N, longest)
        for length in np.unique(padded_N).tolist():
            rows = np.flatnonzero(padded_N == length).tolist()
            for start in range(0, len(rows), rows_each):
                batch = rows[start : start + rows_each]
                yield TextBatch(batch, length, rows_each - len(batch))

    return batches
