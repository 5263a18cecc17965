"""Tokens of a pass on a CPU, by the size of the policy."""

import json

import pytest

from rejuice.pipelines.recipe.train import Cpu
from rejuice.trainer.launch.verl_config import tokens_per_pass

QWEN = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "vocab_size": 151936}  # fmt: skip
"""The shape of a model of half a billion parameters."""


@pytest.fixture
def policy(tmp_path):
    """A factory of folders that hold a config.json, or none."""

    def make(config=QWEN):
        if config is not None:
            (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return make


def test_a_small_policy_takes_many(policy):
    assert tokens_per_pass("embedded", Cpu()) == 49932
    tiny = {"hidden_size": 8, "num_hidden_layers": 1}
    assert tokens_per_pass(policy(tiny), Cpu()) == 1 << 16


def test_a_language_model_takes_what_4_gib_hold(policy):
    assert tokens_per_pass(policy(), Cpu()) == 661


def test_recomputed_activations_leave_room_for_more(policy):
    assert tokens_per_pass(policy(), Cpu(gradient_checkpointing=True)) == 9709


def test_the_language_model_of_a_model_of_images(policy):
    assert tokens_per_pass(policy({"text_config": QWEN, "hidden_size": 9}), Cpu()) == 661


@pytest.mark.parametrize("config", [None, {}, {"n_embd": 768}])
def test_an_unknown_policy_takes_few(policy, config):
    assert tokens_per_pass(policy(config), Cpu()) == 1024


@pytest.mark.parametrize("name", ["rejuice-tests/no-such-model", "no 'name' of the hub"])
def test_a_policy_that_is_not_here_yet_takes_few(name):
    assert tokens_per_pass(name, Cpu()) == 1024


@pytest.mark.slow
@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize(
    ("sizes", "prompt", "response", "rows"),
    [((64, 348, 3, 4, 2), 20, 60, 4), ((64, 192, 3, 4, 4), 60, 40, 8), ((64, 64, 3, 2, 2), 1, 50, 1)],
)  # fmt: skip
def test_what_a_pass_stores_is_what_is_expected(sizes, prompt, response, rows, recomputed):
    """By the hooks of autograd, for Qwen2 of some proportions: at most it, and not far below."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from rejuice.trainer.cpu.workers import NAME, Shared, use_layout
    from rejuice.trainer.launch.verl_config import _bytes_of_layer

    hidden, inner, layers, heads, keys = sizes
    config = Qwen2Config(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, vocab_size=50,
        num_attention_heads=heads, num_key_value_heads=keys, attn_implementation=NAME,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).train()
    if recomputed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.arange(prompt) % 50
    shared = Shared.of([ids] * rows, [ids.new_full((response,), row) for row in range(rows)])
    weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
    stored = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            stored[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    use_layout(shared.layout)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.model(input_ids=shared.token_ids, position_ids=shared.position_ids, use_cache=False)
    use_layout(None)
    found = sum(size for size, _ in stored.values()) / shared.layout.tokens
    shape = {"hidden_size": hidden, "intermediate_size": inner}
    # Recomputed: the inputs of layers, and what stands before and after all of them.
    expected = 4 * hidden * (layers + 3) if recomputed else _bytes_of_layer(shape) * layers
    assert expected / 2 < found < 1.25 * expected
