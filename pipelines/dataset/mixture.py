"""Mixtures of datasets as Data-Juicer reads them: a path with weights, and rows by weight."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .schemas import conform, unify

_SEED = 42
"""Data-Juicer's own, `random_sample` of data_juicer/utils/sample.py."""


def parse_mixture(text: str) -> list[str]:
    """The paths of `0.5 a.jsonl 0.5 b.jsonl`, as Data-Juicer splits it, without their weights.

    The weights do nothing there either: they only matter where `dataset: {max_sample_num: …}` is.

    Raises:
        ValueError: a quote is not closed.
    """
    return [word for word in shlex.split(text) if not _is_number(word)]


def rows_by_weight(weights: Sequence[float], max_rows: int) -> list[int]:
    """How many rows of each dataset are taken, as Data-Juicer's `get_sample_numbers` counts."""
    share = np.array(weights, np.float64) / sum(weights)
    rows, left = [], max_rows
    for each in share:
        rows.append(min(int(np.ceil(max_rows * each)), left))
        left -= rows[-1]
    return rows


def sampled(read: Callable[[], Iterator[pa.Table]], rows: int) -> pa.Table | None:
    """Rows of a dataset, drawn with Data-Juicer's seed, in the order that it gives them.

    The dataset is read twice: once to count it, once for the rows that are taken. Only these are
    in memory. Where more rows are wanted than there are, some are taken several times.

    Args:
        read: gives the tables of the dataset.
        rows: how many are taken.

    Returns:
        The rows; None where there are none.
    """
    total = sum(table.num_rows for table in read())
    if not total or not rows:
        return None
    wanted_N = _drawn(total, rows)
    order = np.argsort(wanted_N, kind="stable")
    sorted_N = wanted_N[order]
    taken, first = list[pa.Table](), 0
    for table in read():
        begin, end = np.searchsorted(sorted_N, [first, first + table.num_rows])
        if begin < end:
            taken.append(table.take(pa.array(sorted_N[begin:end] - first)))
        first += table.num_rows
    schema = unify([table.schema for table in taken])
    together = pa.concat_tables([conform(table, schema) for table in taken])
    place = np.empty_like(order)
    place[order] = np.arange(rows)
    return together.take(pa.array(place))


def _drawn(total: int, rows: int) -> NDArray[np.int64]:
    """int64[rows]: the rows that Data-Juicer's `random_sample` takes of so many."""
    if rows == total:
        return np.arange(total)
    # As `datasets.Dataset.shuffle(seed)` shuffles.
    shuffled_N = np.random.default_rng(_SEED).permutation(total)
    return shuffled_N[np.arange(rows) % total]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
