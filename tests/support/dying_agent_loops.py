"""A program: agent loop workers of which two die, one with its process and one with its node.

Its last line is JSON of what became of their prompts.
"""

import json
import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import ray
from fake_queue import FakeQueue
from ray.cluster_utils import Cluster
from verl.utils import tensordict_utils as tu

from rejuice.operators.errors import EngineError
from rejuice.trainer.verl import watched_manager

LONGEST_S = 120
WORKERS = ("lives", "process", "node")


@ray.remote(num_cpus=0)
class Worker:
    """Takes prompts, as verl's workers do, and keeps their ids."""

    def __init__(self):
        self.uids = []

    async def generate_sequences(self, batch):
        self.uids = list(batch["uid"])

    async def given(self):
        return self.uids

    async def pid(self):
        return os.getpid()


def prompts(step, count):
    def column(values):
        made = np.empty(len(values), object)
        made[:] = values
        return made

    batch = tu.get_tensordict(
        {
            "uid": column([f"{step}-{k}" for k in range(count)]),
            "raw_prompt": column([[{"role": "user", "content": "?"}]] * count),
            "extra_info": column([{"index": k, "prompt_id": f"id{k}"} for k in range(count)]),
        }
    )
    tu.assign_non_tensor_data(batch, "global_steps", step)
    return batch


def submit(manager, queue, step, count):
    """As verl's trainer does: prompts are there before their responses are asked for."""
    batch = prompts(step, count)
    uids = list(batch["uid"])
    tags = [{"is_prompt": True, "status": "pending"} for _ in uids]
    queue.kv_batch_put(keys=uids, partition_id="train", tags=tags)
    manager.generate_sequences(batch)
    return uids


def until(holds, what):
    end = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def main():
    queue = FakeQueue()
    queue.install(pytest.MonkeyPatch())
    watched_manager._INTERVAL_S = 0.1
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "resources": {"first": 2},
            "_system_config": {"health_check_period_ms": 500, "health_check_initial_delay_ms": 0},
        },
    )
    second = cluster.add_node(num_cpus=1, resources={"second": 1})
    ray.init(address=cluster.address, log_to_driver=False)
    workers = {name: Worker.options(resources={"first": 1}).remote() for name in WORKERS[:2]}
    workers["node"] = Worker.options(resources={"second": 1}).remote()
    settings = SimpleNamespace(rollout=None, model=None)
    config = SimpleNamespace(actor_rollout_ref=settings)
    manager = watched_manager.WatchedManager(config, llm_client=None)
    manager.agent_loop_workers = list(workers.values())

    def states(uids):
        tags = queue.kv_list("train")["train"]
        return [tags[uid]["status"] for uid in uids]

    def given(name):
        return ray.get(workers[name].given.remote())

    def kill(name):
        os.kill(ray.get(workers[name].pid.remote()), signal.SIGKILL)

    submit(manager, queue, 1, 9)
    until(lambda: all(len(given(name)) == 3 for name in WORKERS), "prompts have no worker")
    of = {name: given(name) for name in WORKERS}
    for finished, running, _ in of.values():
        queue.kv_put(finished, "train", tag={"status": "finished"})
        queue.kv_put(running, "train", tag={"status": "running"})
    kill("process")
    cluster.remove_node(second, allow_graceful=False)
    ended = ["failure", "failure"]
    for name in WORKERS[1:]:
        until(lambda name=name: states(of[name])[1:] == ended, f"prompts of {name} wait")
    first = {name: states(uids) for name, uids in of.items()}

    uids = submit(manager, queue, 2, 3)
    until(lambda: given("lives") == uids, "the one that lives was not given all prompts")
    queue.kv_clear(keys=uids, partition_id="train")  # The step is over.
    kill("lives")
    until(lambda: len(manager._dead) == 3, "its death was not seen")
    until(lambda: not any("_submit" in each.name for each in threading.enumerate()), "it waits")
    later = [uid for uid in uids if uid in queue.kv_list("train")["train"]]
    try:
        none = str(manager.generate_sequences(prompts(3, 1)))
    except EngineError as error:
        none = str(error)
    found = {"first": first, "later": later, "none": none}
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
