"""Prompts of an agent loop worker that dies, with its process or its node, on a real Ray."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.slow  # Imports verl.
SUPPORT = Path(__file__).parents[2] / "support"


def test_prompts_fail_with_their_worker_and_the_others_carry_on(verl):
    done = subprocess.run(
        [sys.executable, SUPPORT / "dying_agent_loops.py"],  # With the variables of `verl`.
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    # Of each worker: one prompt that had ended, one that was running, and one that was not begun.
    assert found["first"] == {
        "lives": ["finished", "running", "pending"],
        "process": ["finished", "failure", "failure"],
        "node": ["finished", "failure", "failure"],
    }
    assert found["none"] == "all agent loop workers of verl have died; verl's log says why"
    assert found["later"] == []  # What is over does not come back.
    begins = "rejuice: the sampler failed: an agent loop worker failed: its "
    reported = [line for line in done.stdout.splitlines() if line.startswith(begins)]
    # The process on the node may be seen to be gone before the node is.
    reasons = {"node has died", "process was killed; the machine is probably out of memory"}
    assert len(reported) == 3
    assert {line.removeprefix(begins) for line in reported} <= reasons


@pytest.mark.parametrize(
    ("error", "given", "dead"),
    [
        ("OutOfMemoryError", ("",), True),
        ("ActorDiedError", (), True),
        ("ActorUnavailableError", ("", b"0" * 16), False),
        ("RayTaskError", ("f", "Traceback", ValueError("bad prompt")), False),
    ],
)
def test_only_a_worker_that_died_gets_no_more_prompts(queue, monkeypatch, error, given, dead):
    import ray

    from rejuice.trainer.verl import watched_manager
    from rejuice.trainer.verl.trajectories import Slot

    class Worker:
        generate_sequences = SimpleNamespace(remote=lambda chunk: chunk)

    def fails(work):
        raise getattr(ray.exceptions, error)(*given)

    monkeypatch.setattr(ray, "get", fails)
    config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=None, model=None))
    manager, worker = watched_manager.WatchedManager(config, llm_client=None), Worker()
    queue.kv_put("a", "train", tag={"status": "pending", "is_prompt": True})
    manager._submit(worker, None, [Slot("a", {})], "train")
    assert (worker in manager._dead) == dead
    assert queue.kv_list("train")["train"]["a"]["status"] == "failure"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("OutOfMemoryError", "its process was killed; the machine is out of memory"),
        ("RayActorError", "its process was killed; the machine is probably out of memory"),
    ],
)
def test_an_actor_that_was_killed_is_one_line(verl, error, reason):
    import ray

    from rejuice.trainer.verl.trajectories import reason_of

    assert reason_of(getattr(ray.exceptions, error)("many\nlines")) == reason


def test_verl_divides_prompts_among_its_workers(verl):
    from verl.trainer.ppo.v1 import agent_loop_tq

    source = inspect.getsource(agent_loop_tq.AgentLoopManagerTQ.generate_sequences)
    assert "prompts.chunk(len(self.agent_loop_workers))" in source
    assert "worker.generate_sequences.remote(chunk)" in source
    worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    assert 'tag={"status": "running"}' in inspect.getsource(worker._run_prompt)
