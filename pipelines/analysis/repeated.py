"""Which row a deduplicator kept instead of one that it dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators.columns import flat
from ...operators.deduplicator.exact_deduplicator import ExactDeduplicator
from ...operators.deduplicator.minhash_deduplicator import MinhashDeduplicator
from ...operators.groups import Array
from ...operators.text.minhash import PERMUTATIONS, jaccard

_MOST_PAIRS = 4_000_000
"""Pairs of texts that are compared, at most; they take about a second."""


def repeat_evidence(
    operator: ExactDeduplicator | MinhashDeduplicator, table: pa.Table, reasons: Any
) -> dict[str, pa.Array]:
    """`repeats`: the `response_id` of the row that stayed, or the `prompt_id` of the prompt.

    Of several, it is the most similar one, and of those the first. Null in rows that stayed, and
    where the row that stayed is not in the table.

    Args:
        operator: which decided about the rows.
        table: rows as the step had them, not necessarily all, in order and in whole groups: the
            ids and the columns that it reads.
        reasons: string[N], why it dropped each row; null where it stayed.
    """
    name = "response_id" if operator.unit == "response" else "prompt_id"
    digest = operator.digest(table)
    compared_N = np.asarray(digest["key"].is_valid())
    if operator.unit == "prompt":
        compared_N &= np.asarray(digest["starts"])
    dropped_N = np.asarray(pc.is_valid(reasons))
    kept_N = _kept_instead(operator, digest, compared_N, dropped_N)
    if operator.unit == "prompt" and len(kept_N):
        starts_N = np.asarray(digest["starts"])
        kept_N = kept_N[starts_N][np.cumsum(starts_N) - 1]
    ids = flat(table[name].cast(pa.string()))
    return {"repeats": ids.take(pa.array(kept_N, mask=kept_N < 0))}


def _kept_instead(
    operator: ExactDeduplicator | MinhashDeduplicator,
    digest: pa.Table,
    compared_N: Array,
    dropped_N: Array,
) -> Array:
    """int64[N]: the row that stayed, -1 where there is none."""
    keys_N = np.asarray(pc.fill_null(digest["key"], 0))
    rows = np.flatnonzero(compared_N)
    order = rows[np.argsort(keys_N[rows], kind="stable")]
    bounds = np.flatnonzero(np.diff(keys_N[order])) + 1
    found_N = np.full(len(keys_N), -1)
    left = _MOST_PAIRS
    minhash = operator if isinstance(operator, MinhashDeduplicator) else None
    signatures = _signatures(digest) if minhash else np.zeros((0, PERMUTATIONS), np.uint8)
    for same in np.split(order, bounds):
        dropped, kept = same[dropped_N[same]], same[~dropped_N[same]]
        if not len(dropped) or not len(kept):
            continue
        if minhash is None:
            # Of equal texts the first stays, and no other.
            found_N[dropped] = np.where(kept[0] < dropped, kept[0], -1)
            continue
        left -= len(dropped) * len(kept)
        if left < 0:
            break
        for row in dropped:
            earlier = kept[kept < row]
            similar = jaccard(signatures[np.full(len(earlier), row)], signatures[earlier])
            if len(earlier) and similar.max() >= minhash.threshold:
                found_N[row] = earlier[similar.argmax()]
    return found_N


def _signatures(digest: pa.Table) -> Array:
    """uint8[N, PERMUTATIONS]."""
    values = b"".join(each or bytes(PERMUTATIONS) for each in digest["signature"].to_pylist())
    return np.frombuffer(values, np.uint8).reshape(-1, PERMUTATIONS)
