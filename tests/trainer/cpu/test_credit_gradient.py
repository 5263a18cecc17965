"""The gradient of a batch with credit, by verl's training worker, against float64 by hand."""

import copy

import numpy as np
import pyarrow as pa
import pytest
from plain_policy import PROMPTS, N, Plain, like, metrics_of, noisy, reported
from rounding import SUMS
from training_stage import estimated
from two_ranks import gradient, run_ranks

from rejuice.operators.mapper.importance_weight_mapper import ImportanceWeightMapper

pytestmark = pytest.mark.slow

LOW, HIGH, KL = 0.2, 0.28, 0.1


@pytest.fixture
def credited(queue, keys):
    """Rows with credit of their own for each token, some masked, and rows of padding.

    Returns:
        The rows as verl hands them to the worker; and of each key, its credit and its mask.
    """
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

    from rejuice.trainer.verl.advantage import TrajectoryKey
    from rejuice.trainer.verl.credit import CreditEstimator
    from rejuice.trainer.verl.trajectories import TrainedRows, write_trained

    rng = np.random.default_rng(4)
    kept = keys[2:]  # Two rows are masked whole: they are not in the batch at all.
    lengths = queue.kv_batch_get(kept, "train", ["responses"])["responses"].offsets().diff()
    masks = [rng.random(n) < 0.7 for n in lengths.tolist()]
    for mask in masks:
        mask[0] = True
    weights = [rng.choice([0.25, 1.0], len(mask)) * mask for mask in masks]
    advantages = [weight * rng.normal() for weight in weights]
    rows = TrainedRows(list(map(TrajectoryKey.parse, kept)), np.zeros(len(kept)), advantages, masks)
    write_trained(rows, "train", None)
    estimator = CreditEstimator()
    estimator.register()
    estimator.set(rows.names, rows.advantages)
    tags = [dict(queue.partitions["train"][key].tag) for key in kept]
    batch = upsample_batch_to_divisible_size(KVBatchMeta(kept, tags, "train"), 32, 779)
    estimated(batch)
    for key in batch.keys[len(kept) :]:
        fields = queue.partitions["train"][key].fields
        fields["old_log_probs"] = fields["ref_log_prob"] = fields["rollout_log_probs"]
    data = queue.kv_batch_get(batch.keys, "train").exclude("uid")
    return reported(data), advantages, masks


@pytest.mark.parametrize("pieces", [1, 2])
def test_the_gradient_is_the_credits(worker, credited, pieces):
    """Ragged rows, masked tokens, rows of padding, one or two micro-batches."""
    batch, advantages, masks = credited
    tokens = int(batch["input_ids"].offsets()[-1])
    made = worker(loss={"clip": [0.2, HIGH]}, kl_coef=KL, cpu={"tokens": tokens // pieces + 64})
    ours = gradient_of_update(made, batch)
    loss, size = assert_gradient(ours, batch, advantages, masks)
    assert ours["metrics"]["loss"] == pytest.approx(loss, abs=SUMS * size)


def test_two_processes_have_the_gradient_of_one(worker, credited, tmp_path):
    """Each has half of the rows, and they average what they have."""
    import torch

    batch, advantages, masks = credited
    made = worker(loss={"clip": [0.2, HIGH]}, kl_coef=KL, cpu={"tokens": 4096})
    torch.save((made.config, batch), tmp_path / "work.pt")
    run_ranks(tmp_path, 2)
    assert_gradient(torch.load(tmp_path / "gradient.pt"), batch, advantages, masks)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_gradient_of_replayed_rows_is_corrected(worker, queue, keys, level):
    """Rows of an older policy, by the way that they take: log-probabilities by the worker, weights
    by `importance_weight_mapper`, an update that starts from the policy of today."""
    import torch

    cap = 1.5
    old = noisy(
        queue.kv_batch_get(keys, "train", ["rollout_log_probs"])["rollout_log_probs"], 0.3, 7
    )
    made = worker(loss={"clip": [0.2, HIGH]}, kl_coef=0.0, cpu={"tokens": 4096})
    today = log_probs(made, reported(queue.kv_batch_get(keys, "train")))
    lengths = old.offsets().diff().tolist()
    rows = pa.table(
        {
            "response_id": keys,
            "response_token_ids": [[1] * n for n in lengths],
            "response_logprobs": [each.numpy() for each in old.unbind()],
            "policy_logprobs": today,
            "advantage": np.random.default_rng(5).normal(size=len(keys)),
            "reward": np.zeros(len(keys)),
        }
    )
    mapper = ImportanceWeightMapper(level=level, max=cap)
    rows = rows.append_column("token_weight", mapper.apply(rows).columns["token_weight"])
    batch = credited_batch(queue, keys, rows)
    batch["old_log_probs"] = like(old, torch.from_numpy(np.concatenate(today)))
    ours = gradient_of_update(made, batch)

    plain, loss = Plain(), 0.0
    read = [batch[name].unbind() for name in ("prompts", "responses")]
    for prompt, response, stored, advantage in zip(
        *read, old.unbind(), rows["advantage"].to_pylist(), strict=True
    ):
        log_prob, _ = plain.log_probs(prompt, response)
        ratio = log_prob.detach() - stored.double()
        ratio = (ratio if level == "token" else ratio.sum()).exp().clamp(max=cap)
        loss = loss - (ratio * advantage * log_prob).sum() / sum(lengths)
    loss.backward()
    assert_equal(ours, plain)


def log_probs(made, batch):
    """By the policy as it is, as the trainer asks the worker for them; of each row's response."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    tu.assign_non_tensor_data(batch, "compute_loss", False)
    tu.assign_non_tensor_data(batch, "calculate_entropy", False)
    output = made.compute_log_prob(batch)
    found = response_from_nested(output["log_probs"], batch["response_mask"])
    return [each.float().numpy() for each in found.unbind()]


def credited_batch(queue, keys, rows):
    """The rows with their credit in their advantages, as verl hands them to the worker."""
    from transfer_queue import KVBatchMeta

    from rejuice.trainer.verl.advantage import TrajectoryKey
    from rejuice.trainer.verl.credit import CreditEstimator
    from rejuice.trainer.verl.groups import trained_rows
    from rejuice.trainer.verl.trajectories import write_trained

    tags = {TrajectoryKey.parse(k): queue.partitions["train"][k].tag for k in keys}
    trained = trained_rows(rows, [[key] for key in tags], tags)
    write_trained(trained, "train", None)
    estimator = CreditEstimator()
    estimator.register()
    estimator.set(trained.names, trained.advantages)
    estimated(KVBatchMeta(list(keys), list(tags.values()), "train"))
    return reported(queue.kv_batch_get(keys, "train").exclude("uid"))


def gradient_of_update(made, batch):
    ours, engine = {}, made.actor.engine
    step = engine.optimizer_step

    def spied():
        ours.update(gradient(engine))
        return step()

    engine.optimizer_step = spied
    ours["metrics"] = metrics_of(made.update_actor(copy.copy(batch)))
    return ours


def assert_gradient(ours, batch, advantages, masks):
    """Compare with float64; the loss, and the sum of the sizes of its terms.

    Args:
        ours: gradients by the names of the weights.
        batch: the rows, those of padding last.
        advantages: of each token of each row that trains, as credit.
        masks: which of them train.
    """
    import torch

    plain = Plain()
    names = ("prompts", "responses", "old_log_probs", "ref_log_prob")
    loss, size = 0.0, 0.0
    rows = list(zip(*(batch[name].unbind() for name in names), strict=True))
    assert (len(rows), len(masks)) == (32, N * PROMPTS - 2)
    denominator = sum(int(mask.sum()) for mask in masks)
    for (prompt, response, old, reference), credit, mask in zip(
        rows, advantages, masks, strict=False
    ):
        log_prob, _ = plain.log_probs(prompt, response)
        ratio, far = (log_prob - old).exp(), reference - log_prob
        credit = torch.from_numpy(credit.astype(np.float32)).double()
        gain = torch.minimum(ratio * credit, ratio.clamp(1 - LOW, 1 + HIGH) * credit)
        gain = torch.where(credit < 0, torch.maximum(gain, 3.0 * credit), gain)
        term = (gain - KL * (far.exp() - far - 1).clamp(-10, 10))[torch.from_numpy(mask)]
        loss = loss - term.sum() / denominator
        size += term.abs().sum().item() / denominator
    loss.backward()
    assert_equal(ours, plain)
    return loss.item(), size


def assert_equal(ours, plain):
    import torch

    norm = torch.nn.utils.get_total_norm([each.grad for each in plain.model.parameters()])
    assert norm > 0.1
    for name, theirs in plain.model.named_parameters():
        assert (ours[name] - theirs.grad).abs().max() < 1e-6 * norm, name
