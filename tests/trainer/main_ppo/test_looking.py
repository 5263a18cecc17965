"""Every command that looks at a run: on one of training, which trains on judgements, too."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from command import runner
from every_command import check_every_command, sampled_rows

from rejuice.pipelines.analysis.replay import SetSamples
from rejuice.pipelines.analysis.rows import row_table
from rejuice.pipelines.cli.shared import open_run
from rejuice.pipelines.recipe.recipe import load

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

STEPS = 4


@pytest.fixture
def looked_at(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


def test_every_command(run, looked_at, tmp_path):
    answers = [run.table(step, "curated") for step in range(1, STEPS + 1)]
    table = pa.concat_tables(answers, promote_options="default")
    check_every_command(
        looked_at, run.folder, table, tmp_path, sampled=sampled_rows(run.folder), judged=True
    )


def test_every_command_on_a_step(run, looked_at, tmp_path):
    step = run.step(2)
    check_every_command(
        looked_at, step, run.table(2, "curated"), tmp_path, sampled=sampled_rows(step), judged=True
    )
    assert "\nrollouts of step 2, row 1\n" in looked_at("explain", step, "row 1")[1]
    judged = run.table(2, "rollouts", "verify")["response_id"][0].as_py()
    assert "\nrollouts of step 2 judgements, row 1\n" in looked_at("explain", step, judged)[1]


@pytest.mark.recommended("trainer/report/next_step.py", "the next one: --train.steps {…}")
def test_the_next_step_is_previewed(run, looked_at):
    """The run has ended: with more steps it would go on."""
    out = looked_at("preview", run.folder)[1]
    assert f"all {STEPS} steps are trained; the next one: --train.steps {STEPS + 1}" in out
    out = looked_at("preview", run.folder, "--train.steps", STEPS + 1)[1]
    assert f"step {STEPS + 1} samples 16 of " in out


def test_replayed_groups_are_explained(run, looked_at):
    """By the last step that has them; what sampled them is named."""
    row = run.table(STEPS, "curated", "replayed")["response_id"][0].as_py()
    out = looked_at("explain", run.folder, row)[1]
    assert "replay_selector" in out
    assert "also in step" in out
    assert f"{STEPS} replayed" in looked_at("explain", run.step(STEPS), row)[1]


@pytest.mark.parametrize(("step", "kind"), [(1, "answers"), (2, "judgements"), (3, "answers")])
def test_previewed_advantages_are_those_that_training_logged(run, step, kind):
    """To the bit as trained on, and what verl logged of them in float32."""
    stored = open_run(run.step(step))
    [one] = [one for one in stored.sets if one.kind == kind]
    samples = SetSamples.of(one)
    rows = row_table(samples.base, samples.replay(one.fit(load(stored.recipe)))).table
    trained = run.table(step, "curated", "verify" if kind == "judgements" else ".")
    places = pc.index_in(trained["response_id"], value_set=rows["response_id"].combine_chunks())
    previewed_N = rows["advantage"].take(places).to_numpy()
    assert previewed_N.tobytes() == trained["advantage"].to_numpy().tobytes()
    tokens_N = pc.list_value_length(trained["response_token_ids"]).to_numpy()
    logged = run.figures(step)
    if kind == "answers":  # At a step that trains on judgements, verl's figures are of both.
        mean = (previewed_N * tokens_N).sum() / tokens_N.sum()
        assert logged["critic/advantages/mean"] == pytest.approx(mean, abs=1e-6)
        assert logged["critic/advantages/max"] == pytest.approx(previewed_N.max(), abs=1e-6)
        assert logged["critic/advantages/min"] == pytest.approx(previewed_N.min(), abs=1e-6)
    else:
        assert logged["critic/advantages/max"] >= np.float32(previewed_N.max()) - 1e-6


def test_whatif_of_a_step_is_what_a_run_over_its_rollouts_makes(run, looked_at, tmp_path):
    """`rejuice run steps/000001/recipe.yaml` reads the rollouts of the step."""
    step, change = run.step(1), ("--reward_sum_mapper.weights.format", "0.3")
    export = tmp_path / "fresh.parquet"
    code, _, err = looked_at("run", step / "recipe.yaml", "-q", "--export_path", export, *change)
    assert (code, err) == (0, "")
    stored = open_run(step)
    other = load(stored.recipe, {"reward_sum_mapper.weights.format": "0.3"})
    [one] = [one for one in stored.sets if one.kind == "answers"]
    applied = SetSamples.of(one).replay(one.fit(other))
    fresh = open_run(export).sets[0]
    expected = fresh.final()
    for name in ("response_id", "reward", "advantage"):
        found = applied[-1].after.select([name])[name].combine_chunks()
        assert found.equals(expected[name].combine_chunks()), name
