"""verl's training worker with our engine, in this process, against an update in plain torch.

    rows       sampled from the embedded policy by the engine of `policy_rollout_mapper`
    ours       ActorRolloutRefWorker, composed from our overrides: FSDP2 over gloo, packed rows
    theirs     a forward pass for each row, the loss of GRPO written out, AdamW
"""

import copy
import os

import pytest

pytestmark = pytest.mark.slow

N, PROMPTS = 4, 6
LEARNING_RATE = 1e-4
RANK = {
    "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",  # A file is used, but verl asks.
}  # fmt: skip


@pytest.fixture(scope="module")
def process(verl, tmp_path_factory):
    """This process as the only worker of a run."""
    import sys

    import torch
    from transformers import Qwen2ForCausalLM

    store = tmp_path_factory.mktemp("gloo") / "store"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in RANK.items():
            patch.setenv(name, value)
        patch.setitem(sys.modules, "trl", None)
        # verl puts its own in its place, of the class.
        patch.setattr(Qwen2ForCausalLM, "forward", Qwen2ForCausalLM.forward)
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=0, world_size=1
        )
        import rejuice.trainer.cpu.workers

        yield
        torch.distributed.destroy_process_group()


@pytest.fixture
def worker(process, tmp_path):
    """A factory of workers, by role and keys of the `train:` section."""
    from hydra import compose, initialize_config_module
    from training_stage import PLAIN, _recipe
    from verl.workers.engine_workers import ActorRolloutRefWorker

    from rejuice.trainer.launch import prepare
    from rejuice.trainer.overrides import overrides, words

    def make(role="actor", **train):
        train = {"learning_rate": LEARNING_RATE, "prompts_per_step": PROMPTS, **train}
        run = prepare(*_recipe(tmp_path, PLAIN, PROMPTS, N, {}, train), tmp_path / "run")
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=words(overrides(run, resume=False)))
        made = ActorRolloutRefWorker(config.actor_rollout_ref, role=role)
        made.init_model()
        return made

    return make


@pytest.fixture(scope="module")
def groups():
    """Real responses of the embedded policy."""
    from rejuice.operators.sampling.engines import EMBEDDED
    from rejuice.operators.sampling.protocol import Prompt, Settings
    from rejuice.operators.sampling.transformers_engine import TransformersEngine

    said = [f"Ivy has {k + 3} eggs. Leo has {2 * k} more. How many has Leo?" for k in range(PROMPTS)]
    prompts = [Prompt((("user", text),), seed) for seed, text in enumerate(said)]
    engine = TransformersEngine(EMBEDDED)
    found = dict(engine.sample(prompts, Settings(n=N, max_tokens=48)))
    return [found[k] for k in range(PROMPTS)]


@pytest.fixture
def batch(queue, groups):
    """The rows as verl's trainer hands them to the actor, in an order that mixes the prompts."""
    import torch
    from verl.utils import tensordict_utils as tu

    from rejuice.trainer.trajectories import Slot, put

    slots = [Slot(f"uid{k}", {"extra_info": {"index": k, "prompt_id": str(k)}}) for k in range(PROMPTS)]
    put(zip(slots, groups, strict=True), "train", 1)
    keys = [key for key in queue.partitions["train"] if "_" in key]
    keys = [keys[row] for row in torch.randperm(len(keys), generator=seeded(0)).tolist()]
    data = queue.kv_batch_get(keys, "train")
    lengths = data["responses"].offsets().diff()
    advantage_N = torch.randn(len(keys), generator=seeded(1))
    data["advantages"] = like(data["responses"], torch.repeat_interleave(advantage_N, lengths))
    # Far enough that some ratios are clipped, below and above.
    data["old_log_probs"] = noisy(data["rollout_log_probs"], 0.3, 2)
    data["ref_log_prob"] = noisy(data["rollout_log_probs"], 0.5, 3)
    size = PROMPTS * N
    extra = {
        "calculate_entropy": True, "distillation_use_topk": False, "distillation_only": False,
        "global_batch_size": size, "mini_batch_size": size, "epochs": 1, "seed": 0,
        "dataloader_kwargs": {"shuffle": False}, "temperature": 1.0, "compute_loss": True,
    }  # fmt: skip
    for name, value in extra.items():
        tu.assign_non_tensor_data(data, name, value)
    return data


def seeded(seed):
    import torch

    return torch.Generator().manual_seed(seed)


def like(nested, values):
    import torch

    return torch.nested.nested_tensor_from_jagged(values, nested.offsets())


def noisy(nested, scale, seed):
    import torch

    noise = scale * torch.randn(nested.values().shape, generator=seeded(seed))
    return like(nested, nested.values() + noise)


class Plain:
    """The policy in plain torch: no packing, no sharing, no FSDP."""

    def __init__(self):
        from transformers import AutoModelForCausalLM

        from rejuice.operators.sampling.engines import EMBEDDED

        self.model = AutoModelForCausalLM.from_pretrained(
            EMBEDDED, dtype="float32", attn_implementation="eager"
        )

    def log_probs(self, prompt, response, temperature=1.0):
        """float[T]: of a response's tokens; and their entropies."""
        import torch

        ids = torch.cat((prompt, response))[None]
        hidden = self.model.model(ids, use_cache=False).last_hidden_state[0]
        logits = self.model.lm_head(hidden)[len(prompt) - 1 : -1] / temperature
        every = logits.log_softmax(-1)
        entropy = -(every.exp() * every).sum(-1)
        return every.gather(1, response[:, None])[:, 0], entropy

    def loss(self, batch, low=0.2, high=0.28, dual=3.0, kl_coef=0.0):
        """GRPO's, a mean over tokens, and its parts."""
        import torch

        names = ("prompts", "responses", "old_log_probs", "advantages", "ref_log_prob")
        policy, divergence, entropies = [], [], []
        for prompt, response, old, advantage, reference in zip(
            *(batch[name].unbind() for name in names), strict=True
        ):
            log_prob, entropy = self.log_probs(prompt, response)
            ratio = (log_prob - old).exp()
            clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
            # Where the advantage is negative, no token costs more than `dual` times it.
            policy.append(-torch.where(advantage < 0, torch.maximum(clipped, dual * advantage), clipped))
            far = reference - log_prob
            divergence.append((far.exp() - far - 1).clamp(-10, 10))
            entropies.append(entropy)
        pg, kl, entropy = (torch.cat(each).mean() for each in (policy, divergence, entropies))
        return pg + kl_coef * kl, {"pg": pg, "kl": kl, "entropy": entropy}


def metrics_of(output):
    from verl.utils.metric import reduce_metrics

    found = output["metrics"]
    return reduce_metrics(dict(getattr(found, "data", found)))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_the_policy(worker, batch, temperature):
    import torch
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    tu.assign_non_tensor_data(batch, "compute_loss", False)
    tu.assign_non_tensor_data(batch, "temperature", temperature)
    output = worker().compute_log_prob(copy.copy(batch))
    mask, plain = batch["response_mask"], Plain()
    ours = [response_from_nested(output[name], mask) for name in ("log_probs", "entropy")]
    rows = zip(batch["prompts"].unbind(), batch["responses"].unbind(), strict=True)
    true = [plain.log_probs(*row, temperature) for row in rows]
    for found, wanted in zip(ours, zip(*true, strict=True), strict=True):
        torch.testing.assert_close(found.values(), torch.cat(wanted), rtol=0, atol=1e-5)
    if temperature == 1.0:
        sampled = batch["rollout_log_probs"].values()
        torch.testing.assert_close(ours[0].values(), sampled, rtol=0, atol=1e-5)


def test_log_probs_of_the_reference(worker, batch):
    """It holds its weights where it computes: nothing is pinned, nothing offloaded."""
    import torch
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    tu.assign_non_tensor_data(batch, "compute_loss", False)
    tu.assign_non_tensor_data(batch, "calculate_entropy", False)
    output = worker("ref", kl_coef=0.1).compute_ref_log_prob(copy.copy(batch))
    ours = response_from_nested(output["log_probs"], batch["response_mask"]).values()
    torch.testing.assert_close(ours, batch["rollout_log_probs"].values(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
@pytest.mark.parametrize("pieces", [1, 3], ids=["whole", "pieces"])
def test_an_update_is_that_of_plain_torch(worker, batch, kl_coef, pieces):
    import torch

    longest = int(batch["input_ids"].offsets().diff().max())
    tokens = int(batch["input_ids"].offsets()[-1])
    room = max(tokens // pieces, longest)
    verl = {} if pieces == 1 else {
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": room,
    }  # fmt: skip
    made = worker(clip_ratio_high=0.28, kl_coef=kl_coef, verl=verl)
    plain = Plain()
    loss, parts = plain.loss(batch, kl_coef=kl_coef)
    loss.backward()
    optimizer = torch.optim.AdamW(plain.model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    norm = torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 1.0)
    optimizer.step()

    found = metrics_of(made.update_actor(copy.copy(batch)))
    print({k: v for k, v in found.items()}, loss.item(), norm.item())
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert found["actor/pg_loss"] == pytest.approx(parts["pg"].item(), rel=1e-6)
    assert found["actor/entropy_loss"] == pytest.approx(parts["entropy"].item(), rel=1e-6)
    assert found["grad_norm"] == pytest.approx(norm.item(), rel=1e-6)
    if kl_coef:
        assert found["kl_loss"] == pytest.approx(parts["kl"].item(), rel=1e-6)
    weights, _ = made.actor.engine.get_per_tensor_param()
    weights = dict(weights)
    worst = {}
    for name, theirs in plain.model.named_parameters():
        ours = weights[name]
        worst[name] = ((ours - theirs).abs().max().item(), theirs.grad.abs().max().item())
    print(worst)
