"""Importance weights are those of verl's rollout correction."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rejuice.operators.mapper.importance_weight_mapper import ImportanceWeightMapper

pytestmark = pytest.mark.slow  # Imports verl.

RAGGED = st.lists(
    st.lists(st.tuples(st.floats(-30, 0, width=32), st.floats(-30, 0, width=32)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)  # fmt: skip


@given(RAGGED, st.sampled_from(["token", "sequence"]), st.sampled_from([None, 0.5]))
def test_weights_are_verls(verl_weights, pairs, level, low):
    import torch

    new, old = zip(*(zip(*row, strict=True) for row in pairs), strict=True)
    columns = {
        "response_token_ids": pa.array([[1] * len(each) for each in old], pa.list_(pa.int32())),
        "response_logprobs": pa.array(old, pa.list_(pa.float32())),
        "policy_logprobs": pa.array(new, pa.list_(pa.float32())),
    }
    change = ImportanceWeightMapper(level=level, max=2.0, min=low).apply(pa.table(columns))
    found = change.columns["token_weight"].to_pylist()
    longest = max(map(len, new))
    ratio, mask = torch.zeros((2, len(new), longest), dtype=torch.float64)
    for row, (first, second) in enumerate(zip(new, old, strict=True)):
        values = np.subtract(first, second, dtype=np.float64)
        ratio[row, : len(values)], mask[row, : len(values)] = torch.from_numpy(values), 1
    threshold = 2.0 if low is None else f"{low}_2.0"
    assume(low is None or any(w for own in found for w in own))  # Where none is left, verl fails.
    theirs, _ = verl_weights(ratio, mask, level, threshold)
    for row, own in enumerate(found):
        np.testing.assert_allclose(own, theirs[row, : len(own)].numpy(), rtol=1e-6)


@pytest.fixture(scope="module")
def verl_weights(verl):
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    return compute_rollout_correction_weights
