"""verl's own opinion: of the recipes that we ship, and of keys that are wrong."""

import json
from pathlib import Path

import pytest
from verl_configs import problem_of

from rejuice.operators import RecipeError
from rejuice.pipelines.recipe.read import load
from rejuice.trainer.launch.dry_run import validate
from rejuice.trainer.run import TrainingRun

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
pytestmark = pytest.mark.slow


def run(path, tmp_path, **flags):
    fields = {f"train.{name}": json.dumps(value) for name, value in flags.items()}
    return TrainingRun.of(tmp_path / "run", load(path, fields))


@pytest.mark.parametrize(
    "path",
    sorted([*RECIPES.glob("grpo_*.yaml"), *RECIPES.glob("self_verify_*.yaml")]),
    ids=lambda path: path.stem,
)
def test_verl_validates_our_recipes(verl, path, tmp_path):
    assert problem_of(run(path, tmp_path), resume=False) is None


def test_validation_takes_a_process_of_its_own_and_leaves_nothing(tmp_path):
    validate(run(RECIPES / "grpo_gsm8k.yaml", tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RecipeError) as error:
        validate(run(RECIPES / "grpo_gsm8k.yaml", tmp_path, verl={"zzz": 1}))
    assert str(error.value) == "verl has no key 'zzz'; to add it all the same write +zzz"


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_verl_validates_all_that_the_section_can_say(verl, tmp_path, profile):
    more = {
        "profile": profile, "kl_coef": 0.01, "entropy_coef": 0.01, "refill": 2,
        "validation_path": None, "save_every": 0, "updates_per_step": 4, "warmup_steps": 3,
        "loss_agg_mode": "seq-mean-token-sum", "policy": "o'brien's \"own\" policy, $HOME=1",
        "gpu": {"gpus": 4, "nodes": 2, "tensor_parallel": 2, "offload": True},
        "verl": {"actor_rollout_ref.actor.optim.betas": [0.9, 0.95], "+trainer.mine": {"a": "b c"}},
    }  # fmt: skip
    made = run(RECIPES / "grpo_arithmetic.yaml", tmp_path, **more)
    assert problem_of(made, resume=True) is None


@pytest.mark.parametrize(
    ("keys", "found", "right"),
    [
        (
            {"actor_rollout_ref.actor.optim.beta": [0.9, 0.95]},
            "verl has no key 'actor_rollout_ref.actor.optim.beta'",
            "did you mean 'actor_rollout_ref.actor.optim.betas'?",
        ),
        ({"+trainer.device": "cpu"}, "verl has the key 'trainer.device' already", "write it without +"),
        (
            {"actor_rollout_ref.actor.loss_agg_mode": "none"},
            "verl refuses its configuration at actor_rollout_ref.actor: Invalid loss_agg_mode: none",
            "",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_in_a_line(verl, tmp_path, keys, found, right):
    made = run(RECIPES / "grpo_arithmetic.yaml", tmp_path, verl=keys)
    assert problem_of(made, resume=False) == (f"{found}; {right}" if right else found)
