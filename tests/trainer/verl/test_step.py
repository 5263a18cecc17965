"""A training step in verl's own code, from our replay buffer to the advantages, without Ray."""

from types import SimpleNamespace

import numpy as np
import pyarrow.compute as pc
import pytest
from training_stage import SUM
from verl_configs import config_of

pytestmark = pytest.mark.slow  # Imports verl.

RAGGED = {
    0: ["1", "0", "0.5", "0.25"],
    1: ["1", "0.12345678", "0", "1"],  # A row too many characters long.
    2: ["0.9", "0.9", "0.9"],  # Equal: verl's own advantage of three such is 0.056.
    3: ["1", "0.12345678", "0.12345678", "0.12345678"],  # One is left.
}
SHORT = {"length_filter": {"max": 5}}


@pytest.fixture
def step(stage, tmp_path):
    """A factory: the rows that are left, and what verl makes of them."""
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    def make(advantage):
        credit = advantage if "mapper" in str(advantage) else {"grpo_advantage_mapper": advantage}
        made = stage([SHORT, {"scripted_mapper": None}, SUM, credit])
        made.answer(RAGGED)
        batch, _ = made.sample(1, 4)
        config = config_of(made.run)
        batch = upsample_batch_to_divisible_size(batch, 16, 779)
        trainer = SimpleNamespace(config=config)
        metrics = {}
        batch = PPOTrainer._compute_old_log_prob(trainer, batch, metrics)
        PPOTrainer._compute_advantage(trainer, batch, metrics)
        return made, batch

    return make


@pytest.mark.parametrize(
    "advantage",
    [
        {},
        {"normalise": "none"},
        {"normalise": "leave_one_out"},
        {"std_floor": 0.4},
        {"epsilon": 0.01},
        {"normalise": "mean"},
        {"normalise": "batch_std"},
        {"clip": 0.5},
        {"gdpo_advantage_mapper": {"weights": {"accuracy": 1.0}}},
        {"pass_at_k_advantage_mapper": {"k": 2}},
    ],
    ids=[
        "std",
        "none",
        "leave_one_out",
        "floor",
        "epsilon",
        "maxrl",
        "batch_std",
        "clip",
        "gdpo",
        "pass_at_k",
    ],
)
def test_verl_trains_on_the_column_advantage(step, advantage):
    made, batch = step(advantage)
    curated = made.saved("curated")
    keys = list(batch.keys)
    assert len(keys) == 16
    assert curated.num_rows == 10
    data = made.queue.kv_batch_get(keys[:10], "train")
    column = curated["advantage"].to_numpy()
    for found, wanted in zip(data["advantages"].unbind(), column, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-6)
    assert column[7:].tolist() == [0.0] * 3
    assert not any(row.any() for row in data["advantages"].unbind()[7:])
    # Rows of padding train nothing.
    padding = made.queue.kv_batch_get(keys[10:], "train")
    assert not padding["advantages"].values().any()
    assert not padding["response_mask"].values().any()


def test_the_old_policy_is_the_samplers(step):
    made, batch = step({})
    data = made.queue.kv_batch_get(list(batch.keys), "train")
    assert data["old_log_probs"].values().equal(data["rollout_log_probs"].values())


def test_verls_figures_leave_padding_out(step):
    import torch
    from verl.trainer.ppo.metric_utils import RolloutMoELoadBalanceMetricsAccumulator
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    made, batch = step({})
    config = SimpleNamespace(
        **{"actor_rollout_ref": SimpleNamespace(rollout={}, model=SimpleNamespace())}
    )
    trainer = SimpleNamespace(
        config=config,
        use_critic=False,
        _get_n_gpus_for_throughput=lambda: 1,
        _rollout_moe_lb_metrics_accumulator=RolloutMoELoadBalanceMetricsAccumulator(
            model_config=SimpleNamespace(path="")
        ),
    )
    tags = [dict(made.queue.partitions["train"][key].tag) for key in batch.keys]
    batch = type(batch)(list(batch.keys), tags, "train")
    metrics, timing = {}, {"step": 1.0, "gen": 1.0}
    PPOTrainer._compute_metrics(trainer, batch, metrics, timing, global_steps=1, epoch=0)
    curated = made.saved("curated")
    reward_N = torch.tensor(curated["reward"].to_numpy(), dtype=torch.float32)
    assert metrics["critic/score/mean"] == pytest.approx(float(reward_N.mean()), rel=1e-6)
    tokens_N = pc.list_value_length(curated["response_token_ids"]).to_numpy()
    mean = (curated["advantage"].to_numpy() * tokens_N).sum() / tokens_N.sum()
    assert metrics["critic/advantages/mean"] == pytest.approx(mean, abs=1e-6)
    assert metrics["critic/advantages/max"] == pytest.approx(
        pc.max(curated["advantage"]).as_py(), abs=1e-6
    )
    assert metrics["response_length/mean"] == pytest.approx(tokens_N.mean())
