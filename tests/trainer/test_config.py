"""The `train:` section: what it takes, and what it says of what it does not take."""

from pathlib import Path

import pytest
import yaml
from fake_run import write_recipe

from rejuice.operators import RecipeError
from rejuice.operators.config import field_docs
from rejuice.pipelines.recipe.read import load
from rejuice.pipelines.recipe.train import Gpu, Train, Verification
from rejuice.pipelines.show.opdocs import table
from rejuice.trainer.run import TrainingRun

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def read(tmp_path):
    def config(overrides=None, **train):
        return load(write_recipe(tmp_path / "try.yaml", train=train), overrides).head.train

    return config


def test_what_is_overridden_comes_before_the_recipe(read):
    found = read({"train.steps": "9", "train.profile": "gpu", "train.gpu.gpus": "2"}, steps=7)
    assert (found.steps, found.profile, found.gpu.gpus) == (9, "gpu", 2)


def test_it_takes_every_field_that_it_documents(read):
    config = read(
        gpu={"gpus": 2},
        loggers=["wandb"],
        verl={"trainer.balance_batch": True},
        schedule="verify_alter",
        verification={"every": 3},
    )
    assert config.gpu == Gpu(gpus=2)
    assert config.verification == Verification(every=3)
    assert config.loggers == ("wandb",)
    assert config.verl == {"trainer.balance_batch": True}
    assert Train.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("train", "error"),
    [
        ({"stps": 3}, ", line 16: unknown key 'train.stps'; did you mean 'steps'?"),
        ({"gpu": {"gpu": 3}}, ", line 17: unknown key 'train.gpu.gpu'; did you mean 'gpus'?"),
        ({"op_fusion": True}, ", line 16: unknown key 'train.op_fusion'"),
        ({"steps": 0}, ", line 16: 'train.steps' is 0; input should be greater than 0"),
        ({"steps": {"n": 1}}, ", line 16: 'train.steps' is {'n': 1}; input should be a valid integer"),
        ({"gpu": {"memory": 1.5}}, ", line 17: 'train.gpu.memory' is 1.5; input should be less than 1"),
        ({"gpu": 8}, ", line 16: 'train.gpu' is 8; input should be a valid dictionary or instance of gpu"),
        ({"loggers": ["excel"]}, ", line 16: 'train.loggers' is 'excel'; input should be 'tensorboard', 'wandb', 'mlflow' or 'swanlab'"),
        ({"prompts_per_step": 10, "updates_per_step": 4}, ", line 15, train: prompts_per_step must be a multiple of updates_per_step"),
        ({"replay": "a", "refill": 1}, ", line 15, train: refill samples, and replay does not: leave one of them out"),
        ({"replay": "a", "schedule": "mixed"}, ", line 15, train: schedule mixed samples judgements, and replay samples nothing: leave one of them out"),
        ({"refill": 1, "schedule": "self_verify"}, ", line 15, train: refill replaces answers that cannot train, and with schedule self_verify none do: leave it out, or take more prompts_per_step"),
        ({"verification": {"init_share": 1}}, ", line 17: 'train.verification.init_share' is 1; input should be less than 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_in_a_line(tmp_path, train, error):
    """By whatever reads a recipe: `rejuice check` too."""
    path = tmp_path / "try.yaml"
    write_recipe(path)
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**document, "train": train}))
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert str(caught.value) == f"{path}{error}"


def test_a_recipe_without_the_section(tmp_path):
    path = write_recipe(tmp_path / "try.yaml")
    recipe = load(path)
    bare = recipe.replace(head=recipe.head.model_copy(update={"train": None}))
    with pytest.raises(RecipeError, match="there is no `train:` section; add one"):
        TrainingRun.of(tmp_path / "run", bare)


@pytest.mark.parametrize("model", [Train, Gpu, Verification])
def test_every_field_is_documented(model):
    assert list(field_docs(model)) == list(model.model_fields)


def test_the_page_has_every_field_as_it_is():
    page = (ROOT / "docs" / "training.md").read_text("utf-8")
    assert "\n".join(table(Train)) in page, "if this is meant, run `make docs`"


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("grpo_*.yaml")), ids=lambda p: p.stem)  # fmt: skip
def test_our_own_recipes_can_be_trained(tmp_path, path):
    run = TrainingRun.of(tmp_path / "run", load(path))
    assert run.config.profile == ("gpu" if "gsm8k" in path.stem else "cpu")
    assert run.split.after
