"""What was computed of a response is refused once another one has taken its place."""

import json

import pytest

from rejuice.operators import RecipeError
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.columns import checked_schema
from rejuice.pipelines.recipe.recipe import load

PROMPTS = [
    {
        "prompt_id": f"{n}",
        "prompt": [{"role": "user", "content": f"What is {n} + 1?"}],
        "reference": f"{n + 1}",
    }
    for n in range(3)
]
VERIFY, SUM = {"math_verify_mapper": {}}, {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}


@pytest.fixture
def sample(tmp_path):
    """A step that samples the responses that were recorded under a name."""

    def step(name):
        rows = [{"prompt": row["prompt"], "response": rf"{name}: \boxed{{2}}"} for row in PROMPTS]
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        fields = {"n": 1, "engine": "recorded", "recorded": {"path": str(file)}, "on_policy": False}
        return {"policy_rollout_mapper": fields}

    return step


def refused(path):
    with pytest.raises(RecipeError) as caught:
        checked_schema(load(path))
    return str(caught.value).partition("recipe.yaml, ")[2] or str(caught.value)


def test_a_verdict_of_a_response_that_is_sampled_anew(recipe_file, sample):
    one, two = sample("one"), sample("two")
    line = refused(recipe_file([one, VERIFY, SUM, two], PROMPTS))
    for fact in (
        "line 14, step 4 policy_rollout_mapper_2: replaces 'response', of which step 2 math_verify",
        "computed 'verdict' (as are extracted_answer, reward, reward_accuracy, reward_accuracy_miss",
        "; put step 2 math_verify_mapper after this step",
    ):
        assert fact in line
    line = refused(recipe_file([one, VERIFY, SUM, two, VERIFY], PROMPTS))
    assert "step 3 reward_sum_mapper computed 'reward'" in line
    checked_schema(load(recipe_file([one, VERIFY, SUM, two, VERIFY, SUM], PROMPTS)))


def test_a_verdict_in_the_dataset_of_an_earlier_run(recipe_file, sample, tmp_path):
    first = recipe_file([sample("one"), VERIFY, SUM], PROMPTS)
    engine.run(load(first))
    export = load(first).head.export_path
    again = tmp_path / "again.yaml"

    def checked(*process):
        recipe = {"dataset_path": str(export), "export_path": "out/again.parquet"}
        again.write_text(json.dumps({**recipe, "process": list(process)}))
        return checked_schema(load(again))

    with pytest.raises(RecipeError, match=r"an earlier run computed .*extracted_answer"):
        checked(sample("two"))
    with pytest.raises(RecipeError, match="an earlier run computed 'reward'; compute it again"):
        checked(sample("two"), VERIFY)
    checked(sample("two"), VERIFY, SUM)


def test_a_pass_rate_stays_as_the_difficulty_for_another_policy(recipe_file, sample, tmp_path):
    """As the message says."""
    stats, first = {"group_stats_mapper": {}}, tmp_path / "first.parquet"
    engine.run(load(recipe_file([sample("one"), VERIFY, stats], PROMPTS, export_path=str(first))))
    next_steps = [{"exact_deduplicator": {"column": "prompt_id"}}, sample("two"), VERIFY]
    again = recipe_file(next_steps, dataset_path=str(first))
    line = refused(again)
    assert "an earlier run computed 'pass_rate'" in line
    assert "or read the dataset without 'response'" in line
    assert "(`columns`)" in line
    names = {name: name for name in ("prompt_id", "prompt", "reference")}
    kept = {**names, "pass_rate": "difficulty"}
    path = recipe_file([*next_steps, stats], dataset_path=str(first), columns=kept)
    engine.run(load(path))
    table = Dataset(load(path).head.export_path).table()
    assert table["difficulty"].to_pylist() == [0.0, 1.0, 0.0]
    assert {"verdict", "pass_rate"} <= set(table.column_names)


OWN = """
from rejuice.operators import Mapper
class StripMapper(Mapper):
    def reads(self): return ("response",)
    def writes(self): return ("response",)
    def map(self, table): return {"response": table["response"]}
"""


BETTER = """
from rejuice.operators import Mapper
class BetterAccuracyMapper(Mapper):
    def reads(self): return ("reward_accuracy",)
    def writes(self): return ("reward_accuracy",)
    def map(self, table): return {"reward_accuracy": table["reward_accuracy"]}
"""


def test_what_changes_a_reward_leaves_no_sum_of_the_former_one(recipe_file, sample, tmp_path):
    (tmp_path / "own.py").write_text(BETTER)
    own, better = [str(tmp_path / "own.py")], {"better_accuracy_mapper": {}}

    def recipe(*process, **fields):
        return recipe_file(list(process), PROMPTS, custom_operator_paths=own, **fields)

    line = refused(recipe(sample("one"), VERIFY, SUM, better))
    assert "step 4 better_accuracy_mapper: replaces 'reward_accuracy', of which step 3" in line
    assert "computed 'reward'; put step 3 reward_sum_mapper after this step" in line
    checked_schema(load(recipe(sample("one"), VERIFY, better, SUM)))
    first = tmp_path / "first.parquet"
    engine.run(load(recipe(sample("one"), VERIFY, SUM, export_path=str(first))))
    path = recipe_file([better], dataset_path=str(first), custom_operator_paths=own)
    assert "an earlier run computed 'reward'" in refused(path)


def test_what_changes_a_response_leaves_its_verdict_true(recipe_file, sample, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    process = [sample("one"), {"strip_mapper": {}}, VERIFY, SUM, {"strip_mapper": {}}]
    own = [str(tmp_path / "own.py")]
    checked_schema(load(recipe_file(process, PROMPTS, custom_operator_paths=own)))
