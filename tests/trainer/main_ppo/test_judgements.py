"""A policy that judges its own answers and trains on its judgements, under the real `main_ppo`."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rejuice.pipelines.engine.run import run as run_recipe
from rejuice.pipelines.recipe.recipe import load

pytestmark = [pytest.mark.slow, pytest.mark.smoke]


def test_judgements_train_at_every_second_step_on_answers_of_both(run):
    assert [run.step(step, "verify").exists() for step in (1, 2, 3, 4)] == [
        False,
        True,
        False,
        True,
    ]
    for step in (2, 4):
        rows = run.table(step, "curated", "verify")
        sampled_at = set(rows["sampled_at_step"].to_pylist())
        assert sampled_at == {step - 1, step}
        assert set(rows["policy_version"].to_pylist()) == {step - 1}
        labels = rows.group_by(["prompt_id", "label"]).aggregate([])["label"].to_pylist()
        assert labels.count("Yes") == labels.count("No") > 0


@pytest.mark.parametrize("step", [2, 4])
@pytest.mark.parametrize("part", [".", "verify"])
def test_what_was_trained_on_is_what_rejuice_run_gives(run, tmp_path, step, part):
    again = tmp_path / "again.parquet"
    recipe = load(run.step(step, part) / "recipe.yaml", {"export_path": str(again)})
    run_recipe(recipe, cache=tmp_path / "cache")
    kept, found = run.table(step, "curated", part), pq.read_table(again)
    found = found.filter(pc.is_in(found["response_id"], kept["response_id"]))
    for name in ("response_id", "reward"):
        assert found[name].to_pylist() == kept[name].to_pylist()
