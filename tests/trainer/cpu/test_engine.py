"""verl's training worker with our engine, in this process, against an update in plain torch.

rows       sampled from the embedded policy by the engine of `policy_rollout_mapper`
ours       ActorRolloutRefWorker, composed from our overrides: FSDP2 over gloo, packed rows
theirs     a forward pass for each row, the loss of GRPO written out, AdamW
"""

import copy
import importlib

import pytest

pytestmark = pytest.mark.slow

N, PROMPTS = 4, 6
LEARNING_RATE = 1e-4
ROUNDING = 2.5  # times the largest error of a plain forward pass in float32
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
        importlib.import_module("rejuice.trainer.cpu.workers")

        yield
        torch.distributed.destroy_process_group()


@pytest.fixture
def worker(process, tmp_path):
    """A factory of workers, by role and keys of the `train:` section."""
    from training_stage import PLAIN, _recipe
    from verl.workers.engine_workers import ActorRolloutRefWorker
    from verl_configs import config_of

    from rejuice.trainer.launch.training import prepare

    def make(role="actor", **train):
        train = {"learning_rate": LEARNING_RATE, "prompts_per_step": PROMPTS, **train}
        run = prepare(_recipe(tmp_path, PLAIN, PROMPTS, N, {}, train), tmp_path / "run")
        config = config_of(run)
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

    message = [
        f"Ivy has {k + 3} eggs. Leo has {2 * k} more. How many has Leo?" for k in range(PROMPTS)
    ]
    prompts = [Prompt((("user", text),), seed) for seed, text in enumerate(message)]
    engine = TransformersEngine(EMBEDDED)
    found = dict(engine.sample(prompts, Settings(n=N, max_tokens=48)))
    return [found[k] for k in range(PROMPTS)]


@pytest.fixture
def keys(queue, groups):
    """Rows in TransferQueue as they stand before the update, in an order that mixes the prompts."""
    import torch
    from tensordict import TensorDict

    from rejuice.trainer.loop.trajectories import Slot, put

    slots = [
        Slot(f"uid{k}", {"extra_info": {"index": k, "prompt_id": str(k)}}) for k in range(PROMPTS)
    ]
    put(zip(slots, groups, strict=True), "train", 1)
    keys = [key for key in queue.partitions["train"] if "_" in key]
    keys = [keys[row] for row in torch.randperm(len(keys), generator=seeded(0)).tolist()]
    data = queue.kv_batch_get(keys, "train", ["responses", "rollout_log_probs"])
    lengths = data["responses"].offsets().diff()
    advantage_N = torch.randn(len(keys), generator=seeded(1))
    fields = {
        "advantages": like(data["responses"], torch.repeat_interleave(advantage_N, lengths)),
        # Far enough that some ratios are clipped, below and above.
        "old_log_probs": noisy(data["rollout_log_probs"], 0.3, 2),
        "ref_log_prob": noisy(data["rollout_log_probs"], 0.5, 3),
    }
    queue.kv_batch_put(keys, "train", TensorDict(fields, batch_size=len(keys)))
    return keys


@pytest.fixture
def batch(queue, keys):
    """The rows as verl's trainer hands them to the actor."""
    return reported(queue.kv_batch_get(keys, "train"))


def reported(data):
    """What the trainer says beside the rows."""
    from verl.utils import tensordict_utils as tu

    size = len(data)
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
    """The policy in plain torch: no packing, no sharing, no FSDP.

    Args:
        dtype: what it computes in; entropies in float64 are exact, those in float32 are verl's.
    """

    def __init__(self, dtype="float64"):
        from transformers import AutoModelForCausalLM

        from rejuice.operators.sampling.engines import EMBEDDED

        self.model = AutoModelForCausalLM.from_pretrained(
            EMBEDDED, dtype=dtype, attn_implementation="sdpa"
        )

    def log_probs(self, prompt, response, temperature=1.0):
        """float[T]: of a response's tokens; and their entropies."""
        import torch

        ids = torch.cat((prompt, response))[None]
        hidden = self.model.model(ids, use_cache=False).last_hidden_state[0]
        logits = self.model.lm_head(hidden)[len(prompt) - 1 : -1] / temperature
        every = logits.log_softmax(-1)
        if logits.dtype == torch.float64:
            entropy = -(every.exp() * every).sum(-1)
        else:
            entropy = logits.logsumexp(-1) - (logits.softmax(-1) * logits).sum(-1)
        return every.gather(1, response[:, None])[:, 0], entropy

    def loss(self, batch, low=0.2, high=0.28, dual=3.0, kl_coef=0.0):
        """GRPO's, a mean over tokens, and its parts."""
        import torch

        names = ("prompts", "responses", "old_log_probs", "advantages", "ref_log_prob")
        policy, divergence, entropies, clipped_off = [], [], [], []
        for prompt, response, old, advantage, reference in zip(
            *(batch[name].unbind() for name in names), strict=True
        ):
            log_prob, entropy = self.log_probs(prompt, response)
            ratio = (log_prob - old).exp()
            pending = ratio.clamp(1 - low, 1 + high) * advantage
            gain = torch.minimum(ratio * advantage, pending)
            clipped_off.append((pending < ratio * advantage).double())
            # Where the advantage is negative, no token costs more than `dual` times it.
            gain = torch.where(advantage < 0, torch.maximum(gain, dual * advantage), gain)
            policy.append(-gain)
            far = reference - log_prob
            divergence.append((far.exp() - far - 1).clamp(-10, 10))
            entropies.append(entropy)
        parts = {"pg": policy, "kl": divergence, "entropy": entropies, "clipped": clipped_off}
        means = {name: torch.cat(each).mean() for name, each in parts.items()}
        return means["pg"] + kl_coef * means["kl"], means


def metrics_of(output):
    from verl.utils.metric import reduce_metrics

    found = output["metrics"]
    return reduce_metrics(dict(getattr(found, "data", found)))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_the_policy(worker, batch, temperature):
    """As near to float64 as a plain forward pass in float32 is on this processor.

    The largest error over a few hundred tokens is a matter of the order of sums, which is another
    one with packed rows, hence a factor. Log-probabilities come within 1e-5. Entropies come within
    5e-5 at temperature 1, because verl takes logsumexp(l) - sum(softmax(l) * l): whatever a softmax
    lacks to a sum of 1, up to 3e-6 where registers hold 8 numbers, is multiplied by the logits,
    which reach 20. Elsewhere verl's formula is given the same plain logits.
    """
    import torch
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    tu.assign_non_tensor_data(batch, "compute_loss", False)
    tu.assign_non_tensor_data(batch, "temperature", temperature)
    output = worker().compute_log_prob(copy.copy(batch))
    mask = batch["response_mask"]
    ours = [response_from_nested(output[name], mask) for name in ("log_probs", "entropy")]
    rows = list(zip(batch["prompts"].unbind(), batch["responses"].unbind(), strict=True))
    true, plain = (
        [torch.cat(each).detach() for each in zip(*per_row, strict=True)]
        for per_row in (
            [policy.log_probs(*row, temperature) for row in rows]
            for policy in (Plain(), Plain("float32"))
        )
    )
    for found, wanted, alone, most in zip(ours, true, plain, (2e-5, 1e-4), strict=True):
        error = (alone.double() - wanted).abs().max().item()
        assert 0 < error < most
        torch.testing.assert_close(found.values().double(), wanted, rtol=0, atol=ROUNDING * error)
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


@pytest.mark.parametrize(
    ("kl_coef", "pieces"), [(0.0, 1), (0.1, 3)], ids=["whole", "divergence in pieces"]
)
def test_an_update_is_that_of_plain_torch(worker, batch, kl_coef, pieces):
    """Some tokens are clipped, the gradient is shortened, and AdamW takes its first step."""
    import torch

    tokens = int(batch["input_ids"].offsets()[-1])
    room = {"actor_rollout_ref.actor.ppo_max_token_len_per_gpu": tokens // pieces + 64}
    made = worker(clip_ratio_high=0.28, kl_coef=kl_coef, verl=room)
    plain = Plain()
    before = {name: each.detach().clone() for name, each in plain.model.named_parameters()}
    loss, parts = plain.loss(batch, kl_coef=kl_coef)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 1.0)
    torch.optim.AdamW(plain.model.parameters(), lr=LEARNING_RATE, weight_decay=0.0).step()

    found = metrics_of(made.update_actor(copy.copy(batch)))
    assert norm > 1.5
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert found["actor/pg_loss"] == pytest.approx(parts["pg"].item(), rel=1e-6)
    assert found["actor/entropy_loss"] == pytest.approx(parts["entropy"].item(), rel=1e-5)
    assert found["actor/pg_clipfrac"] == pytest.approx(parts["clipped"].item(), abs=0.01)
    assert found["actor/pg_clipfrac"] > 0.1
    assert found["grad_norm"] == pytest.approx(norm.item(), rel=5e-6)  # float32's own error.
    if kl_coef:
        assert found["kl_loss"] == pytest.approx(parts["kl"].item(), rel=1e-6)
    weights = dict(made.actor.engine.get_per_tensor_param()[0])
    for name, theirs in plain.model.named_parameters():
        far = (weights[name].double() - theirs).abs()
        # AdamW divides a gradient by its size: of one that is nothing, rounding is left.
        assert far[theirs.grad.abs() > 1e-7].max() < 1e-6, name
        assert far.max() < LEARNING_RATE / 5, name
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
        assert padded[name] == pytest.approx(plain[name], rel=2e-6), name
