"""What a run would take in another mode, beside numbers that were worked out by hand."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import runner
from fake_run import line, write_run

from rejuice.operators import DataError
from rejuice.pipelines.recipe.train import Train
from rejuice.trainer.report.simulate import (
    SimulatedMode,
    StoredStep,
    setups,
    simulate,
    stored_steps,
)


def step(longest=4.0, tokens=10.0, tools=0.0, **figures):
    """A step of 60 trained tokens: it waits 4 s, and trains for 3, of them 2 in its update."""
    return StoredStep(longest, tokens, tools, 60.0, **{"waiting": 4.0, "updating": 2.0, "seconds": 7.0} | figures)  # fmt: skip


SYNC = SimulatedMode("sync", 0)
ON_GPUS = SimulatedMode("separate_async", 1)
ON_CORES = SimulatedMode("separate_async", 1, on_cores=True)
STEPS = [step()] * 9


@pytest.mark.parametrize(
    ("mode", "seconds", "waiting", "age"),
    [
        (SYNC, 7.0, 4 / 7, 0),
        # Sampling takes longer than the rest, which waits for it.
        (ON_CORES, 4.0, 1 / 4, 1),
        # An update of 4 s, and 1 s: sampling is over before it.
        (ON_CORES._replace(max_age=2, training=0.5), 5.0, 0, 2),
        # Each takes half as long again while the other computes: 3 s of both take 4.5 s.
        (ON_CORES._replace(contention=1.5), 5.5, 1 / 5.5, 1),
    ],
)
def test_a_step_takes_what_it_takes_by_hand(mode, seconds, waiting, age):
    found = simulate(STEPS, mode)
    assert found.seconds == pytest.approx(seconds)
    assert found.tokens_per_second == pytest.approx(60 / seconds)
    assert found.waiting == pytest.approx(waiting)
    assert found.age == age


def test_tools_take_nothing_from_training():
    """4 s of sampling, of which 3 s take half as long again, and 3 s of tools."""
    steps = [step(tools=3.0, waiting=7.0, seconds=10.0)] * 9
    assert simulate(steps, SYNC).seconds == pytest.approx(10.0)
    assert simulate(steps, ON_CORES._replace(contention=1.5)).seconds == pytest.approx(8.5)


@pytest.mark.parametrize(
    ("mode", "seconds"),
    [
        # 3 s of training; half of the 3 s of a longest response, and the 2 s of all rows.
        (SimulatedMode("colocate_async", 1), 6.5),
        # Two steps are sampled and trained on in 3 s and what sampling takes.
        (ON_GPUS, 4.0),
        (ON_GPUS._replace(max_age=9), 3.0),
        # Rows take four times as long: 8, 8, 4 and 12 s, then longer than all else in three steps.
        (ON_GPUS._replace(sampling=0.25), (8 + 8 + (3 + 4 + 3) / 2 + 12) / 4),
    ],
)
def test_servers_sample_the_requests_of_several_steps_together(mode, seconds):
    """A second for a token of the longest response, half of one for any: both are found again."""
    tokens = [(2.0, 4.0), (4.0, 4.0), (3.0, 2.0), (3.0, 6.0)]
    steps = [step(x, n, waiting=x + n / 2, seconds=x + n / 2 + 3) for x, n in tokens]
    assert simulate(steps, mode).seconds == pytest.approx(seconds)


def test_the_age_of_responses():
    ages = [simulate(STEPS, SimulatedMode("colocate_async", k)).age for k in (1, 3)]
    assert (ages, simulate(STEPS, ON_GPUS._replace(max_age=3)).age) == ([1, 2], 3)


@pytest.fixture
def run(tmp_path):
    more = {"timing_s/gen": 0.5, "timing_s/update_actor": 1.0, "rejuice/rows_trained": 2.0}
    folder = write_run(tmp_path / "run", [])
    lines = [line(n, accuracy=0.5).replace('"rejuice/rows_trained": 90.0', ", ".join(f'"{k}": {v}' for k, v in more.items())) for n in range(1, 8)]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(lines))
    rows = {"prompt_id": ["a", "a", "b", "b"], "response_token_ids": [[1], [1, 2], [1, 2, 3], [1] * 4]}  # fmt: skip
    for number in range(1, 8):
        (folder / "steps" / f"{number:06d}").mkdir(parents=True)
        pq.write_table(pa.table(rows), folder / "steps" / f"{number:06d}" / "rollouts.parquet")
    return folder


def test_steps_are_read_from_the_folder_of_a_run(run):
    with (run / "metrics.jsonl").open("a") as figures:
        figures.write(line(8, accuracy=0.5))  # It had nothing to train on: verl times no update.
    shutil.copytree(run / "steps" / "000007", run / "steps" / "000008")
    by_hand = StoredStep(4.0, 10.0, 0.0, 5.0, waiting=0.5, updating=1.0, seconds=2.0)
    assert str(stored_steps(run, Train())) == str([by_hand] * 5)


def test_trajectories_have_tools(run):
    for file in run.glob("steps/*/rollouts.parquet"):
        seconds = pa.array([1.0, None, 3.0, 2.0])  # Of one that a killed process has sampled.
        if "000003" in str(file):  # Of all of them it is not known.
            seconds = pa.nulls(4, pa.float64())
        pq.write_table(pq.read_table(file).append_column("tool_seconds", seconds), file)
    assert [each.tools for each in stored_steps(run, Train())] == [3.0] * 4


@pytest.mark.parametrize(
    ("train", "what"),
    [({"mode": "colocate_async"}, "samples ahead"), ({"replay": "x.parquet"}, "replays")],
)
def test_a_run_that_waits_for_other_things_is_refused(run, train, what):
    with pytest.raises(DataError, match=f"{what}; give a run of mode sync"):
        stored_steps(run, Train(**train))


def test_the_command_prints_a_line_for_each_mode(run, monkeypatch, capsys, tmp_path):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    with (run / "recipe.yaml").open("a") as recipe:
        recipe.write("custom_operator_paths: [gone.py]\n")  # Nothing of it is needed.
    code, out, _ = rejuice("simulate", "run", "--max-age", "2")
    assert code == 0
    first, second = out.splitlines()[1:]
    assert first.split()[0] == "sync"
    assert second.split()[:2] == ["separate_async", "2"]
    for number in (6, 7):
        shutil.rmtree(run / "steps" / f"{number:06d}")
    code, _, err = rejuice("simulate", "run")
    assert (code, err) == (2, "rejuice: 3 steps have rollouts and figures, besides the first 2; give a run of at least 6 steps\n")  # fmt: skip


def test_modes_are_those_of_the_profile():
    found = setups(Train(), [1, 2], STEPS, cores=4)
    names = [(each.mode, each.max_age, each.on_cores) for each in found]
    assert names == [("sync", 0, False), ("separate_async", 1, True), ("separate_async", 2, True)]
    gpu = Train(profile="gpu", gpu={"gpus": 8})
    found = setups(gpu, [2], STEPS, cores=4, gpus=6, rollout_gpus=2)
    assert [each.mode for each in found] == ["sync", "colocate_async", "separate_async"]
    assert (found[2].sampling, found[2].training) == (0.25, 0.75)


@pytest.mark.parametrize(
    ("used", "cores", "slower"),
    [([3.0, 2.0, np.nan], 4, 4.5 / 4), ([1.0], 4, 1.0), ([np.nan], 4, 1.5), ([20.0], 4, 1.5), ([1.0], 1, 2.0)],
)  # fmt: skip
def test_sampling_and_training_take_cores_that_the_other_used(used, cores, slower):
    steps = [STEPS[0]._replace(update_cores=each) for each in used]
    _, ahead = setups(Train(), [1], steps, cores=cores)
    assert (ahead.contention, ahead.sampling) == (slower, 1.0 if cores == 1 else 0.75)
