"""verl's training worker in this process, and rows that the embedded policy has sampled."""

import importlib

import pytest
from plain_policy import LEARNING_RATE, PROMPTS, N, like, noisy, reported, seeded

RANK = {
    "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1", "WG_BACKEND": "ray",
}  # fmt: skip


@pytest.fixture(scope="module")
def process(verl):
    """This process as the only worker of a run; the port that was free is taken meanwhile."""
    import socket
    import sys

    import torch
    from transformers import Qwen2ForCausalLM

    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as taken:
        for name, value in RANK.items():
            patch.setenv(name, value)
        patch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        patch.setitem(sys.modules, "trl", None)
        # verl puts its own in its place, of the class.
        patch.setattr(Qwen2ForCausalLM, "forward", Qwen2ForCausalLM.forward)
        importlib.import_module("rejuice.trainer.cpu.workers")._open_group()

        yield
        torch.distributed.destroy_process_group()


@pytest.fixture
def worker(process, tmp_path):
    """A factory of workers, by role, tokens of a micro-batch and keys of the `train:` section."""
    from training_stage import PLAIN, _recipe
    from verl.workers.engine_workers import ActorRolloutRefWorker
    from verl_configs import config_of

    from rejuice.trainer.launch.training import prepare

    def make(role="actor", room=None, **train):
        train = {"learning_rate": LEARNING_RATE, "prompts_per_step": PROMPTS, **train}
        run = prepare(_recipe(tmp_path, PLAIN, PROMPTS, N, {}, train), tmp_path / "run")
        config = config_of(run)
        if room is not None:  # In a recipe, the run owns this key.
            config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu = room
        made = ActorRolloutRefWorker(config.actor_rollout_ref, role=role)
        made.init_model()
        return made

    return make


@pytest.fixture(scope="session")
def untied(tmp_path_factory):
    """The embedded policy with an output layer of its own, of the same weights."""
    import shutil

    from transformers import AutoModelForCausalLM

    from rejuice.operators.sampling.engines import EMBEDDED

    folder = tmp_path_factory.mktemp("untied")
    shutil.copytree(EMBEDDED, folder, dirs_exist_ok=True)
    policy = AutoModelForCausalLM.from_pretrained(EMBEDDED)
    assert policy.config.tie_word_embeddings
    policy.config.tie_word_embeddings = False
    policy.lm_head.weight = type(policy.lm_head.weight)(policy.lm_head.weight.detach().clone())
    policy.save_pretrained(folder)
    return folder


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

    from rejuice.trainer.verl.trajectories import Slot, put

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
