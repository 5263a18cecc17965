"""Drivers and workers may be killed at any time: no row is lost, none is paid for twice.

`benchmarks/bench_kills.py --kills 200` does the same at length, and prints a table.
"""

import pytest
from killed_runs import KilledRuns
from ray_head import ray_head

pytestmark = pytest.mark.slow

SEED = 17  # One of those whose first three victims are drivers and workers.


@pytest.mark.parametrize(
    ("options", "kills"),
    [
        pytest.param([], 1, marks=pytest.mark.smoke, id="one kill"),
        pytest.param([], 6, id="one process"),
        pytest.param(["--np", "2"], 3, id="two workers"),
    ],
)
def test_the_next_run_goes_on_where_it_was(folder_in_memory, options, kills):
    runs = list(
        KilledRuns(folder_in_memory, *options).runs(kills, seed=SEED, workers=bool(options))
    )
    check(runs, kills, victims={"driver", "worker"} if options else {"driver"})


def test_on_a_shared_folder_nothing_is_lost_but_what_the_last_second_brought(folder_in_memory):
    killed = KilledRuns(folder_in_memory, pause=0.02, prompts=96, shared=True)
    check(list(killed.runs(3, seed=SEED)), 3, victims={"driver"})


def test_on_ray_the_next_run_goes_on_where_it_was(folder_in_memory):
    pytest.importorskip("ray")
    with ray_head() as cluster:
        options = ["--ray", cluster.address, "--np", "2"]
        killed = KilledRuns(folder_in_memory, *options, head=cluster.process, pause=0.02)
        check(list(killed.runs(3, seed=SEED, workers=True)), 3, victims={"driver", "worker"})


def check(runs, kills, victims):
    killed = [kill.victim for run in runs for kill in run.kills]
    assert len(killed) >= kills
    assert set(killed) == victims
    for run in runs:
        assert not run.faults, run
