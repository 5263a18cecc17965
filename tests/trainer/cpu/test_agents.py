"""Agents beside the embedded sampler: without Ray, on a TransferQueue in memory."""

from itertools import chain
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from rounding import LOG_PROBS
from training_stage import PLAIN, Stage

from rejuice.operators.sampling.protocol import Failure, Group, Sample
from rejuice.trainer.run import RUN_VARIABLE

pytestmark = pytest.mark.slow  # Imports verl.

TOOLS = '''
"""Tools of tests: what the policy asks for decides how they fail."""

import asyncio

from rejuice.operators.agents import Observation, Tool, ToolError


class Fickle(Tool):
    """Answer with a column of the task, or fail."""

    async def call(self, text: str, *, task) -> str:
        if text == "down":
            raise ToolError("the server is down")
        if text == "hang":
            await asyncio.Event().wait()
        if text == "wrong":
            raise ValueError("nobody knows that")
        return task["fact"]

    def reads(self):
        return ("fact",)
'''
FLOW = {"react": {"format": "lines", "max_turns": 3, "seconds": 0.3}}


class Engine:
    """A policy that answers its first prompt by the question's first word, then says what it saw."""

    def __init__(self, build, workers, threads, launcher):
        self.loaded = []

    def sample(self, prompts, settings):
        assert settings.n == 1
        for index, prompt in enumerate(prompts):
            lines = prompt.messages[-1][1].splitlines()
            word = lines[0].split()[-1]
            if word == "refused":
                yield index, Failure("prompt_too_long", "too long")
                continue
            text = f"answer: {lines[-1][3:]}" if len(lines) > 1 else f"fickle: {word}"
            sample = Sample(text, (*range(4, 6 + len(lines)), 1), None, "stop")
            sample = sample._replace(logprobs=(-0.5,) * len(sample.token_ids))
            yield index, Group("p", 4, prompt.seed, prompt.token_ids, (sample,))

    def load_weights(self, path, version):
        self.loaded.append(version)


class InProcess:
    """The embedded engine, in this process."""

    def __new__(cls, build, workers, threads, launcher):
        return build()


class Remote:
    """A Ray actor in this process."""

    def __init__(self, actor):
        self._actor = actor

    def __getattr__(self, name):
        method = getattr(self._actor, name)
        return SimpleNamespace(remote=lambda *given, **more: lambda: method(*given, **more))


@pytest.fixture
def manager(queue, monkeypatch, tmp_path):
    """A factory of managers of a run, whose calls are over when they return."""
    from verl_configs import config_of

    from rejuice.trainer.cpu import rollout

    def make(run, engine=Engine):
        monkeypatch.setenv(RUN_VARIABLE, str(run.folder))
        monkeypatch.setattr(rollout, "EngineProcesses", engine)
        monkeypatch.setattr(rollout.tq, "init", lambda: None)
        config = config_of(run)
        path, kind = config.actor_rollout_ref.rollout.agent.agent_loop_manager_class.rsplit(".", 1)
        assert path == rollout.__name__
        sampler = rollout.Sampler(config.actor_rollout_ref.model.path, 1, 1, {})
        monkeypatch.setattr(rollout.ray, "get_actor", lambda name: Remote(sampler))
        monkeypatch.setattr(rollout.ray, "get", lambda work: work())

        def now(target, args, daemon):
            return SimpleNamespace(start=lambda: target(*args))

        monkeypatch.setattr(rollout, "Thread", now)
        return getattr(rollout, kind).create(config)

    return make


@pytest.fixture
def agents(queue, tmp_path):
    """A factory of runs of agents about these questions, each with a fact in a column."""

    def make(questions, after=PLAIN, rollout=None, **train):
        (tmp_path / "tools.py").write_text(TOOLS)
        fickle = {"n": 2, "max_tokens": 16, "flow": FLOW, "tools": ["fickle"]}
        return Stage(
            tmp_path / "run", queue, after, rollout=rollout or {"agent_rollout_mapper": fickle},
            head={"custom_operator_paths": [str(tmp_path / name) for name in ("scripted.py", "tools.py")]},
            rows=[{"question": q, "answer": "1", "fact": fact} for q, fact in questions], **train,
        )  # fmt: skip

    return make


def submit(stage, indices, step=1):
    """Prompts as verl hands them to its agent loops."""
    from verl.utils import tensordict_utils as tu

    rows = stage.run.prompts("train").to_pylist()
    slots = stage.ask(indices, step=step)
    batch = tu.get_tensordict(
        {
            "uid": [slot.uid for slot in slots],
            "raw_prompt": [rows[k]["prompt"] for k in indices],
            "extra_info": [slot.fields["extra_info"] for slot in slots],
        }
    )
    tu.assign_non_tensor_data(batch, "global_steps", step)
    return batch


def test_a_tool_reads_the_columns_of_the_prompts_of_the_run(agents, manager):
    stage = agents([("please one", "1"), ("please two", "0")])
    manager(stage.run).generate_sequences(submit(stage, [0, 1]))
    batch, figures = stage.sample(1, 2)
    assert stage.rewards(batch) == [1, 1, 1, 1, 0, 0, 0, 0], "both turns of both trajectories"
    table = stage.saved("rollouts")
    assert table["response"].to_pylist() == ["1", "1", "0", "0"]
    assert table["policy_version"].to_pylist() == [4] * 4
    assert [turn["observation"] for turn in table["turns"][0].as_py()] == [None, "1", None]
    assert figures["rejuice/agent/tool_calls"] == 1


def test_what_a_tool_does_to_a_step(agents, manager):
    """A failure is missing with a reason, the policy's mistake is its own, and the step goes on."""
    questions = [
        ("please one", "1"), ("it is down", "1"), ("it will hang", "1"), ("it is wrong", "1"),
        ("it is refused", "1"),
    ]  # fmt: skip
    after = [
        {"scripted_mapper": None},
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
    ]
    stage = agents(questions, after)
    manager(stage.run).generate_sequences(submit(stage, range(5)))
    batch, figures = stage.sample(1, 5)
    rollouts = stage.saved("rollouts")
    ends = {row["prompt_id"]: row["finish_reason"] for row in rollouts.to_pylist()}
    names = stage.run.prompts("train")["prompt_id"].to_pylist()
    assert [ends.get(name) for name in names] == [
        "stop", "tool_failed", "time_limit", "stop", None,
    ]  # fmt: skip
    trained = stage.saved("curated")
    assert trained["prompt_id"].unique().to_pylist() == [names[0]]
    assert stage.rewards(batch) == [1] * 4
    dropped = stage.saved("decisions").to_pylist()
    assert {row["reason"] for row in dropped} == {"missing_component"}
    assert figures["rejuice/failed_prompts"] == 1
    assert figures["rejuice/agent/failed/tool_failed"] == 2
    assert figures["rejuice/agent/failed/time_limit"] == 2
    assert figures["rejuice/agent/tool_errors"] == pytest.approx(1 / 2)
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


def test_a_flow_with_a_bug_fails_its_trajectories_and_says_so(agents, manager, caplog, tmp_path):
    stage = agents([("please one", "1"), ("please two", "1")])
    tools = tmp_path / "tools.py"
    tools.write_text(
        TOOLS
        + '''
from rejuice.operators.agents import Flow


class Broken(Flow):
    """A flow with a bug."""

    async def run(self, task, play):
        raise KeyError("question")
'''
    )
    fields = {"n": 2, "max_tokens": 16, "flow": "broken"}
    stage = Stage(
        tmp_path / "broken" , stage.queue, PLAIN, rollout={"agent_rollout_mapper": fields},
        head={"custom_operator_paths": [str(tmp_path / "scripted.py"), str(tools)]},
    )  # fmt: skip
    manager(stage.run).generate_sequences(submit(stage, [0, 1]))
    line = "a trajectory failed with flow_failed: broken: KeyError: 'question' (tools.py, line"
    assert line in caplog.text


def test_trajectories_of_a_step_are_those_of_a_run_with_its_seed(agents, manager):
    """Token by token: the policy that comes with rejuice, which calls a tool now and then."""
    from rejuice.operators.mapper.agent_rollout_mapper import AgentRolloutMapper
    from rejuice.operators.sampling.protocol import _STEP_STRIDE
    from rejuice.pipelines.engine.steps import run_in_memory

    flow = {"react": {"format": "lines", "max_turns": 3}}
    fields = {"n": 3, "max_tokens": 12, "flow": flow, "tools": ["calculator"]}
    questions = [
        (f"Ivy has {k} eggs. Leo has 4 more. How many has Leo?", str(k + 4)) for k in range(4)
    ]
    stage = agents(questions, rollout={"agent_rollout_mapper": fields}, seed=5)
    manager(stage.run, InProcess).generate_sequences(submit(stage, [2, 0, 3], step=2))
    stage.sample(2, 3)
    found = stage.saved("rollouts", 2)

    prompts = stage.run.prompts("train")
    mapper = AgentRolloutMapper(**fields, seed=(5 + 2 * _STEP_STRIDE) % 2**64)
    offline = run_in_memory([mapper], prompts.take(pa.array([0, 2, 3])))
    # That of a clock is in training alone.
    assert [n for n in found.column_names if n != "tool_seconds"] == offline.column_names
    assert set(found["turn_count"].to_pylist()) >= {3}
    exact = [n for n in offline.column_names if n not in ("turns", "response_logprobs")]
    assert found.select(exact).to_pylist() == offline.select(exact).to_pylist()
    ours, theirs = (list(chain(*table["turns"].to_pylist())) for table in (found, offline))
    logprobs = [[turn.pop("logprobs") or [] for turn in turns] for turns in (ours, theirs)]
    np.testing.assert_allclose(*(list(chain(*each)) for each in logprobs), rtol=0, atol=LOG_PROBS)
    assert ours == theirs
