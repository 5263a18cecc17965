"""What was computed of a response is refused once another one has taken its place."""

import json

import pytest

from rejuice.operators import RecipeError
from rejuice.pipelines.engine import runner as engine
from rejuice.pipelines.recipe.columns import checked_schema
from rejuice.pipelines.recipe.read import load

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
        rows = [{"prompt": row["prompt"], "response": f"{name}: 2"} for row in PROMPTS]
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
    assert refused(recipe_file([one, VERIFY, SUM, two], PROMPTS)) == (
        "line 14, step 4 policy_rollout_mapper_2: replaces 'response', of which step 2 "
        "math_verify_mapper computed 'verdict' (as are extracted_answer, reward, reward_accuracy, "
        "reward_accuracy_missing): it would stay as it was; put step 2 "
        "math_verify_mapper after this step, too, or leave it out"
    )
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

    with pytest.raises(
        RecipeError, match="the run that made the dataset computed 'extracted_answer'"
    ):
        checked(sample("two"))
    with pytest.raises(RecipeError, match="computed 'reward': it would stay as it was; let a step"):
        checked(sample("two"), VERIFY)
    checked(sample("two"), VERIFY, SUM)


OWN = """
from rejuice.operators import Mapper
class StripMapper(Mapper):
    def reads(self): return ("response",)
    def writes(self): return ("response",)
    def map(self, table): return {"response": table["response"]}
"""


def test_what_changes_a_response_leaves_its_verdict_true(recipe_file, sample, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    process = [sample("one"), VERIFY, SUM, {"strip_mapper": {}}]
    own = [str(tmp_path / "own.py")]
    checked_schema(load(recipe_file(process, PROMPTS, custom_operator_paths=own)))
