"""verl's own opinion: of the recipes that we ship, and of keys that are wrong."""

from pathlib import Path

import pytest

from rejuice.operators import RecipeError
from rejuice.pipelines.recipe import load
from rejuice.trainer.config import train_config
from rejuice.trainer.cut import cut
from rejuice.trainer.dry_run import validate
from rejuice.trainer.run import TrainingRun

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
pytestmark = pytest.mark.slow


def run(path, tmp_path, **flags):
    recipe = load(path)
    return TrainingRun(tmp_path / "run", train_config(recipe, flags), cut(recipe))


@pytest.mark.parametrize("path", sorted(RECIPES.glob("grpo_*.yaml")), ids=lambda path: path.stem)
def test_verl_validates_our_recipes(path, tmp_path):
    validate(run(path, tmp_path))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_verl_validates_all_that_the_section_can_say(tmp_path, profile):
    more = {
        "profile": profile, "kl_coef": 0.01, "entropy_coef": 0.01, "refill": 2,
        "validation_path": None, "save_every": 0, "updates_per_step": 4, "warmup_steps": 3,
        "loss_agg_mode": "seq-mean-token-sum", "policy": "o'brien's \"own\" policy, $HOME=1",
        "gpu": {"gpus": 4, "nodes": 2, "tensor_parallel": 2, "offload": True},
        "verl": {"actor_rollout_ref.actor.optim.betas": [0.9, 0.95], "+trainer.mine": {"a": "b c"}},
    }  # fmt: skip
    validate(run(RECIPES / "grpo_arithmetic.yaml", tmp_path, **more), resume=True)


@pytest.mark.parametrize(
    ("verl", "said"),
    [
        (
            {"actor_rollout_ref.actor.optim.beta": [0.9, 0.95]},
            "verl has no key 'actor_rollout_ref.actor.optim.beta'; "
            "did you mean 'actor_rollout_ref.actor.optim.betas'?",
        ),
        ({"zzz": 1}, "verl has no key 'zzz'; to add it all the same write +zzz"),
        ({"+trainer.device": "cpu"}, "verl has the key 'trainer.device' already; write it without +"),
        (
            {"actor_rollout_ref.actor.loss_agg_mode": "none"},
            "verl refuses its configuration at actor_rollout_ref.actor: Invalid loss_agg_mode: none",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(tmp_path, verl, said):
    with pytest.raises(RecipeError) as error:
        validate(run(RECIPES / "grpo_arithmetic.yaml", tmp_path, verl=verl))
    assert str(error.value) == said
