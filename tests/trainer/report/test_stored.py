"""Training runs and their steps as stored runs: every row as sampled, dropped ones too."""

import subprocess
import sys

import pytest
from command import HEAVY
from fake_run import line, write_run
from trained_run import PROCESS, tiny_rollouts, write_trained

from rejuice.operators import DataError
from rejuice.pipelines.analysis.rows import BY_TRAINING, KEPT, stored_rows
from rejuice.pipelines.cli.shared import open_run
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.verl.curation import curate


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    return tiny_rollouts(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def trained(tmp_path, rollouts):
    def make(*numbers, **more):
        return write_trained(tmp_path / "run", rollouts, numbers, **more)

    return make


def test_a_run_has_a_set_for_each_step_that_was_kept(trained):
    folder = trained(1, 3)
    stored = open_run(folder)
    assert (stored.kind, stored.title, stored.report) == ("training run", "run", None)
    assert [(s.name, s.training_step, s.kind) for s in stored.sets] == [
        ("step 1", 1, "answers"),
        ("step 3", 3, "answers"),
    ]
    assert [point["step"] for point in stored.points] == [1, 3]
    assert stored.points[0]["rejuice/pass_rate"] == 0.5
    (third,) = open_run(folder, steps=range(2, 4)).sets
    assert third.training_step == 3
    assert open_run(folder / "recipe.yaml").sets[0].name == "step 1"


def test_a_step_alone(trained):
    folder = trained(1, 3)
    stored = open_run(folder / "steps" / "000003")
    assert (stored.kind, stored.title) == ("training step", "run, step 3")
    assert [each.name for each in stored.sets] == ["step 3"]
    assert [point["step"] for point in stored.points] == [3]


def test_what_each_step_did_is_what_it_does_again(trained):
    (one,) = open_run(trained(2) / "steps" / "000002").sets
    base = one.base(0)
    assert one.incomplete == ""
    again = curate(one.steps, base.table())
    *_, last = one.applied(0)
    table = last.after.table()
    assert table.equals(again.table.select(table.column_names))
    assert set(table.column_names) == set(again.table.column_names)


def test_rows_that_were_dropped_have_what_was_written_to_them(trained):
    (one,) = open_run(trained(2)).sets
    rows = stored_rows(one).table
    assert rows["fate"].to_pylist() == [BY_TRAINING] + [KEPT] * 3 + [6] * 4 + [KEPT] * 4
    assert rows["reason"].to_pylist()[0] == "surplus_group"
    assert rows["reason"].to_pylist()[4] == "too_easy"
    assert rows["verdict"].to_pylist()[4:8] == ["correct"] * 4
    assert rows["reward_format"].to_pylist()[4] == 0.1
    assert rows["reward"].null_count == 4
    # Step 2 of 4: the weight of the format is at a third of its way from 1 to 0.
    assert rows["contribution_format"].to_pylist()[1] == pytest.approx(-0.1 * 2 / 3)
    assert one.final().num_rows == 7


def test_weights_of_another_recipe_are_taken_at_the_progress_of_the_step(trained, tmp_path):
    (one,) = open_run(trained(4)).sets
    assert one.recipe.steps[4].operator.progress == 1.0
    other = load(tmp_path / "run" / "recipe.yaml", {"pass_rate_filter.max": "0.4"})
    steps = one.fit(other)
    assert steps[3].operator.max == 0.4
    assert steps[4].operator.weight("format") == 0.0


def test_a_run_opens_without_values(trained):
    folder = trained(2)
    (folder / "steps" / "000002" / "values.parquet").unlink()
    (one,) = open_run(folder).sets
    assert one.incomplete == "step 2 has no values.parquet"
    rows = stored_rows(one)
    assert not rows.with_dropped
    assert rows.table["fate"].to_pylist() == [KEPT] * 7
    assert rows.table["reward"].to_pylist()[0] == pytest.approx(1.0 - 0.1 * 2 / 3)
    with pytest.raises(DataError, match=r"no values\.parquet"):
        next(one.applied(0))


def test_the_recipe_of_a_step_has_other_steps_than_its_values(trained):
    """A custom operator, too, of which only the recorded values tell the columns."""
    folder = trained(2)
    recipe = folder / "steps" / "000002" / "recipe.yaml"
    recipe.write_text(recipe.read_text() + "- somebodys_filter: {}\n")
    (one,) = open_run(folder).sets
    found = "has 6 steps, and recipe.yaml beside it has 7"
    assert one.incomplete == f"{folder}/steps/000002/values.parquet {found}"


def test_a_step_that_is_being_written_is_left_out(trained):
    folder = trained(1, 2)
    (folder / "steps" / "000002" / "recipe.yaml").unlink()
    assert [each.name for each in open_run(folder).sets] == ["step 1"]
    with pytest.raises(DataError, match="is not a stored run"):
        open_run(folder / "steps" / "000002")


def test_a_run_that_keeps_no_rollouts_has_its_metrics(tmp_path):
    folder = write_run(tmp_path / "run", [line(1, accuracy=0.5)], train={"keep_rollouts": False})
    stored = open_run(folder)
    assert stored.sets == ()
    assert len(stored.points) == 1


def test_a_damaged_table_is_reported_in_one_line(trained):
    folder = trained(1)
    (folder / "steps" / "000001" / "curated.parquet").write_text("nothing")
    (one,) = open_run(folder).sets
    with pytest.raises(DataError, match=r"curated\.parquet cannot be read; train the step again"):
        one.final()


def test_a_column_that_two_steps_write_is_kept_twice(trained):
    second = {"reward_sum_mapper": {"weights": {"accuracy": 2.0}}}
    process = [*PROCESS[:-1], {"pass_rate_filter": {"max": 0.4}}, second, PROCESS[-1]]
    (one,) = open_run(trained(1, process=process)).sets
    assert [step.name for step in one.steps][-2:] == [
        "reward_sum_mapper_2",
        "grpo_advantage_mapper",
    ]
    applied = list(one.applied(0))
    first = applied[4].result.change.columns["reward"].to_pylist()
    assert first == pytest.approx([1.1, 0.9, 0.1, -0.1, 1.1, -0.1, -0.1, -0.1])
    assert applied[6].result.change.columns["reward"].to_pylist() == [2.0, 0.0, 0.0, 0.0]
    rows = stored_rows(one).table
    assert rows["reward"].to_pylist()[:4] == first[:4]
    assert rows["reward"].to_pylist()[8:] == [2.0, 0.0, 0.0, 0.0]


def test_the_names_of_steps_are_those_of_the_run(trained):
    """The recipe of the step itself counts its steps from the first one after sampling."""
    folder = trained(1)
    (one,) = open_run(folder).sets
    assert [step.number for step in one.steps] == [3, 4, 5, 6, 7, 8]
    assert {*one.decisions()["step"].to_pylist()} <= {*(s.name for s in one.steps), "training"}


@pytest.mark.slow
def test_opening_training_loads_nothing_heavy(trained):
    # But for pandas: Arrow loads it as soon as it makes an array of numpy's, if it is there.
    code = f"""
import sys
from pathlib import Path
from rejuice.pipelines.analysis.rows import stored_rows
from rejuice.pipelines.cli.shared import open_run
(one,) = open_run(Path({str(trained(1))!r})).sets
assert stored_rows(one).table.num_rows == 12
print(*({set(HEAVY) - {"pandas"}!r} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
