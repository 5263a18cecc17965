"""Keys of other trainers are answered with what does the same here."""

import pytest

from rejuice.operators import RecipeError
from rejuice.operators.errors import _OTHER_TRAINERS
from rejuice.operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from rejuice.operators.registry import build
from rejuice.pipelines.recipe.head import checked_head
from rejuice.pipelines.recipe.train import Train


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("num_generations", "n of the step"),
        ("temperature", "temperature of the step"),
        ("max_completion_length", "max_tokens of the step"),
        ("beta", "train.kl_coef"),
        ("num_train_epochs", "train.steps"),
        ("max_steps", "train.steps"),
        ("lr_scheduler_type", "warmup_steps"),
        ("per_device_train_batch_size", "train.prompts_per_step"),
        ("gradient_accumulation_steps", "train.updates_per_step"),
        ("early_stopping_patience", "train.stop.validations_without_gain"),
        ("load_best_model_at_end", "train.keep: best"),
    ],
)
def test_a_key_of_another_trainer_gets_our_field(tmp_path, key, ours):
    document = {"dataset_path": "a.jsonl", "export_path": "b.parquet", "train": {key: 1}}
    with pytest.raises(RecipeError, match=f"'train.{key}'; set .*{ours}"):
        checked_head(tmp_path / "recipe.yaml", document, {}, ())


@pytest.mark.parametrize(
    ("key", "ours"), [("num_generations", "set n of"), ("batch_size", "train.prompts_per_step")]
)
def test_so_does_one_in_the_step_that_samples(key, ours):
    with pytest.raises(RecipeError, match=ours):
        build(PolicyRolloutMapper, {key: 8})


def test_a_mistyped_key_of_ours_is_still_suggested():
    with pytest.raises(RecipeError, match="did you mean 'temperature'"):
        build(PolicyRolloutMapper, {"temprature": 1.0})


def test_hints_name_fields_that_there_are():
    named = {ours.split(",")[0].split(":")[0] for ours in _OTHER_TRAINERS.values()}
    ours = {name.split(".")[1] for name in named if name.startswith("train.")}
    assert ours <= {*Train.model_fields}
    sampled = {name.split(" of ")[0] for name in named if not name.startswith("train.")}
    assert sampled <= {*PolicyRolloutMapper.model_fields}
