"""From a recipe to verl's keys."""

import pytest
from fake_run import PROCESS, write_recipe

from rejuice.pipelines.recipe.read import load
from rejuice.trainer.launch.overrides import environment, overrides
from rejuice.trainer.run import TrainingRun

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


@pytest.fixture
def run(tmp_path):
    """A factory of runs, of which there is nothing on the disk."""

    def make(process=None, **train):
        more = {} if process is None else {"process": process}
        recipe = load(write_recipe(tmp_path / "try.yaml", train=train, **more))
        return TrainingRun.of(tmp_path / "run", recipe)

    return make


@pytest.fixture
def keys(run):
    def found(process=None, resume=False, **train):
        return overrides(run(process, **train), resume)

    return found


def test_where_verl_finds_and_leaves_things(keys, tmp_path):
    found = keys()
    folder = tmp_path / "run"
    assert found["data.train_files"] == f"{folder}/prompts/train.parquet"
    assert found["data.val_files"] == f"{folder}/prompts/validation.parquet"
    assert found["trainer.default_local_dir"] == f"{folder}/checkpoints"
    assert found["hydra.run.dir"] == str(folder)
    assert found["+trainer.v1.sampler.sampler_kwargs.run"] == str(folder)


def test_the_rollouts_are_configured_by_the_recipe_alone(keys):
    process = [*PROCESS]
    process[1] = {"policy_rollout_mapper": {"n": 5, "max_tokens": 77, "temperature": 0.7, "top_p": 0.9, "on_policy": False}}  # fmt: skip
    found = keys(process, max_prompt_tokens=33)
    assert (found[f"{ROLLOUT}.n"], found[f"{ROLLOUT}.response_length"]) == (5, 77)
    assert (found[f"{ROLLOUT}.temperature"], found[f"{ROLLOUT}.top_p"]) == (0.7, 0.9)
    assert found["data.max_response_length"] == 77
    assert found["data.max_prompt_length"] == found[f"{ROLLOUT}.prompt_length"] == 33


@pytest.mark.parametrize(
    ("train", "key", "value"),
    [
        ({"steps": 9}, "trainer.total_training_steps", 9),
        ({"prompts_per_step": 12}, "data.train_batch_size", 12),
        ({"prompts_per_step": 12, "updates_per_step": 3}, f"{ACTOR}.ppo_mini_batch_size", 4),
        ({"learning_rate": 0.5}, f"{ACTOR}.optim.lr", 0.5),
        ({"warmup_steps": 3}, f"{ACTOR}.optim.lr_warmup_steps", 3),
        ({}, f"{ACTOR}.optim.lr_warmup_steps", -1),
        ({"weight_decay": 0.1}, f"{ACTOR}.optim.weight_decay", 0.1),
        ({"max_grad_norm": 0.3}, f"{ACTOR}.grad_clip", 0.3),
        ({"clip_ratio_low": 0.1}, f"{ACTOR}.clip_ratio_low", 0.1),
        ({"clip_ratio_high": 0.28}, f"{ACTOR}.clip_ratio_high", 0.28),
        ({"loss_agg_mode": "seq-mean-token-mean"}, f"{ACTOR}.loss_agg_mode", "seq-mean-token-mean"),
        ({}, f"{ACTOR}.use_kl_loss", False),
        ({"kl_coef": 0.1}, f"{ACTOR}.use_kl_loss", True),
        ({"kl_coef": 0.1}, f"{ACTOR}.kl_loss_coef", 0.1),
        ({"entropy_coef": 0.1}, f"{ACTOR}.entropy_coeff", 0.1),
        ({"validate_every": 5}, "trainer.test_freq", 5),
        ({"validate_every": 0, "steps": 8}, "trainer.test_freq", 8),
        ({"validation_path": None}, "trainer.test_freq", -1),
        ({"validation_path": None}, "trainer.val_before_train", False),
        ({"validation_n": 4}, f"{ROLLOUT}.val_kwargs.n", 4),
        ({"save_every": 0}, "trainer.save_freq", -1),
        ({"save_every": 6}, "trainer.save_freq", 6),
        ({"keep_checkpoints": 1}, "trainer.max_actor_ckpt_to_keep", 1),
        ({"loggers": ["wandb"]}, "trainer.logger", ["console", "file", "wandb"]),
        ({"seed": 4}, "data.seed", 4),
        ({"policy": "Qwen/Qwen3-8B"}, "actor_rollout_ref.model.path", "Qwen/Qwen3-8B"),
        ({"refill": 1}, "data.gen_batch_size", 1),
        ({"refill": 0}, "data.gen_batch_size", None),
        ({"verl": {"trainer.logger": ["file"]}}, "trainer.logger", ["file"]),
        ({"verl": {"+a.b": 1}}, "+a.b", 1),
    ],
)
def test_fields(keys, train, key, value):
    assert keys(**train)[key] == value


def test_resume(keys):
    assert keys()["trainer.resume_mode"] == "disable"
    assert keys(resume=True)["trainer.resume_mode"] == "auto"


def test_profiles(keys, run):
    cpu, gpu = keys(), keys(profile="gpu", gpu={"gpus": 4, "nodes": 2, "tensor_parallel": 2})
    assert (cpu["trainer.device"], cpu[f"{ROLLOUT}.name"]) == ("cpu", "rejuice")
    assert "trainer.device" not in gpu
    assert (gpu[f"{ROLLOUT}.name"], gpu[f"{ROLLOUT}.tensor_model_parallel_size"]) == ("vllm", 2)
    assert (gpu["trainer.n_gpus_per_node"], gpu["trainer.nnodes"]) == (4, 2)
    assert environment(run())["VERL_PLATFORM"] == "cpu"
    assert "VERL_PLATFORM" not in environment(run(profile="gpu"))


def test_no_name_of_a_place_in_the_environment_is_of_another_run(run, tmp_path):
    found = environment(run())
    assert found["VERL_FILE_LOGGER_PATH"] == f"{tmp_path}/run/metrics.jsonl"
    assert found["TENSORBOARD_DIR"] == f"{tmp_path}/run/tensorboard"
