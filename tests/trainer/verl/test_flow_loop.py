"""Trajectories of agents from verl's own agent loop worker, with a server that is made up."""

import math
from collections import defaultdict

import pytest
from loop_worker import LoopWorker
from training_stage import PLAIN, summed

from rejuice.operators.agents.trajectory import Trajectory
from rejuice.operators.sampling.protocol import prompt_seed, turn_seed
from rejuice.trainer.verl.advantage import TrajectoryKey

pytestmark = pytest.mark.slow  # Imports verl.

N = 3
AGENTS = {
    "agent_rollout_mapper": {
        "n": N,
        "max_tokens": 24,
        "flow": {"react": {"format": "lines", "max_turns": 3, "trajectory_tokens": 40}},
        "tools": ["calculator"],
    }
}
AFTER = [PLAIN[0], summed("drop_row"), PLAIN[2]]
USUAL = ["calculate: 2 + 3", "answer: 1"]


class Client:
    """What a worker asks for turns; the policy that samples is at version 2.

    Attributes:
        script: what each trajectory says, by its session; an exception is raised.
        requested: what was asked for, by session, turn by turn.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self.script = defaultdict(lambda: USUAL)
        self.requested = defaultdict(list)

    async def generate(self, request_id, *, prompt_ids, sampling_params, **more):
        from verl.workers.rollout.replica import TokenOutput

        session = int(request_id.rsplit("_", 1)[1])
        turns = self.requested[request_id]
        text = self.script[session][len(turns)]
        turns.append((list(prompt_ids), dict(sampling_params)))
        if isinstance(text, Exception):
            raise text
        ids = [*self._tokenizer.encode(text), self._tokenizer.eos_token_id] if text else []
        ids = ids[: sampling_params["max_tokens"]]
        return TokenOutput(
            token_ids=ids,
            log_probs=[-0.5] * len(ids),
            extra_fields={"global_steps": 2, "min_global_steps": 2, "max_global_steps": 2},
        )


@pytest.fixture
def made(stage, monkeypatch):
    """A factory of runs of agents on GPUs, with `client` and `worker`."""

    def make(**train):
        here = stage(AFTER, rollout=AGENTS, profile="gpu", **train)
        here.client = Client(here._policy.tokenizer)
        here.worker = LoopWorker(here, here.client, monkeypatch)
        return here

    return make


@pytest.fixture
def here(made):
    return made()


def rows_of(here):
    """Fields of the rows in TransferQueue, by key."""
    entries = here.queue.partitions["train"].items()
    parsed = TrajectoryKey.of_trajectories(dict(entries))
    return {key: entry.fields for key, entry in sorted(parsed.items())}


def trajectories_of(here):
    """The trajectories in the first rows, by session."""
    return {
        key.session: Trajectory.from_json(fields["extra_fields"]["trajectory"])
        for key, fields in rows_of(here).items()
        if key == key.first
    }


def test_a_row_for_each_turn_of_the_policy(here):
    here.worker.sample([0], step=3)
    rows = rows_of(here)
    assert [(key.session, key.output) for key in rows] == [(k, t) for k in range(N) for t in (0, 1)]
    tokenizer = here._policy.tokenizer
    for key, fields in rows.items():
        text = tokenizer.decode(fields["responses"][:-1])
        assert text == USUAL[key.output]
        assert fields["response_mask"].all()
        assert fields["rollout_log_probs"].tolist() == [-0.5] * len(fields["responses"])
        # No reward is made up; the recipe gives its own.
        assert math.isnan(fields["rm_scores"][-1])
        assert fields["extra_fields"]["reward_extra_info"] == {}
    first, second = (tokenizer.decode(rows[key]["prompts"]) for key in list(rows)[:2])
    assert "5" not in first
    assert "calculate: 2 + 3\n-> 5" in second  # The prompt is built anew, with the observation.


def test_each_turn_is_sampled_as_offline(made):
    """Seeds by prompt, step, trajectory and turn; one server for a trajectory; never more tokens."""
    here = made(gpu={"reproducible": True})
    here.worker.sample([1], step=3)
    seed = prompt_seed(here.prompts[1]["prompt_id"], here.run.config.seed, 3)
    assert len(here.client.requested) == N
    for name, turns in here.client.requested.items():
        session = int(name.rsplit("_", 1)[1])
        used = 0
        for at, (prompt, sampling) in enumerate(turns):
            assert len(prompt) <= here.run.config.max_prompt_tokens
            assert sampling.pop("seed") == turn_seed(seed, session, at)
            assert sampling.pop("max_tokens") == min(24, 40 - used)
            assert sampling == {
                "temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0,
                "logprobs": True,
            }  # fmt: skip
            used += len(here._policy.tokenizer.encode(USUAL[at])) + 1


@pytest.mark.parametrize("reproducible", [True, False])
def test_a_turn_is_stored_with_the_seed_that_was_sent(made, reproducible):
    here = made(gpu={"reproducible": reproducible})
    here.worker.sample([1], step=3)
    sent = [sampling.get("seed") for _, sampling in here.client.requested.popitem()[1]]
    assert (sent == [None, None]) is not reproducible
    stored = [[turn.seed for turn in each.actions] for each in trajectories_of(here).values()]
    assert sent in stored
    here.sample(step=3, groups=1)
    seed = prompt_seed(here.prompts[1]["prompt_id"], here.run.config.seed, 3)
    rows = here.saved("rollouts", step=3)["sampling"].to_pylist()
    assert {row["seed"] for row in rows} == {seed if reproducible else None}


@pytest.mark.parametrize("reason", ["aborted", "abort"])
def test_an_action_that_a_server_broke_off_is_none(here, monkeypatch, reason):
    """As vLLM's server in verl says it, and as SGLang's does."""
    generate = here.client.generate

    async def broken_off(*args, **more):
        return (await generate(*args, **more)).model_copy(update={"stop_reason": reason})

    monkeypatch.setattr(here.client, "generate", broken_off)
    here.worker.sample([0], step=3)
    found = trajectories_of(here)
    assert [each.finish_reason for each in found.values()] == ["sampling_failed"] * N


def test_the_buffer_makes_the_trajectories_of_it_that_the_sampler_would(here):
    here.client.script.update({0: ["answer: 1"], 2: ["?", "calculate: 1 / 0", "answer: 0"]})
    here.worker.sample([0, 3], step=3)
    batch, _ = here.sample(step=3, groups=2)
    rewards = here.rewards(batch)
    assert rewards == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0] * 2
    assert {tag["min_global_steps"] for tag in batch.tags} == {2}
    table = here.saved("rollouts", step=3)
    assert table["response"].to_pylist() == ["1", "1", "0"] * 2
    assert table["turn_count"].to_pylist() == [1, 2, 3] * 2
    assert set(table["policy_version"].to_pylist()) == {2}
    turns = table["turns"].to_pylist()[2]
    assert [turn["status"] for turn in turns if turn["role"] == "tool"] != ["ok", "ok"]
    weights = here.queue.kv_batch_get(batch.keys, "train", ["turn_weight"])["turn_weight"]
    assert [float(row.sum()) for row in weights.unbind()] == pytest.approx(
        [1 / (2 * N * turns) for turns in (1, 2, 2, 3, 3, 3)] * 2
    )


@pytest.mark.parametrize(
    ("texts", "turns"),
    [
        ([RuntimeError("the server is gone")], 0),
        ([USUAL[0], RuntimeError("the server is gone")], 1),
        ([""], 0),
        ([USUAL[0], ""], 1),
    ],
    ids=["gone at once", "gone later", "nothing at once", "nothing later"],
)
def test_what_fails_is_one_trajectory_and_is_counted(here, texts, turns):
    here.client.script[1] = texts
    here.client.script[2] = ["answer: 0"]
    here.worker.sample([0, 3], step=3)
    found = trajectories_of(here)
    assert [len(found[k].actions) for k in range(N)] == [2, turns, 1]
    assert (found[1].response, found[1].finish_reason) == (None, "sampling_failed")
    assert all("responses" in fields for fields in rows_of(here).values())
    batch, _ = here.sample(step=3, groups=2)
    assert {TrajectoryKey.parse(key).session for key in batch.keys} == {0, 2}
    assert here.rewards(batch) == [1.0, 1.0, 0.0] * 2
    table = here.saved("rollouts", step=3)
    assert table["finish_reason"].to_pylist() == ["stop", "sampling_failed", "stop"] * 2


def test_a_bug_in_a_flow_fails_its_trajectory_and_is_in_verls_log(here, monkeypatch, capsys):
    from rejuice.operators.agents.flows.react import React
    from rejuice.trainer.verl import agent_loop

    async def run(self, task, play):
        await play.act(task.messages)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(React, "run", run)
    agent_loop._first_failures.clear()
    here.worker.sample([0], step=3)
    found = trajectories_of(here)
    assert [each.finish_reason for each in found.values()] == ["flow_failed"] * N
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "a bug" in line]
    assert line.startswith("a trajectory failed with flow_failed: react: ZeroDivisionError: a bug")


def test_a_prompt_that_grows_too_long_ends_the_trajectory(made):
    """Nothing is cut off; and vLLM, which would raise without room for an action, is not asked."""
    here = made(max_prompt_tokens=20)
    here.client.script.update({k: ["calculate: 1 + 1 + 1 + 1"] * 3 for k in range(N)})
    here.worker.sample([0], step=3)
    assert [len(turns) for turns in here.client.requested.values()] == [1] * N
    found = trajectories_of(here)
    assert [(each.finish_reason, each.response) for each in found.values()] == [
        ("context_full", "")
    ] * N


def test_a_first_prompt_that_is_too_long_is_no_answer_of_the_policy(stage, monkeypatch):
    """As on a CPU, where such a prompt fails: the policy was never asked."""
    fields = AGENTS["agent_rollout_mapper"]
    flow = {"react": {"format": "lines", "max_prompt_tokens": 2}}
    rollout = {"agent_rollout_mapper": {**fields, "flow": flow}}
    here = stage(AFTER, rollout=rollout, profile="gpu")
    here.client = Client(here._policy.tokenizer)
    LoopWorker(here, here.client, monkeypatch).sample([0], step=3)
    assert not here.client.requested
    found = trajectories_of(here)
    assert [(each.finish_reason, each.response) for each in found.values()] == [
        ("sampling_failed", None)
    ] * N


def test_the_configuration_leaves_room_for_a_turn(stage):
    from rejuice.trainer.launch.verl_config import overrides

    made = stage(PLAIN, rollout=AGENTS, profile="gpu", max_prompt_tokens=100)
    found = overrides(made.run, resume=False)
    rollout = "actor_rollout_ref.rollout"
    assert found[f"{rollout}.agent.default_agent_loop"] == "rejuice_agent"
    assert found[f"{rollout}.prompt_length"] == 100
    assert found[f"{rollout}.response_length"] == 24
    assert found[f"{rollout}.max_model_len"] == 124
    assert found["actor_rollout_ref.actor.loss_agg_mode"] == "token-mean"
