"""A training run on file without training: steps kept by `StepFiles`, on TINY's rows as sampled."""

from __future__ import annotations

import numpy as np
from fake_run import line, write_run
from tiny_run import AFTER, run_tiny

from rejuice.pipelines.analysis.stored import open_stored
from rejuice.trainer.run import TrainingRun
from rejuice.trainer.verl.curation import at_progress, curate, drop_rows, values_table
from rejuice.trainer.verl.figures import StepFiles

SCHEDULED = {"accuracy": 1.0, "format": {"from": 1.0, "to": 0.0}}
PROCESS = [
    {"prompt_template_mapper": {}},
    {"policy_rollout_mapper": {"n": 4, "max_tokens": 16}},
    *AFTER[:4],
    {"reward_sum_mapper": {"weights": SCHEDULED}},
    {"grpo_advantage_mapper": {}},
]


def tiny_rollouts(folder):
    """TINY's rows as sampled."""
    run_tiny(folder, chunk_rows=None)
    (one,) = open_stored(folder / "curated.parquet").sets
    return one.base(0).table()


def write_trained(folder, rollouts, numbers, *, process=PROCESS, drop=True):
    """The folder of a run that kept these steps; in each, training itself drops the first row."""
    run_folder = write_run(folder, [line(step, accuracy=0.5) for step in numbers], process=process)
    run = TrainingRun.open(run_folder)
    files = StepFiles(run)
    for number in numbers:
        keep(run, files, number, rollouts, drop)
    files.wait()
    return run_folder


def keep(run, files, number, rollouts, drop):
    steps = at_progress(run.split.after, run.progress(number))
    curated = curate(steps, rollouts)
    tables = {"values": values_table(rollouts, steps, curated.written)}
    if drop:
        drop_N = np.arange(curated.table.num_rows) == 0
        curated = drop_rows(curated, drop_N, "surplus_group")
    tables |= {"rollouts": rollouts, "curated": curated.table, "decisions": curated.decisions}
    files.keep(number, "", tables, run.step_recipe(number, steps))
