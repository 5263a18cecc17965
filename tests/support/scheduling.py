"""Which tests share a worker of pytest-xdist, because they share something that is slow to start."""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "tests/pipelines/demo/test_quickstart.py": "a run of the quickstart",
    "tests/pipelines/data_juicer/test_with_ray.py": "Ray Data",
    "tests/pipelines/dj_process/": "dj-process, imported",
    "tests/pipelines/engine/workers/test_on_ray.py": "a Ray cluster",
    "tests/pipelines/engine/workers/test_shared_folder.py": "another Ray cluster",
    "tests/trainer/main_ppo/test_agents.py": "a training of agents",
    "tests/trainer/main_ppo/": "a training",
    "tests/trainer/test_faults.py": "faults",
    "tests/trainer/cpu/test_engine.py": "verl, imported",
    "tests/trainer/cpu/test_lora.py": "verl, imported",
    "tests/trainer/cpu/test_rollout.py": "verl, imported",
    "tests/trainer/cpu/test_seams.py": "verl, imported",
    "tests/trainer/launch/test_dry_run.py": "verl, imported",
    "tests/trainer/verl/": "verl, imported",
    "tests/test_slots.py": "imports of all files",
}
FIRST = ("faults", "a training", "a training of agents", "dj-process, imported")
"""What takes longest begins first."""


class Together(LoadScopeScheduling):
    """Sends tests one by one to whichever worker is free, but those of `TOGETHER` to the same one.

    `--dist loadgroup` would read it from marks; xdist 3.8 loses them under pytest 9.2.
    """

    def _assign_work_unit(self, node) -> None:
        for scope in reversed(FIRST):
            if scope in self.workqueue:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        for start, scope in TOGETHER.items():
            if nodeid.startswith(start):
                return scope
        return nodeid
