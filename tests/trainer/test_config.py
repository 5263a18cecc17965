"""The `train:` section: what it takes, and what it says of what it does not take."""

import re
from pathlib import Path

import pytest
from fake_run import write_recipe

from rejuice.operators import RecipeError
from rejuice.pipelines.opdocs import table
from rejuice.pipelines.recipe import load
from rejuice.trainer.config import Gpu, Train, train_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def read(tmp_path):
    def config(flags=None, **train):
        return train_config(load(write_recipe(tmp_path / "try.yaml", train=train)), flags)

    return config


def said(read, **train):
    with pytest.raises(RecipeError) as error:
        read(**train)
    return re.sub(r"^.*try\.yaml, ", "", str(error.value))


def test_flags_come_before_the_recipe(read):
    assert read({"steps": None, "profile": None}, steps=7).steps == 7
    found = read({"steps": 9, "profile": "gpu"}, steps=7)
    assert (found.steps, found.profile) == (9, "gpu")


def test_all_that_it_says_it_takes(read):
    config = read(gpu={"gpus": 2}, loggers=["wandb"], verl={"trainer.balance_batch": True})
    assert config.gpu == Gpu(gpus=2)
    assert config.loggers == ("wandb",)
    assert config.verl == {"trainer.balance_batch": True}
    assert Train.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("train", "error"),
    [
        ({"stps": 3}, "train: unknown key 'stps'; did you mean 'steps'?"),
        ({"gpu": {"gpu": 3}}, "train: unknown key 'gpu.gpu'; did you mean 'gpus'?"),
        ({"steps": 0}, "train: 'steps' is 0; input should be greater than 0"),
        ({"gpu": {"memory": 1.5}}, "train: 'gpu.memory' is 1.5; input should be less than 1"),
        ({"loggers": ["excel"]}, "train: 'loggers.0' is 'excel'; input should be 'tensorboard', 'wandb', 'mlflow' or 'swanlab'"),
        ({"prompts_per_step": 10, "updates_per_step": 4}, "train: prompts_per_step must be a multiple of updates_per_step"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(read, train, error):
    assert said(read, **train) == error


def test_a_recipe_without_the_section(tmp_path):
    path = write_recipe(tmp_path / "try.yaml")
    recipe = load(path)
    bare = recipe._replace(head=recipe.head.model_copy(update={"train": None}))
    with pytest.raises(RecipeError, match="there is no `train:` section; add one"):
        train_config(bare)


@pytest.mark.parametrize("model", [Train, Gpu])
def test_every_field_is_documented(model):
    assert all(field.description for field in model.model_fields.values())


def test_the_page_has_every_field_as_it_is():
    page = (ROOT / "docs" / "training.md").read_text("utf-8")
    assert "\n".join(table(Train)) in page, "if this is meant, run `make docs`"


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("grpo_*.yaml")), ids=lambda p: p.stem)  # fmt: skip
def test_our_own_recipes_can_be_trained(path):
    from rejuice.trainer.cut import cut

    recipe = load(path)
    config = train_config(recipe)
    assert config.profile == ("gpu" if "gsm8k" in path.stem else "cpu")
    assert cut(recipe).after
