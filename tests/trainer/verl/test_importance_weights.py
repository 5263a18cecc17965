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
    found = weights_of(pairs, level=level, max=2.0, min=low)
    ratio, mask = padded(pairs)
    threshold = 2.0 if low is None else f"{low}_2.0"
    assume(low is None or any(w for own in found for w in own))  # Where none is left, verl fails.
    theirs, _ = verl_weights(ratio, mask, level, threshold)
    for row, own in enumerate(found):
        np.testing.assert_allclose(own, theirs[row, : len(own)].numpy(), rtol=1e-6)


PRESETS = [
    ("decoupled_token_is", {}),
    ("decoupled_seq_is", {"level": "sequence"}),
    ("decoupled_token_icepop", {"max": 5.0, "min": 0.5}),
    ("decoupled_seq_is_rs", {"level": "sequence", "rejection": {"seq_sum_k1": (0.5, 2.0)}}),
    ("decoupled_geo_rs", {"level": "none", "rejection": {"seq_mean_k1": (0.999, 1.001)}}),
    ("decoupled_geo_rs_seq_tis", {"level": "sequence", "rejection": {"seq_mean_k1": (0.999, 1.001)}}),
    ("decoupled_geo_rs_token_tis", {"rejection": {"seq_mean_k1": (0.999, 1.001)}}),
    ("decoupled_k3_rs", {"level": "none", "rejection": {"seq_mean_k3": 0.01}}),
    ("decoupled_k3_rs_seq_tis", {"level": "sequence", "rejection": {"seq_mean_k3": 0.01}}),
    ("decoupled_k3_rs_token_tis", {"rejection": {"seq_mean_k3": 0.01}}),
]  # fmt: skip
NEAR = st.lists(st.lists(st.sampled_from([-0.2, -0.01, -1e-4, 0.0, 1e-4, 0.01, 0.2]), min_size=1, max_size=6), min_size=1, max_size=5)  # fmt: skip


@given(st.data(), NEAR)
def test_presets_are_verls(verl, data, moves):
    """All that recompute log-probabilities, by its own code and with its defaults."""
    from verl.trainer.config.algorithm import RolloutCorrectionConfig as Config
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    theirs = {name for name in dir(Config) if name.startswith("decoupled_")}
    assert theirs == {name for name, _ in PRESETS}
    name, fields = data.draw(st.sampled_from(PRESETS))
    preset = getattr(Config, name)()
    pairs = [[(-1.0 + move, -1.0) for move in row] for row in moves]
    # Neither rounding nor their padding, whose maximum is 0, decides.
    found = weights_of(pairs, **fields)
    ratio, mask = padded(pairs)
    assume(any(w for own in found for w in own))
    weights, kept, _ = compute_rollout_correction_and_rejection_mask(
        -1.0 + ratio, -1.0 + 0 * ratio, mask,
        rollout_is=preset.rollout_is, rollout_is_threshold=preset.rollout_is_threshold,
        rollout_rs=preset.rollout_rs, rollout_rs_threshold=preset.rollout_rs_threshold,
    )  # fmt: skip
    weights = kept if weights is None else weights.batch["rollout_is_weights"] * kept
    for row, own in enumerate(found):
        np.testing.assert_allclose(own, weights[row, : len(own)].numpy(), rtol=1e-6)


@given(RAGGED, st.sampled_from(["token_k1", "token_k2", "token_k3", "seq_sum_k2", "seq_sum_k3", "seq_mean_k2", "seq_max_k2", "seq_max_k3"]))  # fmt: skip
def test_each_rejection_is_verls(verl, pairs, name):
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_rejection_mask

    bound, theirs = ((0.5, 3.0), "0.5_3.0") if name.endswith("k1") else (1.5, 1.5)
    ratio, mask = padded(pairs)
    kept, _ = compute_rollout_rejection_mask(ratio, mask, name, theirs)
    for row, own in enumerate(weights_of(pairs, level="none", rejection={name: bound})):
        assert own == kept[row, : len(own)].tolist()


def weights_of(pairs, **fields):
    """Weights of the tokens of responses: pairs of log-probabilities, of today's policy and before."""
    new, old = zip(*(zip(*row, strict=True) for row in pairs), strict=True)
    columns = {
        "response_token_ids": pa.array([[1] * len(each) for each in old], pa.list_(pa.int32())),
        "response_logprobs": pa.array(old, pa.list_(pa.float32())),
        "policy_logprobs": pa.array(new, pa.list_(pa.float32())),
    }
    change = ImportanceWeightMapper(**fields).apply(pa.table(columns))
    return change.columns["token_weight"].to_pylist()


def padded(pairs):
    """The log ratios of responses and their masks, float64[N, T]."""
    import torch

    ratio, mask = torch.zeros((2, len(pairs), max(map(len, pairs))), dtype=torch.float64)
    for row, each in enumerate(pairs):
        new, old = np.array(each, np.float32).T.astype(np.float64)
        ratio[row, : len(each)], mask[row, : len(each)] = torch.from_numpy(new - old), 1
    return ratio, mask


@pytest.fixture(scope="module")
def verl_weights(verl):
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    return compute_rollout_correction_weights
