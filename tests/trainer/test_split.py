"""Where a recipe is split, and why one is refused."""

import pytest
import yaml

from rejuice.operators import RecipeError
from rejuice.pipelines.recipe.read import load
from rejuice.trainer.split import grading_steps, split_recipe

PLAIN = [
    {"prompt_template_mapper": None},
    {"policy_rollout_mapper": {"n": 4}},
    {"math_verify_mapper": None},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
]


@pytest.fixture
def parts(tmp_path):
    def make(process):
        path = tmp_path / "recipe.yaml"
        head = {"project_name": "cutting", "dataset_path": "a.jsonl", "export_path": "b.parquet"}
        path.write_text(yaml.safe_dump({**head, "process": process}))
        return split_recipe(load(path))

    return make


def test_steps_before_and_after_sampling(parts):
    found = parts(PLAIN)
    assert found.source == "cutting"
    assert [step.name for step in found.before] == ["prompt_template_mapper"]
    assert found.rollout.n == 4
    assert [step.number for step in found.after] == [3, 4]


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (PLAIN[:1] + PLAIN[2:], "no step samples responses; training needs one policy_rollout"),
        (
            [*PLAIN, PLAIN[1]],
            ", step 5: two steps sample responses; the second answers the prompts of one self_verif",
        ),
        (PLAIN[:3], "no step after policy_rollout_mapper writes the column reward; add a reward_"),
        (
            [*PLAIN, {"self_verification_mapper": None}],
            ", step 5: no step answers the prompts of self_verification_mapper; put policy_rollout_",
        ),
        (
            [*PLAIN, {"grpo_advantage_mapper": None}, {"length_filter": {"max": 9}}],
            ", step 6: length_filter drops rows that were compared with their group already; "
            "leave it out of training",
        ),
        (
            [*PLAIN, {"grpo_advantage_mapper": None}, {"reward_std_filter": None}],
            ", step 6: reward_std_filter drops rows that were compared with their group already; put "
            "it before grpo_advantage_mapper",
        ),
    ],
)
def test_a_recipe_that_cannot_train_is_refused_in_one_line(parts, process, message):
    with pytest.raises(RecipeError) as caught:
        parts(process)
    assert message in str(caught.value)
    assert "recipe.yaml" in str(caught.value)


def test_validation_runs_the_steps_that_grade(parts):
    steps = [*PLAIN[:3], {"format_reward_mapper": None}, PLAIN[3]]
    assert [step.name for step in grading_steps(parts(steps).after)] == ["math_verify_mapper"]


def test_a_recipe_that_does_not_grade_is_refused(parts):
    ungraded = [*PLAIN[:2], {"format_reward_mapper": None}, PLAIN[3]]
    with pytest.raises(RecipeError, match="no step writes reward_accuracy, by which validation"):
        grading_steps(parts(ungraded).after)
