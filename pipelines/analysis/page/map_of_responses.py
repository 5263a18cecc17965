"""Where responses lie: their word n-grams, on the two directions in which they differ most."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ....operators.compute import pc
from ....operators.groups import Array, hash_each, mix
from ....operators.text.embedding import hashed_ngram
from .content import PageColumn

MOST_POINTS = 1500
_AT_LEAST = 50
"""Points of each verdict, where it has so many."""
_SUBSPACE, _ITERATIONS = 6, 12
_CHARACTERS = 4000
"""The beginning of a response that is looked at."""


def map_columns(
    responses: pa.ChunkedArray, ids: pa.ChunkedArray, verdicts: pa.ChunkedArray
) -> tuple[PageColumn, ...]:
    """`map_x` and `map_y` of a seeded sample of the rows, stratified by verdict; NaN elsewhere.

    Principal components of the centred vectors of `hashed_ngram`; of each, the greatest coordinate
    by absolute value is positive. Empty with fewer than three responses.
    """
    present_N = np.asarray(pc.greater(pc.fill_null(pc.utf8_length(responses), 0), 0))
    rows = _sampled(present_N, ids, verdicts)
    if len(rows) < 3:
        return ()
    texts = [responses[row].as_py()[:_CHARACTERS] for row in rows.tolist()]
    found = _components(hashed_ngram(texts).astype(np.float64))
    columns = []
    for name, values in zip(("map_x", "map_y"), found.T, strict=True):
        column_N = np.full(len(responses), np.nan)
        column_N[rows] = values
        columns.append(PageColumn(name, column_N))
    return tuple(columns)


def _sampled(present_N: Array, ids: pa.ChunkedArray, verdicts: pa.ChunkedArray) -> Array:
    # Draws that depend on nothing but the id of the row, so that a page made again is the same.
    drawn_N = mix(hash_each(ids) + np.arange(len(ids), dtype=np.uint64))
    codes = np.asarray(verdicts.cast(pa.string()).combine_chunks().dictionary_encode().indices)
    codes_N = np.nan_to_num(codes.astype(float), nan=-1.0)
    total, chosen = max(1, int(present_N.sum())), list[Array]()
    for code in np.unique(codes_N[present_N]):
        own = np.flatnonzero(present_N & (codes_N == code))
        n = max(_AT_LEAST, round(MOST_POINTS * len(own) / total))
        chosen.append(own[np.argsort(drawn_N[own], kind="stable")[:n]])
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)


def _components(vectors_NxD: Array) -> Array:
    """The first two principal components, float64[N, 2], rounded.

    By subspace iteration from a seeded start: the whole spectrum, of which two are wanted, would
    take seconds on busy cores.
    """
    centred = vectors_NxD - vectors_NxD.mean(0)
    start = np.random.default_rng(0).standard_normal((centred.shape[1], _SUBSPACE))
    basis = np.linalg.qr(start)[0]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(centred.T @ (centred @ basis))[0]
    left, values, _ = np.linalg.svd(centred @ basis, full_matrices=False)
    found: Array = left[:, :2] * values[:2]
    peaks = found[np.argmax(np.abs(found), 0), [0, 1]]
    return np.round(found * np.where(peaks < 0, -1.0, 1.0), 4)
