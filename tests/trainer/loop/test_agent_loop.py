"""One response at a time: verl's own agent loop worker, with a server that is made up."""

import asyncio
import math

import numpy as np
import pytest
from training_stage import PLAIN
from verl_configs import config_of

from rejuice.operators.sampling.seeds import prompt_seed
from rejuice.operators.sampling.tokenizer import chat_encoder
from rejuice.trainer.policies import policy_path

pytestmark = pytest.mark.slow  # Imports verl.

N = 4


class Client:
    """What a worker asks for responses; each says `1`, and the policy that samples is at 2."""

    def __init__(self, tokenizer):
        self.requested = []
        self.message = [*tokenizer.encode("1"), tokenizer.eos_token_id]

    async def generate(self, request_id, *, prompt_ids, sampling_params, **more):
        from verl.workers.rollout.replica import TokenOutput

        self.requested.append((tuple(prompt_ids), sampling_params))
        return TokenOutput(
            token_ids=self.message,
            log_probs=[-0.5] * len(self.message),
            extra_fields={"global_steps": 2, "min_global_steps": 2, "max_global_steps": 2},
        )


@pytest.fixture
def sampled(stage, queue, monkeypatch):
    """Hand prompts of a step to a worker of a run on GPUs, and wait for its agent loops."""
    import transfer_queue
    from tensordict import NonTensorData
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
    from verl.utils import tensordict_utils

    async def put(key, **more):
        queue.kv_put(key, **more)

    async def batch_put(keys, **more):
        queue.kv_batch_put(keys, **more)

    monkeypatch.setattr(transfer_queue, "init", lambda: None)
    monkeypatch.setattr(transfer_queue, "async_kv_put", put, raising=False)
    monkeypatch.setattr(transfer_queue, "async_kv_batch_put", batch_put, raising=False)
    here = stage(PLAIN, n=N, profile="gpu")
    config = config_of(here.run)
    client = Client(here._policy.tokenizer)

    def sample(prompts, step):
        slots = here.ask(prompts, step=step)
        batch = tensordict_utils.get_tensordict(
            {
                "raw_prompt": _column(here.prompts[index]["prompt"] for index in prompts),
                "extra_info": _column(slot.fields["extra_info"] for slot in slots),
                "index": _column(prompts),
                "uid": _column(slot.uid for slot in slots),
            }
        )
        batch["global_steps"] = NonTensorData(step)
        client.requested.clear()

        async def work():
            worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(config, client)
            await worker.generate_sequences(batch)
            await asyncio.gather(*worker.background_tasks)

        asyncio.run(work())
        return [sampling["seed"] for _, sampling in client.requested]

    sample.stage, sample.client = here, client
    return sample


def _column(values):
    """An array of objects, whatever their shape; np.array would look into them."""
    values = list(values)
    column = np.empty(len(values), object)
    column[:] = values
    return column


def test_each_response_has_a_seed_of_its_prompt_step_and_number(sampled):
    seeds = sampled([0, 3], step=3)
    names = [sampled.stage.prompts[index]["prompt_id"] for index in (0, 3)]
    run_seed = sampled.stage.run.config.seed
    expected = [prompt_seed(name, run_seed, 3) + k for name in names for k in range(N)]
    assert sorted(seeds) == sorted(expected)  # They are requested at once, in no order.
    assert len(set(seeds)) == 2 * N
    assert max(seeds) < 2**63  # What vLLM takes.
    assert sorted(sampled([3, 0], step=3)) == sorted(seeds)
    assert set(sampled([0, 3], step=4)).isdisjoint(seeds)


def test_the_rest_of_how_it_is_sampled_is_the_recipes(sampled):
    sampled([1], step=1)
    requested = sampled.client.requested
    chat = [(m["role"], m["content"]) for m in sampled.stage.prompts[1]["prompt"]]
    encode = chat_encoder(policy_path(sampled.stage.run.policy), {})
    assert {ids for ids, _ in requested} == {tuple(encode(tuple(chat)))}
    sampling = requested[0][1]
    assert sampling.pop("seed") >= 0
    assert sampling == {
        "temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True
    }  # fmt: skip


def test_no_reward_is_made_up_and_the_recipe_gives_its_own(sampled):
    sampled([0, 3], step=3)
    queue = sampled.stage.queue
    entries = {k: e for k, e in queue.partitions["train"].items() if k.count("_") == 2}
    assert len(entries) == 2 * N
    for entry in entries.values():
        assert math.isnan(entry.fields["rm_scores"][-1])
        assert entry.fields["extra_fields"]["reward_extra_info"] == {}
    batch, _ = sampled.stage.sample(step=3, groups=2)
    assert sampled.stage.rewards(batch) == [1.0] * (2 * N)
    assert {tag["min_global_steps"] for tag in batch.tags} == {2}
    rows = sampled.stage.saved("rollouts", step=3)
    assert set(rows["response"].to_pylist()) == {"1"}
    assert set(rows["policy_version"].to_pylist()) == {2}
