"""The policy of a checkpoint, as transformers and vLLM load it.

The checkpoints are as verl saves them, of the embedded policy or, with REJUICE_REAL_MODEL, of
another one: whole, or as the adapter of LoRA alone.
"""

import json
import os
import pickle
from pathlib import Path

import pytest
from rounding import LOG_PROBS
from shards import save_shard
from true_policy import TruePolicy
from vllm_server import EMBEDDED, vllm_python

from rejuice.operators.sampling.protocol import Prompt, Settings, VllmOptions
from rejuice.operators.sampling.vllm_engine import vllm_process

pytestmark = pytest.mark.slow

IDS = ([5, 6, 7, 8], [9, 10, 11, 12, 13])
"""A prompt and a response, as any tokenizer has them."""


def real_model():
    folder = os.environ.get("REJUICE_REAL_MODEL")
    if not folder:
        pytest.skip("REJUICE_REAL_MODEL names no folder of a model")
    return Path(folder)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_model)])
def policy(request):
    return EMBEDDED if request.param == "embedded" else real_model()


def save(folder, policy, lora=None, seed=0):
    """A checkpoint of the policy after some training; gives the trained model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(policy, dtype="float32").eval()
    (folder / "huggingface").mkdir(parents=True)
    model.config.save_pretrained(folder / "huggingface")
    AutoTokenizer.from_pretrained(policy).save_pretrained(folder / "huggingface")
    if lora is not None:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(**lora, task_type="CAUSAL_LM"))
        meta = {"r": lora["r"], "lora_alpha": lora["lora_alpha"], "task_type": "CAUSAL_LM"}
        (folder / "lora_train_meta.json").write_text(json.dumps(meta))
    torch.manual_seed(seed)
    with torch.no_grad():
        for each in model.parameters():
            if each.requires_grad:
                # As small as training is: a policy that is no longer one magnifies rounding.
                size = 0.1 * each.std() if each.any() and each.numel() > 1 else 0.01
                each += size * torch.randn_like(each)
    state = {k: v for k, v in model.state_dict().items() if lora is None or "lora_" in k}
    torch.save(state, folder / "model_world_size_1_rank_0.pt")
    return model


def merged(folder, policy, target, dtype="float32", *, adapter=False):
    import torch

    from rejuice.trainer.launch.merge import merge

    merge(folder, target, str(policy), getattr(torch, dtype), adapter=adapter)
    return target


def logprobs(model, prompt_ids, token_ids):
    policy = TruePolicy.__new__(TruePolicy)
    policy._model = model
    return policy.logprobs(prompt_ids, token_ids)


LORAS = {
    "whole": None,
    "all-linear": {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
    "some": {"r": 2, "lora_alpha": 6, "target_modules": ["layers.0.self_attn.q_proj"]},
}


@pytest.mark.parametrize("lora", LORAS)
def test_log_probs_are_those_of_what_was_trained(verl, policy, tmp_path, lora):
    trained = save(tmp_path / "actor", policy, LORAS[lora])
    # In float64, where the sum of weights and adapter is the only thing that is rounded.
    expected = logprobs(trained.double(), *IDS)
    del trained
    assert expected != pytest.approx(TruePolicy(policy).logprobs(*IDS), abs=1e-3)
    folder = merged(tmp_path / "actor", policy, tmp_path / "policy")
    # The sum is rounded to float32; what that does grows with the size of a log-probability.
    found = TruePolicy(folder, "float64").logprobs(*IDS)
    assert found == pytest.approx(expected, rel=5e-6, abs=1e-5)
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "float32"


def test_an_adapter_is_as_peft_saves_it(verl, policy, tmp_path):
    from peft import AutoPeftModelForCausalLM

    trained = save(tmp_path / "actor", policy, LORAS["all-linear"])
    folder = merged(tmp_path / "actor", policy, tmp_path / "policy", adapter=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["r"]) == (str(policy), 4)
    assert set(config["target_modules"]) >= {"q_proj", "down_proj"}
    assert not (folder / "model.safetensors").exists()
    found = AutoPeftModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    expected = logprobs(trained, *IDS)
    assert logprobs(found, *IDS) == pytest.approx(expected, abs=LOG_PROBS)


def test_bfloat16_is_rounded_once(verl, tmp_path):
    """After the adapter was added, not before."""
    import torch
    from safetensors.torch import load_file

    trained = save(tmp_path / "actor", EMBEDDED, LORAS["all-linear"])
    folder = merged(tmp_path / "actor", EMBEDDED, tmp_path / "policy", "bfloat16")
    found = load_file(folder / "model.safetensors")
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    whole = trained.merge_and_unload().state_dict()
    for name, weights in found.items():
        assert torch.equal(weights, whole[name].bfloat16()), name


def test_an_adapter_of_another_policy_is_refused(verl, tmp_path):
    save(tmp_path / "actor", EMBEDDED, LORAS["all-linear"])
    path = tmp_path / "actor" / "model_world_size_1_rank_0.pt"
    import torch

    state = torch.load(path)
    name = next(iter(state))
    state[name.replace("layers.0", "layers.77")] = state.pop(name)
    torch.save(state, path)
    with pytest.raises(ValueError, match=r"has no module for the adapter's .*layers\.77"):
        merged(tmp_path / "actor", EMBEDDED, tmp_path / "policy")


def test_shards_of_processes_are_joined(verl, tmp_path):
    """As FSDP2 cuts them for two, unevenly; what is not cut is taken once."""
    import torch
    import torch.multiprocessing as mp

    trained = save(tmp_path / "actor", EMBEDDED)
    (tmp_path / "actor" / "model_world_size_1_rank_0.pt").unlink()
    mp.spawn(save_shard, (str(tmp_path / "actor"), trained.state_dict()), nprocs=2)
    assert len(list((tmp_path / "actor").glob("*.pt"))) == 2
    folder = merged(tmp_path / "actor", EMBEDDED, tmp_path / "policy")
    expected = logprobs(trained, *IDS)
    assert TruePolicy(folder).logprobs(*IDS) == pytest.approx(expected, abs=LOG_PROBS)
    assert torch.get_default_dtype() == torch.float32


class Canary:
    """What runs when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_checkpoint_is_not_unpickled_unless_it_is_trusted(verl, tmp_path):
    import torch

    from rejuice.trainer.launch.merge import _loaded

    file, canary = tmp_path / "model_world_size_1_rank_0.pt", tmp_path / "canary"
    torch.save({"weight": torch.ones(2), "other": Canary(canary)}, file)
    with pytest.raises(pickle.UnpicklingError):
        _loaded(file, trusted=False)
    assert not canary.exists()
    assert _loaded(file, trusted=True)["weight"].tolist() == [1, 1]
    assert canary.exists()


@pytest.mark.vllm
@pytest.mark.parametrize("lora", ["whole", "all-linear"])
def test_vllm_samples_from_what_was_trained(verl, policy, tmp_path, lora):
    """Its log-probabilities of what it samples are those of the trained model in transformers."""
    options = VllmOptions(
        python=vllm_python(), dtype="float32", max_model_len=256,
        arguments={"enforce_eager": True, "max_num_seqs": 8},
    )  # fmt: skip
    trained = save(tmp_path / "actor", policy, LORAS[lora])
    folder = merged(tmp_path / "actor", policy, tmp_path / "policy")
    engine = vllm_process(str(folder), options)
    try:
        prompts = [Prompt((("user", f"What is {k} + 4?"),), k) for k in range(4)]
        found = dict(engine.sample(prompts, Settings(n=2, max_tokens=16)))
    finally:
        engine.close()
    for group in found.values():
        for sample in group.samples:
            expected = logprobs(trained, group.prompt_token_ids, sample.token_ids)
            assert sample.logprobs == pytest.approx(expected, abs=LOG_PROBS)
    assert len(found) == 4
