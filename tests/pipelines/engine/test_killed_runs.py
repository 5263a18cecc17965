"""Drivers and workers may be killed at any time: no row is lost, none is paid for twice.

`tests/bench/bench_kills.py --kills 200` does the same at length, and prints a table.
"""

import pytest
from killed_runs import KilledRuns


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "kills"),
    [([], 12), (["--np", "2"], 4), (["--engine", "ray", "--np", "2"], 2)],
    ids=["one process", "two workers", "ray"],
)
def test_the_next_run_goes_on_where_it_was(tmp_path, options, kills):
    runs = list(KilledRuns(tmp_path, *options).runs(kills, seed=1, workers=bool(options)))
    assert sum(len(run.kills) for run in runs) >= kills
    for run in runs:
        assert not run.faults, run
