"""One response at a time: verl's own agent loop worker, with a server that is made up."""

import math
from collections import Counter

import pytest
from loop_worker import LoopWorker
from training_stage import PLAIN

from rejuice.operators.sampling.engines import policy_path
from rejuice.operators.sampling.protocol import prompt_seed
from rejuice.operators.sampling.tokenizer import chat_encoder

pytestmark = pytest.mark.slow  # Imports verl.

N = 4


class Client:
    """What a worker asks for responses; each says `1`, and the policy that samples is at 2."""

    def __init__(self, tokenizer):
        self.requested = []
        self.failing = ()  # Which of its calls fail.
        self.message = [*tokenizer.encode("1"), tokenizer.eos_token_id]

    async def generate(self, request_id, *, prompt_ids, sampling_params, **more):
        from verl.workers.rollout.replica import TokenOutput

        self.requested.append((tuple(prompt_ids), sampling_params))
        if len(self.requested) in self.failing:
            raise RuntimeError("the engine is out of memory")
        return TokenOutput(
            token_ids=self.message,
            log_probs=[-0.5] * len(self.message),
            extra_fields={"global_steps": 2, "min_global_steps": 2, "max_global_steps": 2},
        )


@pytest.fixture
def sampled(stage, monkeypatch):
    """Hand prompts of a step to a worker of a run on GPUs, and wait for its agent loops."""
    return worker_of(stage, monkeypatch)


@pytest.fixture
def seeded(stage, monkeypatch):
    """The same, of a run that can be reproduced."""
    return worker_of(stage, monkeypatch, gpu={"reproducible": True})


def worker_of(stage, monkeypatch, **train):
    here = stage(PLAIN, n=N, profile="gpu", **train)
    client = Client(here._policy.tokenizer)
    worker = LoopWorker(here, client, monkeypatch)

    def sample(prompts, step):
        client.requested.clear()
        worker.sample(prompts, step)
        return [sampling.get("seed") for _, sampling in client.requested]

    sample.stage, sample.client = here, client
    return sample


def test_each_response_has_a_seed_of_its_prompt_step_and_number(seeded):
    sampled = seeded
    seeds = sampled([0, 3], step=3)
    names = [sampled.stage.prompts[index]["prompt_id"] for index in (0, 3)]
    run_seed = sampled.stage.run.config.seed
    expected = [prompt_seed(name, run_seed, 3) + k for name in names for k in range(N)]
    assert sorted(seeds) == sorted(expected)  # They are requested at once, in no order.
    assert len(set(seeds)) == 2 * N
    assert max(seeds) < 2**63  # What vLLM takes.
    assert sorted(sampled([3, 0], step=3)) == sorted(seeds)
    assert set(sampled([0, 3], step=4)).isdisjoint(seeds)


def test_the_seed_is_stored_with_the_response(seeded):
    seeded([0], step=3)
    seeded.stage.sample(step=3, groups=1)
    expected = prompt_seed(seeded.stage.prompts[0]["prompt_id"], seeded.stage.run.config.seed, 3)
    rows = seeded.stage.saved("rollouts", step=3)["sampling"].to_pylist()
    assert {row["seed"] for row in rows} == {expected}


def test_by_default_no_request_has_a_seed_and_none_is_stored(sampled):
    """vLLM would draw the tokens of each seeded response by itself."""
    assert sampled([0, 3], step=3) == [None] * (2 * N)
    assert not any("seed" in sampling for _, sampling in sampled.client.requested)
    sampled.stage.sample(step=3, groups=2)
    rows = sampled.stage.saved("rollouts", step=3)["sampling"].to_pylist()
    assert rows == [{"temperature": 1.0, "top_p": 1.0, "max_tokens": 16, "seed": None}] * (2 * N)


def test_the_rest_of_how_it_is_sampled_is_the_recipes(sampled):
    sampled([1], step=1)
    requested = sampled.client.requested
    chat = [(m["role"], m["content"]) for m in sampled.stage.prompts[1]["prompt"]]
    encode = chat_encoder(policy_path(sampled.stage.run.policy), {})
    assert {ids for ids, _ in requested} == {tuple(encode(tuple(chat)))}
    assert requested[0][1] == {
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


def test_a_session_that_fails_is_logged_and_the_others_train(sampled, capsys):
    """Its reason is in verl's log, and what verl leaves of the group is what is trained on."""
    sampled.client.failing = (2, 5)
    sampled([0, 3], step=3)
    out = capsys.readouterr().out
    assert out.count("a response failed with RuntimeError: the engine is out of memory") == 1
    batch, figures = sampled.stage.sample(step=3, groups=2)
    assert len(batch.keys) == 2 * N - 2
    assert (figures["rejuice/failed_responses"], figures["rejuice/failed_prompts"]) == (2, 0)
    assert set(sampled.stage.saved("rollouts", step=3)["response"].to_pylist()) == {"1"}


def test_each_validation_set_is_sampled_by_its_own_settings(stage, monkeypatch, tmp_path):
    """Its prompts as verl's dataset reads them from their files, and what verl's server is given."""
    greedy = {"path": str(tmp_path / "validation.jsonl"), "temperature": 0}
    often = {**greedy, "n": 3, "temperature": 0.6, "top_p": 0.9}
    here = stage(PLAIN, n=N, profile="gpu", validation_path=None, validation={"greedy": greedy, "often": often})  # fmt: skip
    client = Client(here._policy.tokenizer)
    LoopWorker(here, client, monkeypatch).validate(step=5)
    sampled = Counter(
        (each["temperature"], each["top_p"], each["max_tokens"]) for _, each in client.requested
    )
    assert sampled == {(0.0, 1.0, 16): 8, (0.6, 0.9, 16): 24}
    batch, _ = here.sample(5, 16, "val")
    assert len(batch.keys) == 8 + 24
    [(_, logged)] = here.trainer.logged
    assert logged["rejuice/validation/greedy/mean@1"] == 1.0
    assert logged["rejuice/validation/often/pass@3"] == 1.0
    sources = here.queue.kv_batch_get(batch.keys, "val", ["data_source"])["data_source"]
    assert Counter(sources) == {"greedy": 8, "often": 24}
