"""verl's own opinion: of the recipes that we ship, and of keys that are wrong."""

import json
from pathlib import Path
from typing import get_args

import pytest
from command import runner
from verl_configs import config_of, problem_of

from rejuice.operators import RecipeError
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.train import PolicyLoss
from rejuice.trainer.launch.verl_config import validate
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
    with pytest.raises(RecipeError, match=r"verl refuses .*loss_agg_mode"):
        validate(
            run(
                RECIPES / "grpo_gsm8k.yaml",
                tmp_path,
                verl={"actor_rollout_ref.actor.loss_agg_mode": "x"},
            )
        )


@pytest.mark.parametrize("lora", [None, {"rank": 64, "target_modules": ["q_proj"]}])
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_verl_validates_all_that_the_section_can_say(verl, tmp_path, profile, lora):
    more = {
        "profile": profile, "lora": lora, "kl_coef": 0.01, "entropy_coef": 0.01, "refill": 2,
        "validation_path": None, "save_every": 0, "updates_per_step": 4, "warmup_steps": 3,
        "loss": {"aggregate": "seq-mean-token-sum"}, "policy": "o'brien's \"own\" policy, $HOME=1",
        "gpu": {"gpus": 4, "nodes": 2, "tensor_parallel": 2, "offload": True},
        "verl": {"actor_rollout_ref.actor.optim.betas": [0.9, 0.95], "+trainer.mine": {"a": "b c"}},
    }  # fmt: skip
    made = run(RECIPES / "grpo_arithmetic.yaml", tmp_path, **more)
    assert problem_of(made, resume=True) is None


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_verl_has_each_loss(verl, tmp_path, profile):
    for policy in get_args(PolicyLoss):
        more = {"profile": profile, "loss": {"policy": policy}}
        made = run(RECIPES / "grpo_arithmetic.yaml", tmp_path, **more)
        assert problem_of(made, resume=False) is None


@pytest.mark.parametrize("rollout", ["vllm", "sglang"])
@pytest.mark.parametrize("strategy", ["fsdp2", "megatron"])
@pytest.mark.parametrize("recipe", ["grpo_gsm8k", "flow_agentflow"])
def test_verl_validates_each_engine(verl, tmp_path, recipe, strategy, rollout):
    """With all that our loss and our buffer read of the configuration."""
    from verl.utils.config import omega_conf_to_dataclass

    from rejuice.trainer.verl.advantage import LossSettings

    megatron = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
    gpu = {
        "gpus": 8, "tensor_parallel": 2, "offload": True, "strategy": strategy, "rollout": rollout,
        "tokens_per_gpu": 24576,  # as the recipe has it, whose section this replaces
        **({"megatron": megatron} if strategy == "megatron" else {}),
    }  # fmt: skip
    train = {
        "profile": "gpu", "gpu": gpu, "kl_coef": 0.01, "entropy_coef": 0.02, "max_grad_norm": 0.3,
        "learning_rate": 3e-6, "warmup_steps": 4, "weight_decay": 0.1, "loss": {"clip": [0.2, 0.28]},
    }  # fmt: skip
    made = run(RECIPES / f"{recipe}.yaml", tmp_path, **train)
    assert problem_of(made, resume=False) is None
    config = config_of(made)
    parts = config.actor_rollout_ref
    assert (parts.rollout.name, parts.actor.strategy, parts.ref.strategy) == (
        rollout, strategy, strategy
    )  # fmt: skip
    assert LossSettings.of(parts.actor) == (0.2, 0.28, 0.01, "low_var_kl", 0.02)
    assert not parts.rollout.full_determinism
    actor = omega_conf_to_dataclass(parts.actor)
    # verl makes the reference's of its section, once it has renamed some keys.
    ref = parts.ref.megatron if strategy == "megatron" else parts.ref.fsdp_config
    optimizer = actor.optim
    assert (optimizer.lr, optimizer.lr_warmup_steps, optimizer.weight_decay) == (3e-6, 4, 0.1)
    assert optimizer.clip_grad == 0.3
    assert actor.engine.param_offload
    assert actor.engine.optimizer_offload
    assert ref.param_offload
    assert ref.forward_only
    if strategy == "megatron":
        for engine in (actor.engine, ref):
            assert engine.tensor_model_parallel_size == 2
            assert engine.pipeline_model_parallel_size == 2
            assert engine.override_transformer_config["recompute_granularity"] == "full"


def test_the_command_takes_sglang_and_megatron(tmp_path, monkeypatch, capsys):
    command = runner(monkeypatch, capsys, tmp_path)
    gpu = "--train.gpu."
    code, out, err = command(
        "train", RECIPES / "grpo_gsm8k.yaml", "--dry-run", f"{gpu}strategy", "megatron",
        f"{gpu}megatron.tensor_model_parallel_size", 4, f"{gpu}rollout", "sglang",
    )  # fmt: skip
    assert code == 0, err
    assert "override model_engine: megatron" in out
    assert "tensor_model_parallel_size: 4" in out
    assert "name: sglang" in out
    assert "verl" in err


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
        (
            {"actor_rollout_ref.actor.policy_loss.loss_mode": "ppo"},
            "verl has no loss 'ppo': it has bypass_mode, cispo, clip_cov, dppo_kl, dppo_tv, dro, geo_mean, gpg, gspo, kl_cov, sapo, vanilla",
            "",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_in_a_line(verl, tmp_path, keys, found, right):
    made = run(RECIPES / "grpo_arithmetic.yaml", tmp_path, verl=keys)
    assert problem_of(made, resume=False) == (f"{found}; {right}" if right else found)
