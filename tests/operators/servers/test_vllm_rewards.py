"""Rewards of a real server, vLLM on CPU, are the outputs that transformers computes."""

import numpy as np
import pyarrow as pa
import pytest
from tiny_reward_model import save_reward_model
from vllm_server import VllmServer, vllm_python

from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.reward_model_mapper import RewardModelMapper

pytestmark = [pytest.mark.slow, pytest.mark.vllm]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # vLLM has no heads of fewer than 32 numbers.
    return save_reward_model(tmp_path_factory.mktemp("reward_model"), hidden_size=128)


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    vllm_python()
    log = tmp_path_factory.mktemp("vllm") / "log"
    server = VllmServer(folder, "rm", log, "--runner", "pooling")
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize("api", ["classify", "pooling"])
@pytest.mark.parametrize("tokenizer", [False, True])
def test_rewards_are_outputs_before_any_activation(server, folder, api, tokenizer):
    texts = ["x" * (number * 7 % 70) + str(number) for number in range(24)]
    texts += ["too long " * 40, None]
    chat = [{"role": "user", "content": "Why?"}]
    table = pa.table({"prompt": pa.array([chat] * len(texts), MESSAGES), "response": texts})
    local = RewardModelMapper(folder=folder, max_length=128)
    remote = RewardModelMapper(
        model="rm",
        server={"base_url": server.url},
        api=api,
        cache=None,
        **({"tokenizer": str(folder)} if tokenizer else {}),
    )
    try:
        remote.preflight()
        found, expected = remote.apply(table).columns, local.apply(table).columns
    finally:
        remote.close()
        local.close()
    rewards, outputs = (
        np.array(each["reward_model"].to_pylist()[:24]) for each in (found, expected)
    )
    assert outputs.min() < 0  # No probability is.
    np.testing.assert_allclose(rewards, outputs, atol=1e-4, rtol=0)
    assert found["reward_model_missing"].to_pylist()[24:] == ["scorer_refused", "no_response"]
    assert expected["reward_model_missing"].to_pylist()[24:] == ["too_long", "no_response"]
