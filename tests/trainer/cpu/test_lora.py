"""LoRA in verl's training worker with our engine: what is trained, sampled from and referred to."""

import copy

import pytest
from plain_policy import Plain, metrics_of
from rounding import LOG_PROBS

from rejuice.operators.sampling.engines import EMBEDDED

pytestmark = pytest.mark.slow

LORA = {"rank": 4, "alpha": 8}


def log_probs(worker, batch, **more):
    """float32[T]: those that the worker computes, of the tokens of all responses."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    batch = copy.copy(batch)
    for name, value in {"compute_loss": False, **more}.items():
        tu.assign_non_tensor_data(batch, name, value)
    output = worker.compute_log_prob(batch)
    return response_from_nested(output["log_probs"], batch["response_mask"]).values()


def plain_log_probs(batch, policy):
    import torch

    rows = zip(batch["prompts"].unbind(), batch["responses"].unbind(), strict=True)
    with torch.no_grad():
        return torch.cat([policy.log_probs(*row)[0] for row in rows])


@pytest.mark.parametrize("tied", [True, False])
def test_an_update_trains_the_adapter_alone(worker, batch, untied, tied):
    """What is sampled from is what was trained; the reference is the policy without the adapter."""
    import torch

    close = {"rtol": 0, "atol": LOG_PROBS}
    policy = EMBEDDED if tied else untied
    made = worker(policy=str(policy), lora=LORA, learning_rate=1e-2, kl_coef=0.1)
    base = batch["rollout_log_probs"].values()
    before = {name: each.clone() for name, each in made.actor.engine.module.state_dict().items()}
    torch.testing.assert_close(log_probs(made, batch), base, **close)

    found = metrics_of(made.update_actor(copy.copy(batch)))
    assert found["kl_loss"] > 0
    trained = log_probs(made, batch)
    assert (trained - base).abs().max() > 0.1
    torch.testing.assert_close(log_probs(made, batch, no_lora_adapter=True), base, **close)
    torch.testing.assert_close(log_probs(made, batch), trained, rtol=0, atol=0)

    plain = Plain("float32", policy)
    weights, peft_config = made.actor.engine.get_per_tensor_param(base_sync_done=True)
    assert peft_config is None
    weights = dict(weights)
    assert weights.keys() == plain.model.state_dict().keys()
    assert {each.dtype for each in weights.values()} == {torch.float32}
    plain.model.load_state_dict(weights)
    torch.testing.assert_close(plain_log_probs(batch, plain), trained, **close)

    changed = set()
    for name, each in made.actor.engine.module.state_dict().items():
        if not torch.equal(each.full_tensor(), before[name].full_tensor()):
            changed.add(name.rsplit(".", 3)[-3])
    assert changed == {"lora_B"}  # It is 0 at first, so that A gets no gradient yet.


def test_the_adapter_begins_by_the_seed(worker, tmp_path):
    """And modules are those that are asked for."""
    import shutil

    import torch

    def adapter(**train):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        state = worker(lora={**LORA, "target_modules": ["q_proj"]}, **train).actor.engine.module
        found = {n: each.full_tensor() for n, each in state.state_dict().items() if "lora_" in n}
        assert {name.rsplit(".", 4)[1] for name in found} == {"q_proj"}
        return torch.cat([each.flatten() for each in found.values()])

    torch.manual_seed(1)
    one = adapter()
    torch.manual_seed(2)
    assert torch.equal(adapter(), one)
    assert not torch.equal(adapter(seed=1), one)


def saved(worker, folder):
    """Save a checkpoint of the worker where a run has one."""
    checkpoint = folder / "checkpoints" / "global_step_1"
    worker.save_checkpoint(str(checkpoint / "actor"), global_step=1)
    (checkpoint / "data.pt").touch()
    (folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("1")
    return checkpoint


@pytest.mark.parametrize("lora", [None, LORA, {**LORA, "export": "adapter"}])
def test_the_exported_policy_is_the_trained_one(worker, batch, tmp_path, lora):
    """As transformers loads it; and training resumes with it."""
    import torch

    from rejuice.trainer.launch.checkpoints import export

    made = worker(lora=lora, learning_rate=5e-3)
    before = log_probs(made, batch)
    made.update_actor(copy.copy(batch))
    trained = log_probs(made, batch)
    assert (trained - before).abs().max() > 0.1
    checkpoint = saved(made, tmp_path / "run")
    export(tmp_path / "run", tmp_path / "policy")
    files = {path.name for path in (tmp_path / "policy").iterdir()}
    assert ("adapter_model.safetensors" in files) == (lora not in (None, LORA))
    assert ("model.safetensors" in files) == (lora in (None, LORA))
    assert "tokenizer.json" in files
    found = plain_log_probs(batch, Plain("float32", tmp_path / "policy"))
    torch.testing.assert_close(found, trained, rtol=0, atol=LOG_PROBS)

    made.update_actor(copy.copy(batch))
    assert (log_probs(made, batch) - trained).abs().max() > 1e-3
    made.load_checkpoint(str(checkpoint / "actor"))
    torch.testing.assert_close(log_probs(made, batch), trained, rtol=0, atol=0)
