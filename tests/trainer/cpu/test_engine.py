"""verl's training worker with our engine, in this process, against an update in plain torch.

rows       sampled from the embedded policy by the engine of `policy_rollout_mapper`
ours       ActorRolloutRefWorker, composed from our overrides: FSDP2 over gloo, packed rows
theirs     a forward pass for each row, the loss of GRPO written out, AdamW
"""

import copy

import pytest
from plain_policy import LEARNING_RATE, PROMPTS, N, Plain, like, metrics_of, reported
from rounding import LOG_PROBS, SUMS

from rejuice.operators.sampling.engines import EMBEDDED

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_the_policy(worker, batch, temperature):
    """As near to float64 as a forward pass in float32 is.

    Entropies are less near, because verl takes logsumexp(l) - sum(softmax(l) * l): whatever a
    softmax lacks to a sum of 1, up to 3e-6, is multiplied by the logits, which reach 20.
    """
    import torch
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    from rejuice.trainer.cpu import workers

    tu.assign_non_tensor_data(batch, "compute_loss", False)
    tu.assign_non_tensor_data(batch, "temperature", temperature)
    output = worker().compute_log_prob(copy.copy(batch))
    assert workers._current is None  # It would be that of the next model in this process.
    mask = batch["response_mask"]
    ours = [response_from_nested(output[name], mask) for name in ("log_probs", "entropy")]
    rows = list(zip(batch["prompts"].unbind(), batch["responses"].unbind(), strict=True))
    plain = Plain()
    true = zip(*(plain.log_probs(*row, temperature) for row in rows), strict=True)
    for found, wanted, most in zip(ours, true, (LOG_PROBS, 5 * LOG_PROBS), strict=True):
        expected = torch.cat(wanted).detach()
        torch.testing.assert_close(found.values().double(), expected, rtol=0, atol=most)
    if temperature == 1.0:
        sampled = batch["rollout_log_probs"].values()
        torch.testing.assert_close(ours[0].values(), sampled, rtol=0, atol=LOG_PROBS)


def test_log_probs_of_the_reference(worker, batch):
    """It holds its weights where it computes: nothing is pinned, nothing offloaded."""
    import torch
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    tu.assign_non_tensor_data(batch, "compute_loss", False)
    tu.assign_non_tensor_data(batch, "calculate_entropy", False)
    output = worker("ref", kl_coef=0.1).compute_ref_log_prob(copy.copy(batch))
    ours = response_from_nested(output["log_probs"], batch["response_mask"]).values()
    torch.testing.assert_close(ours, batch["rollout_log_probs"].values(), rtol=0, atol=LOG_PROBS)


@pytest.mark.parametrize(
    ("kl_coef", "pieces", "cpu", "tied"),
    [
        (0.0, 1, {}, True),
        (0.1, 3, {}, True),
        (0.0, 3, {"gradient_checkpointing": True}, True),
        (0.1, 1, {}, False),
    ],
    ids=["whole", "divergence in pieces", "recomputed in pieces", "untied"],
)
def test_an_update_is_that_of_plain_torch(worker, batch, untied, kl_coef, pieces, cpu, tied):
    """Some tokens are clipped, the gradient is shortened, and AdamW takes its first step."""
    import torch

    tokens = int(batch["input_ids"].offsets()[-1])
    policy = EMBEDDED if tied else untied
    made = worker(
        policy=str(policy),
        loss={"clip": [0.2, 0.28]},
        kl_coef=kl_coef,
        cpu={"tokens": tokens // pieces + 64, **cpu},
    )
    plain = Plain(folder=policy)
    before = {name: each.detach().clone() for name, each in plain.model.named_parameters()}
    loss, parts = plain.loss(batch, kl_coef=kl_coef)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 1.0)
    torch.optim.AdamW(plain.model.parameters(), lr=LEARNING_RATE, weight_decay=0.0).step()

    found = metrics_of(made.update_actor(copy.copy(batch)))
    assert norm > 1.5
    assert found["loss"] == pytest.approx(loss.item(), rel=SUMS)
    assert found["actor/pg_loss"] == pytest.approx(parts["pg"].item(), rel=SUMS)
    assert found["actor/entropy_loss"] == pytest.approx(parts["entropy"].item(), rel=1e-4)
    # A token near the bound of the clip is on either side of it by rounding. And verl takes the mean
    # of the shares of the pieces, whatever their tokens.
    near = 0.01 if pieces == 1 else 0.02
    assert found["actor/pg_clipfrac"] == pytest.approx(parts["clipped"].item(), abs=near)
    assert found["actor/pg_clipfrac"] > 0.1
    assert found["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    if kl_coef:
        assert found["kl_loss"] == pytest.approx(parts["kl"].item(), rel=SUMS)
    weights = dict(made.actor.engine.get_per_tensor_param()[0])
    for name, theirs in plain.model.named_parameters():
        far = (weights[name].double() - theirs).abs()
        # AdamW divides a gradient by its size: of one that is nothing, rounding is left.
        assert far[theirs.grad.abs() > 1e-6].max() < LEARNING_RATE / 50, name
        assert far.max() < LEARNING_RATE, name
        assert (theirs - before[name]).abs().max() > LEARNING_RATE / 2, name


def test_rows_of_padding_change_nothing(worker, queue, keys):
    """verl adds them where the recipe has left fewer rows than a batch has."""
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

    made = worker(learning_rate=1e-30)
    plain = metrics_of(made.update_actor(reported(queue.kv_batch_get(keys, "train"))))
    tags = [dict(queue.partitions["train"][key].tag) for key in keys]
    more = upsample_batch_to_divisible_size(KVBatchMeta(keys, tags, "train"), 32, 779).keys
    assert len(more) == 32
    for key in set(more) - set(keys):
        fields = queue.partitions["train"][key].fields
        fields.update(dict.fromkeys(("advantages", "ref_log_prob"), fields["rm_scores"]))
        fields["old_log_probs"] = fields["rollout_log_probs"]
    padded = metrics_of(made.update_actor(reported(queue.kv_batch_get(more, "train"))))
    for name in ("loss", "grad_norm", "actor/entropy_loss"):
        assert padded[name] == pytest.approx(plain[name], rel=SUMS), name


# --------------------------------------------------------------------------- turns of agents

TURNS = [(0, 0), (0, 1), (1, 0), (2, 0)]
"""Trajectory and turn of each of a prompt's samples: two turns, one, and one."""


@pytest.fixture
def turns(queue, keys):
    """The same rows as turns of trajectories, with their weights; 24 of them, and 4 of padding."""
    import torch
    from tensordict import TensorDict
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

    from rejuice.trainer.verl.advantage import WEIGHT, TrajectoryKey, turn_weights

    parsed = [TrajectoryKey.parse(key) for key in keys]
    owners = [TrajectoryKey(key.uid, *TURNS[key.session]) for key in parsed]
    responses = queue.kv_batch_get(keys, "train", ["responses"])["responses"]
    lengths = responses.offsets().diff()
    weights_R = torch.from_numpy(turn_weights(owners, lengths.numpy())).float()
    fields = {
        WEIGHT: like(responses, weights_R.repeat_interleave(lengths)),
        "rm_scores": like(responses, torch.zeros(int(lengths.sum()))),
    }
    queue.kv_batch_put(keys, "train", TensorDict(fields, batch_size=len(keys)))
    tags = [dict(queue.partitions["train"][key].tag) for key in keys]
    more = upsample_batch_to_divisible_size(KVBatchMeta(keys, tags, "train"), 28, 779).keys
    for key in more[len(keys) :]:
        padding = queue.partitions["train"][key].fields
        padding["advantages"] = padding["rm_scores"]
        padding["old_log_probs"] = padding["ref_log_prob"] = padding["rollout_log_probs"]
    return reported(queue.kv_batch_get(more, "train"))


@pytest.mark.parametrize("pieces", [1, 3])
def test_an_update_on_turns_is_the_formulas(worker, turns, pieces):
    """By `set_loss_fn` of verl's worker, its micro-batches and its engine, with rows of padding."""
    import torch

    from rejuice.trainer.verl.advantage import WEIGHT, LossSettings

    tokens = int(turns["input_ids"].offsets()[-1])
    room = tokens // pieces + 64
    made = worker(loss={"clip": [0.2, 0.28]}, kl_coef=0.1, entropy_coef=0.01, room=room)
    made.set_loss_fn(LossSettings.of(made.config.actor).loss())
    plain = Plain()
    names = ("prompts", "responses", "old_log_probs", "advantages", "ref_log_prob", WEIGHT)
    policy = divergence = entropy = size = 0.0
    for prompt, response, old, advantage, reference, weight in list(
        zip(*(turns[name].unbind() for name in names), strict=True)
    )[: N * PROMPTS]:
        log_prob, uncertainty = plain.log_probs(prompt, response)
        ratio, far = (log_prob - old).exp(), reference - log_prob
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
        policy = policy - (weight * gain).sum()
        size += (weight * gain).abs().sum().item()
        divergence = divergence + (weight * (far.exp() - far - 1).clamp(-10, 10)).sum()
        entropy = entropy + (weight * uncertainty).sum()
    loss = policy + 0.1 * divergence - 0.01 * entropy
    loss.backward()
    norm = torch.nn.utils.get_total_norm([each.grad for each in plain.model.parameters()])

    ours, engine = {}, made.actor.engine
    step = engine.optimizer_step

    def spied():
        for name, weights in engine.module.named_parameters():
            ours[name] = weights.grad.full_tensor().double()
        return step()

    engine.optimizer_step = spied
    found = metrics_of(made.update_actor(copy.copy(turns)))
    for name, theirs in plain.model.named_parameters():
        assert (ours[name] - theirs.grad).abs().max() < SUMS * norm, name
    # Terms of both signs cancel, and how float32 rounds each of them depends on the processor.
    assert found["loss"] == pytest.approx(loss.item(), abs=SUMS * size)
    assert found["actor/pg_loss"] == pytest.approx(policy.item(), abs=SUMS * size)
    assert found["kl_loss"] == pytest.approx(divergence.item(), rel=SUMS)
    assert found["actor/entropy_loss"] == pytest.approx(entropy.item(), rel=1e-4)
    assert found["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


def test_a_resume_takes_the_optimizers_settings_from_the_recipe(worker, batch, tmp_path):
    """Its state is the checkpoint's: the moments, and how many updates there were."""
    first = worker(learning_rate=1e-3, weight_decay=0.1)
    first.update_actor(copy.copy(batch))
    first.save_checkpoint(str(tmp_path / "checkpoints/global_step_10/actor"))
    betas = {"actor_rollout_ref.actor.optim.betas": [0.8, 0.9]}
    again = worker(learning_rate=2e-5, weight_decay=0.2, warmup_steps=4, verl=betas)
    again.load_checkpoint(str(tmp_path / "checkpoints/global_step_10/actor"))
    engine = again.actor.engine
    (group,) = engine.optimizer.param_groups
    assert (group["weight_decay"], *group["betas"]) == (0.2, 0.8, 0.9)
    assert group["initial_lr"] == 2e-5
    assert group["lr"] == pytest.approx(2e-5 / 4), "one update of four"
    assert engine.lr_scheduler_step() == pytest.approx(2e-5 / 2)
    assert all(state["step"] == 1 for state in engine.optimizer.state.values())
