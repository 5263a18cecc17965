"""Near repeats are found as they are in one table in memory, however the signatures lie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import groups
from rejuice.operators.deduplicator import minhash_deduplicator as module
from rejuice.operators.deduplicator.minhash_deduplicator import (
    Signatures,
    near_repeats,
    rows_per_band,
)
from rejuice.operators.groups import EqualHashes, mix
from rejuice.operators.text.minhash import PERMUTATIONS, jaccard


def test_a_row_is_never_dropped_through_a_chain():
    # a ~ b and b ~ c, but not a ~ c: b falls to a, and c stays, because b is gone.
    k, bits = np.zeros(1, np.uint64), np.random.default_rng(0).integers(0, 256, (3, 128), np.uint8)
    bits[1, :104] = bits[0, :104]
    bits[2, 24:] = bits[1, 24:]
    assert near_repeats(Signatures([bits]), np.repeat(k, 3), 0.7).tolist() == [False, True, False]
    assert near_repeats(Signatures([bits[1:]]), np.repeat(k, 2), 0.7).tolist() == [False, True]


def rows(seed, n, texts, keys):
    """Signatures of noisy copies of some texts, and their keys."""
    rng = np.random.default_rng(seed)
    signatures_MK = rng.integers(0, 256, (texts, PERMUTATIONS), np.uint8)
    signatures_MK = signatures_MK[rng.integers(0, texts, n)]
    share_M1 = rng.choice([0, 0.02, 0.1, 0.25, 0.35], (n, 1))
    noisy = rng.random(signatures_MK.shape) < share_M1
    signatures_MK[noisy] = rng.integers(0, 256, int(noisy.sum()))
    return signatures_MK, rng.integers(0, keys, n).astype(np.uint64)


def reference(signatures_MK, keys_M, threshold):
    """The same in the plainest way: all candidate pairs at once, in Python."""
    n, pairs = len(keys_M), set()
    first = {}
    for row in range(n):
        first.setdefault((keys_M[row], signatures_MK[row].tobytes()), row)
    distinct = sorted(first.values())
    size = rows_per_band(threshold)
    for band in range(0, PERMUTATIONS, size):
        buckets = {}
        for row in distinct:
            words = signatures_MK[row, band : band + size].tobytes()
            buckets.setdefault((keys_M[row], words), []).append(row)
        for bucket in buckets.values():
            for at, row in enumerate(bucket[1:]):
                pairs |= {(row, bucket[0]), (row, bucket[at])}
    dropped = [row not in distinct for row in range(n)]
    for later, earlier in sorted(pairs):
        near = jaccard(signatures_MK[[later]], signatures_MK[[earlier]])[0] >= threshold
        dropped[later] |= bool(near) and not dropped[earlier]
    return dropped


@pytest.mark.slow
@pytest.mark.parametrize("most_pairs", [1, 40, 1 << 23])
@given(
    st.integers(0, 2**32),
    st.integers(0, 60),
    st.integers(1, 12),
    st.integers(1, 3),
    st.sampled_from([0.2, 0.5, 0.7, 0.9, 1.0]),
    st.lists(st.integers(0, 60), max_size=4),
)
@settings(max_examples=30, deadline=None)
def test_parts_and_few_pairs_at_once_give_the_same(
    most_pairs, seed, n, texts, keys, threshold, cuts
):
    signatures_MK, keys_M = rows(seed, n, texts, keys)
    parts = np.split(signatures_MK, sorted(min(cut, n) for cut in cuts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_PAIRS", most_pairs)
        patch.setattr(module, "_BLOCK", 16)
        found = near_repeats(Signatures(parts), keys_M, threshold)
    assert found.tolist() == reference(signatures_MK, keys_M, threshold)


@given(st.integers(0, 2**32), st.integers(0, 60), st.data())
def test_selected_rows_in_any_order(seed, n, data):
    signatures_MK, keys_M = rows(seed, n, 4, 2)
    chosen = np.flatnonzero(np.random.default_rng(seed).random(n) < 0.5)
    parts = Signatures(np.split(signatures_MK, [n // 3, n // 2])).select(chosen)
    assert len(parts) == len(chosen)
    order = data.draw(st.permutations(range(len(chosen))))
    assert np.array_equal(
        parts.take(np.array(order, np.int64)), signatures_MK[chosen][np.array(order, np.int64)]
    )
    hashes = parts.hashes(keys_M[chosen], np.dtype(np.uint32), slice(3, 5))
    words_N2 = signatures_MK.view(np.uint32)[chosen, 3:5].astype(np.uint64)
    folded = mix(keys_M[chosen])
    for words_N in words_N2.T:
        folded = mix(folded + words_N)
    assert np.array_equal(hashes, folded)


@given(st.lists(st.integers(0, 6) | st.integers(2**63, 2**63 + 3), max_size=40), st.integers(1, 9))
def test_equal_hashes_come_side_by_side_by_ascending_row(hashes, block):
    # The low bits are where the rows are while they are sorted: these hashes differ only there.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "_BLOCK", block)
        equal = EqualHashes.of(np.array(hashes, np.uint64))
    places = {}
    for row, each in enumerate(hashes):
        places.setdefault(each, []).append(row)
    expected = [places[each] for each in sorted(places) if len(places[each]) > 1]
    assert equal.rows_R.tolist() == [row for same in expected for row in same]
    assert equal.first_R.tolist() == [at == 0 for same in expected for at in range(len(same))]
