"""Training on stored responses, under the real `main_ppo`."""

import pyarrow as pa
import pyarrow.feather as feather
import pytest

pytestmark = pytest.mark.slow


def test_stored_responses_train_without_sampling(run, replayed):
    stored = feather.read_table(replayed.folder / "prompts" / "train.arrow")
    assert replayed.trained == [1, 2]
    assert not (replayed.folder / "steps").exists()  # Nothing was sampled that could be kept.
    assert stored.num_rows >= 8
    collected = [run.table(step, "curated")["reward"] for step in (1, 2, 3, 4)]
    rewards = pa.concat_arrays([chunk for each in collected for chunk in each.chunks]).to_numpy()
    for step in (1, 2):
        logged = replayed.figures(step)
        assert rewards.min() - 1e-6 <= logged["critic/score/min"]
        assert logged["critic/score/max"] <= rewards.max() + 1e-6
        assert logged["actor/grad_norm"] > 0
    # Stored log-probabilities are the old ones: ratios move away from 1 as the policy does.
    assert abs(replayed.figures(1)["actor/ppo_kl"]) < 0.05
    assert replayed.figures(2)["actor/ppo_kl"] != replayed.figures(1)["actor/ppo_kl"]
