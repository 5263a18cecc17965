"""What a run would take in another mode, beside numbers that were worked out by hand."""

import itertools
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
    Costs,
    Hardware,
    SimulatedMode,
    StoredStep,
    setups,
    simulate,
    step_rows,
    stored_steps,
)


def step(*lengths, sources=None, turns=None, tools=None, trained=0.0, waiting=0.0, updating=0.0, seconds=0.0):  # fmt: skip
    """A step with responses of so many tokens, group by group."""
    sizes = np.array([len(group) for group in lengths])
    rows = step_rows(*(each and np.concatenate(each) for each in (lengths, turns, tools)))
    return StoredStep(rows, sizes, tuple(sources or [""] * len(sizes)), trained, waiting, updating, seconds)  # fmt: skip


SYNC = SimulatedMode(0, "turns")
# Sampling a step takes 4 s, its update 2 s and the rest of it 1 s; 60 tokens train.
COSTS = Costs(iteration=1.0, row=0.0, step=1.0, update=2.0, token=0.0)
STEPS = [step([2, 4], [3, 1], trained=60.0)] * 9


@pytest.mark.parametrize(
    ("setup", "seconds", "waiting", "age"),
    [
        (SimulatedMode(0, "turns"), 7.0, 4 / 7, 0),
        # Nothing is sampled while it trains: it waits 4 s for the requests of two steps at a time.
        (SimulatedMode(1, "turns"), 5.0, 2 / 5, 0.5),
        # One after the other, sampling takes longer than the rest, which waits for it.
        (SimulatedMode(1, "beside", joins=False), 4.0, 1 / 4, 1),
        (SimulatedMode(1, "beside", training=0.5, joins=False), 5.0, 0, 1),
        # Together: each is finished 4 s after its request, every other 7 s.
        (SimulatedMode(1, "beside"), 3.5, 1 / 7, 1),
        # Each takes half as long again while the other computes: 3 s of both take 4.5 s.
        (SimulatedMode(1, "beside", contention=1.5, joins=False), 5.5, 1 / 5.5, 1),
    ],
)
def test_a_step_takes_what_it_takes_by_hand(setup, seconds, waiting, age):
    found = simulate(STEPS, COSTS, setup)
    assert found.seconds == pytest.approx(seconds)
    assert found.tokens_per_second == pytest.approx(60 / seconds)
    assert found.waiting == pytest.approx(waiting)
    assert found.ages.mean() == pytest.approx(age, abs=0.1)


def test_rows_cost_time_and_faster_servers_less():
    costs = Costs(iteration=0.0, row=1.0, step=0.0, update=0.0, token=0.0)
    steps = [step([2, 4], [3, 1], trained=10.0)] * 6
    assert simulate(steps, costs, SimulatedMode(0, "turns")).seconds == pytest.approx(10)
    assert simulate(steps, costs, SimulatedMode(0, "turns", sampling=2.0)).seconds == pytest.approx(
        5
    )


@pytest.mark.parametrize(
    ("turns", "tools", "setup", "seconds"),
    [
        # 2 s of sampling, 3 s of tools and 2 s of sampling, before 3 s of training.
        (2, 3.0, SimulatedMode(0, "turns"), 10.0),
        (1, 0.0, SimulatedMode(0, "turns"), 7.0),
        # Tools take nothing from the training beside them: 4 s of sampling take 6 s if training goes
        # on as long. It ends after 4.5 s, in which 3 s are sampled; then a second, and tools.
        (1, 3.0, SimulatedMode(1, "beside", contention=1.5, joins=False), 8.5),
        # Tools go on while nothing is sampled: sampling in 4 s, tools in 5, of which 3 are training.
        (1, 5.0, SimulatedMode(1, "turns"), (9.0 + 6.0) / 2),
        # 8 s of tools after each turn but the last, each a second of sampling.
        (4, 24.0, SimulatedMode(1, "beside", joins=False), 28.0),
    ],
)
def test_agents_wait_for_their_tools(turns, tools, setup, seconds):
    steps = [step([4], trained=60.0, turns=((turns,),), tools=((tools,),))] * 9
    assert simulate(steps, COSTS, setup).seconds == pytest.approx(seconds)


def test_others_are_sampled_while_tools_run():
    rows = {"turns": ((2, 1),), "tools": ((2.0, 0.0),)}
    steps = [step([2, 3], trained=60.0, **rows)] * 9
    costs = Costs(iteration=0.0, row=1.0, step=0.0, update=0.0, token=0.0)
    # 2 s for a token of both; 2 s for two of the second, while the first waits for its tool; and 1 s
    # for its answer.
    assert simulate(steps, costs, SimulatedMode(0, "turns")).seconds == pytest.approx(5.0)


def test_turns_are_sampled_in_waves_or_join_others():
    # After a second, one waits 2 s for its tool, while the other samples 3 tokens more.
    rows = {"turns": ((2, 1),), "tools": ((2.0, 0.0),)}
    steps = [step([2, 4], trained=60.0, **rows)] * 9
    costs = COSTS._replace(step=0.0, update=0.0)
    joins, waves = (
        simulate(steps, costs, SimulatedMode(0, "turns", joins=each)).seconds
        for each in (True, False)
    )
    assert joins == pytest.approx(4.0)  # 1 s, 2 s of its tool and 1 s
    assert waves == pytest.approx(5.0)  # 4 s of the other, and 1 s


def test_slow_prompts_get_old_where_nobody_waits_for_them():
    steps = [step([1], [1], [30], sources=["short", "short", "long"], trained=3.0)] * 40
    costs = Costs(iteration=0.1, row=0.0, step=1.0, update=0.0, token=0.0)
    waits, takes = (
        simulate(steps, costs, SimulatedMode(3, "beside", wait_for_slow=wait))
        for wait in (True, False)
    )
    assert waits.ages.max() <= 3
    ages = takes.of_sources()
    assert ages["long"] > ages["short"]
    assert takes.ages.max() > 3


def test_weights_that_come_seldom_make_responses_older():
    often, seldom = (
        simulate(STEPS, COSTS, SimulatedMode(1, "beside", sync_every=every)).ages.mean()
        for every in (1, 3)
    )
    assert (often, seldom) == (1.0, pytest.approx(2.0, abs=0.4))


def test_costs_are_found_again():
    draw = np.random.default_rng(0)
    steps = []
    for _ in range(20):
        lengths = [draw.integers(1, 40, 4).tolist() for _ in range(6)]
        tokens, longest = sum(map(sum, lengths)), max(map(max, lengths))
        trained = float(draw.integers(100, 900))
        waiting, updating = 0.02 * longest + 0.003 * tokens, 0.5 + 0.004 * trained
        steps.append(step(*lengths, trained=trained, waiting=waiting, updating=updating, seconds=waiting + updating + 0.25))  # fmt: skip
    found = Costs.of(steps, SYNC)
    assert found == pytest.approx((0.02, 0.003, 0.25, 0.5, 0.004))
    # Sampling that tools overlap with, of some rows short and slow, of others long and quick; and turns
    # alone.
    for sync, slow in itertools.product((SYNC, SYNC._replace(joins=False)), (2.0, 0.0)):
        of_agents = []
        for each in steps:
            n = len(each.rows)
            rows = step_rows(each.rows[:, 0], draw.integers(1, 5, n), draw.exponential(slow, n))
            one = each._replace(rows=rows)
            wait = simulate([one], found._replace(step=0.0, update=0.0, token=0.0), sync).seconds
            of_agents.append(one._replace(waiting=wait, seconds=wait + one.updating + 0.25))
        again = Costs.of(of_agents, sync)
        of_both = [simulate(of_agents, each, sync).seconds for each in (found, again)]
        assert of_both[1] == pytest.approx(of_both[0], rel=0.02)
    with pytest.raises(DataError, match="3 steps have rollouts and figures, besides the first 2"):
        Costs.of(steps[:3], SYNC)


@pytest.fixture
def run(tmp_path):
    more = {"timing_s/gen": 0.5, "timing_s/update_actor": 1.0, "rejuice/rows_trained": 2.0}
    folder = write_run(tmp_path / "run", [line(n, accuracy=0.5, **{}) for n in ()])
    lines = [line(n, accuracy=0.5).replace('"rejuice/rows_trained": 90.0', ", ".join(f'"{k}": {v}' for k, v in more.items())) for n in range(1, 5)]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(lines))
    rows = {"prompt_id": ["a", "a", "b", "b"], "data_source": ["x", "x", "y", "y"], "response_token_ids": [[1], [1, 2], [1, 2, 3], [1] * 4]}  # fmt: skip
    for number in range(1, 5):
        (folder / "steps" / f"{number:06d}").mkdir(parents=True)
        pq.write_table(pa.table(rows), folder / "steps" / f"{number:06d}" / "rollouts.parquet")
    return folder


def test_steps_are_read_from_the_folder_of_a_run(run):
    with (run / "metrics.jsonl").open("a") as figures:
        figures.write(line(5, accuracy=0.5))  # It had nothing to train on: verl times no update.
    shutil.copytree(run / "steps" / "000004", run / "steps" / "000005")
    first, second = stored_steps(run, Train())
    by_hand = step([1, 2], [3, 4], sources="xy", trained=5.0, waiting=0.5, updating=1.0, seconds=2.0)  # fmt: skip
    assert str(first) == str(second) == str(by_hand)


def test_trajectories_have_turns_and_tools(run):
    for file in run.glob("steps/*/rollouts.parquet"):
        table = pq.read_table(file).append_column("turn_count", pa.array([1, 2, 1, 0]))
        seconds = pa.array([1.0, None, 3.0, 2.0])  # Of one that a killed process has sampled.
        if "000003" in str(file):  # Of all of them it is not known.
            seconds = pa.nulls(4, pa.float64())
        table = table.append_column("tool_seconds", seconds)
        pq.write_table(table, file)
    (found,) = stored_steps(run, Train())
    # Tokens of a turn, seconds of tools after it, turns.
    assert found.rows.tolist() == [[1, 1, 1], [1, 2, 2], [3, 3, 1], [4, 2, 1]]


@pytest.mark.parametrize(
    ("train", "what"),
    [({"mode": "colocate_async"}, "samples ahead"), ({"replay": "x.parquet"}, "replays")],
)
def test_a_run_that_waits_for_other_things_is_refused(run, train, what):
    with pytest.raises(DataError, match=f"{what}; give a run of mode sync"):
        stored_steps(run, Train(**train))


def test_the_command_prints_a_line_for_each_mode(run, monkeypatch, capsys, tmp_path):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    code, _, err = rejuice("simulate", "run")
    assert (code, err) == (2, "rejuice: 2 steps have rollouts and figures, besides the first 2; give a run of at least 6 steps\n")  # fmt: skip
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    more = [lines[-1].replace('"step": 4', f'"step": {n}') for n in range(5, 9)]
    (run / "metrics.jsonl").write_text("".join([*lines, *more]))
    for number in range(5, 9):
        shutil.copytree(run / "steps" / "000004", run / "steps" / f"{number:06d}")
    with (run / "recipe.yaml").open("a") as recipe:
        recipe.write("custom_operator_paths: [gone.py]\n")  # Nothing of it is needed.
    code, out, _ = rejuice("simulate", "run", "--max-age", "2")
    assert code == 0
    first, second, ages = out.splitlines()[1:]
    assert first.split()[0] == "sync"
    assert second.split()[:2] == ["separate_async", "2"]
    assert ages.startswith("mean age in separate_async, max_age 2: x ")


def test_modes_are_those_of_the_profile():
    cores = Hardware(None, None, 4)
    names = [(name, setup.max_age, setup.sharing) for name, setup in setups(Train(), [1, 2], cores, STEPS)]  # fmt: skip
    assert names == [("sync", 0, "turns"), ("separate_async", 1, "beside"), ("separate_async", 2, "beside")]  # fmt: skip
    gpu = Train(profile="gpu", gpu={"gpus": 8})
    found = setups(gpu, [2], Hardware(6, 2, 4), STEPS)
    assert [name for name, _ in found] == ["sync", "colocate_async", "separate_async"]
    assert (found[2][1].sampling, found[2][1].training) == (0.25, 0.75)


@pytest.mark.parametrize(
    ("used", "cores", "slower"),
    [([3.0, 2.0, np.nan], 4, 4.5 / 4), ([1.0], 4, 1.0), ([np.nan], 4, 1.5), ([20.0], 4, 1.5), ([1.0], 1, 2.0)],
)  # fmt: skip
def test_sampling_and_training_take_cores_that_the_other_used(used, cores, slower):
    steps = [STEPS[0]._replace(update_cores=each) for each in used]
    _, (_, ahead) = setups(Train(), [1], Hardware(None, None, cores), steps)
    assert (ahead.contention, ahead.sampling) == (slower, 1.0 if cores == 1 else 0.75)
