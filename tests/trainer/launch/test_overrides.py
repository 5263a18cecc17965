"""From a recipe to verl's keys."""

import importlib.util

import pytest
from each import check_each
from fake_run import PROCESS, write_recipe

from rejuice.operators.sampling import vllm_engine
from rejuice.operators.sampling.processes import DEFAULT_ENVIRONMENT
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.launch import verl_config
from rejuice.trainer.launch.verl_config import environment, overrides
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


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_on_a_cpu_one_trainer_of_verl_samples_ahead(keys, run, mode):
    assert keys()["trainer.v1.trainer_mode"] == "sync"
    found = keys(mode=mode, max_age=3, steps=9)
    assert found["trainer.v1.trainer_mode"] == "colocate_async"
    assert found["trainer.v1.colocate_async.num_warmup_batches"] == 3
    assert found["trainer.v1.sampler.max_off_policy_threshold"] is None
    # What only steps after the last one would train on is not sampled.
    assert keys(mode=mode, max_age=3, steps=2)["trainer.v1.colocate_async.num_warmup_batches"] == 2
    assert "REJUICE_AHEAD" in environment(run(mode=mode))
    assert "REJUICE_AHEAD" not in environment(run())


def test_on_gpus_of_their_own_engines_sample_all_the_time(keys):
    found = keys(profile="gpu", mode="separate_async", gpu={"gpus": 4, "rollout_gpus": 2, "nodes": 3})  # fmt: skip
    assert found["trainer.v1.trainer_mode"] == "separate_async"
    assert found[f"{ROLLOUT}.n_gpus_per_node"] == 2
    assert (found[f"{ROLLOUT}.nnodes"], found["trainer.nnodes"]) == (3, 3)


def test_each_validation_set_has_a_file_of_its_own(keys, tmp_path):
    sets = {"a": {"path": str(tmp_path / "data.jsonl"), "n": 4, "temperature": 0.6}, "b": str(tmp_path / "data.jsonl")}  # fmt: skip
    found = keys(validation_path=None, validation=sets)
    folder = tmp_path / "run" / "prompts"
    assert found["data.val_files"] == [
        f"{folder}/validation-a.parquet",
        f"{folder}/validation-b.parquet",
    ]
    assert (found["trainer.test_freq"], found["trainer.val_before_train"]) == (20, True)


def test_the_rollouts_are_configured_by_the_recipe_alone(keys):
    process = [*PROCESS]
    process[1] = {"policy_rollout_mapper": {"n": 5, "max_tokens": 77, "temperature": 0.7, "top_p": 0.9, "on_policy": False}}  # fmt: skip
    found = keys(process, max_prompt_tokens=33)
    assert (found[f"{ROLLOUT}.n"], found[f"{ROLLOUT}.response_length"]) == (5, 77)
    assert (found[f"{ROLLOUT}.temperature"], found[f"{ROLLOUT}.top_p"]) == (0.7, 0.9)
    assert found["data.max_response_length"] == 77
    assert found["data.max_prompt_length"] == found[f"{ROLLOUT}.prompt_length"] == 33


def test_fields(keys):
    cases = [
        ({"steps": 9}, "trainer.total_training_steps", 9),
        ({"prompts_per_step": 12}, "data.train_batch_size", 12),
        ({"prompts_per_step": 12, "updates_per_step": 3}, f"{ACTOR}.ppo_mini_batch_size", 4),
        ({"learning_rate": 0.5}, f"{ACTOR}.optim.lr", 0.5),
        ({"warmup_steps": 3}, f"{ACTOR}.optim.lr_warmup_steps", 3),
        ({}, f"{ACTOR}.optim.lr_warmup_steps", -1),
        ({"weight_decay": 0.1}, f"{ACTOR}.optim.weight_decay", 0.1),
        ({"max_grad_norm": 0.3}, f"{ACTOR}.optim.clip_grad", 0.3),
        ({}, f"{ACTOR}.loss_agg_mode", "token-mean"),
        ({}, f"{ACTOR}.policy_loss.loss_mode", "vanilla"),
        ({"loss": {"policy": "cispo"}}, f"{ACTOR}.policy_loss.loss_mode", "cispo"),
        ({"loss": {"policy": "geo_mean"}}, f"{ACTOR}.policy_loss.loss_mode", "rejuice_geo_mean"),
        ({"loss": {"clip": [0.1, 0.3]}}, f"{ACTOR}.clip_ratio", 0.1),
        ({"loss": {"clip": [0.1, 0.3]}}, f"{ACTOR}.clip_ratio_low", 0.1),
        ({"loss": {"clip": [0.1, 0.3]}}, f"{ACTOR}.clip_ratio_high", 0.3),
        ({"loss": {"policy": "gspo"}}, f"{ACTOR}.loss_agg_mode", "seq-mean-token-mean"),
        (
            {"loss": {"aggregate": "seq-mean-token-sum"}},
            f"{ACTOR}.loss_agg_mode",
            "seq-mean-token-sum",
        ),
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
        ({"save_every": 6}, "trainer.save_freq", 1),
        ({"loggers": ["wandb"]}, "trainer.logger", ["console", "file", "wandb"]),
        ({"seed": 4}, "data.seed", 4),
        ({"policy": "Qwen/Qwen3-8B"}, "actor_rollout_ref.model.path", "Qwen/Qwen3-8B"),
        ({"refill": 1}, "data.gen_batch_size", 1),
        ({"refill": 0}, "data.gen_batch_size", None),
        ({"verl": {"trainer.logger": ["file"]}}, "trainer.logger", ["file"]),
        ({"verl": {"+a.b": 1}}, "+a.b", 1),
    ]

    def check(train, key, value):
        assert keys(**train)[key] == value

    check_each(cases, check)


def test_resume(keys):
    assert keys()["trainer.resume_mode"] == "disable"
    assert keys(resume=True)["trainer.resume_mode"] == "auto"


def test_a_checkpoint_is_validated_where_it_is_due(keys, tmp_path):
    validates = "trainer.val_before_train"
    assert keys(resume=True)[validates] is True  # The run ended before its first checkpoint.
    checkpoint = tmp_path / "run" / "checkpoints" / "global_step_5"
    (checkpoint / "actor").mkdir(parents=True)
    (checkpoint / "data.pt").touch()
    (checkpoint.parent / "latest_checkpointed_iteration.txt").write_text("5")
    assert keys(resume=True)[validates] is False
    assert keys()[validates] is True
    # verl saves a checkpoint first: the run may have ended before it was validated.
    assert keys(resume=True, validate_every=5)[validates] is True


def test_profiles(keys, run):
    cpu, gpu = keys(), keys(profile="gpu", gpu={"gpus": 4, "nodes": 2, "tensor_parallel": 2})
    assert (cpu["trainer.device"], cpu[f"{ROLLOUT}.name"]) == ("cpu", "rejuice")
    assert "trainer.device" not in gpu
    assert (gpu[f"{ROLLOUT}.name"], gpu[f"{ROLLOUT}.tensor_model_parallel_size"]) == ("vllm", 2)
    assert (gpu["trainer.n_gpus_per_node"], gpu["trainer.nnodes"]) == (4, 2)
    assert environment(run())["VERL_PLATFORM"] == "cpu"
    assert "VERL_PLATFORM" not in environment(run(profile="gpu"))
    # Otherwise the sampler's processes could not be forked: they would have other variables.
    assert environment(run()).items() >= DEFAULT_ENVIRONMENT.items()


@pytest.mark.parametrize("there", [True, False])
def test_attention_and_sampler_are_those_that_are_installed(keys, run, monkeypatch, there):
    find = importlib.util.find_spec
    names = ("flash_attn", "flashinfer")

    def found(name, *_):
        return (find("json") if there else None) if name in names else find(name)

    for module in (verl_config, vllm_engine):
        monkeypatch.setattr(module, "find_spec", found)
    key = "+actor_rollout_ref.model.override_config.attn_implementation"
    assert keys(profile="gpu")[key] == ("flash_attention_2" if there else "sdpa")
    assert keys(profile="gpu", gpu={"attention": "eager"})[key] == "eager"
    variable = environment(run(profile="gpu")).get("VLLM_USE_FLASHINFER_SAMPLER")
    assert variable == (None if there else "0")
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in environment(run())
    assert key not in keys(profile="gpu", gpu={"strategy": "megatron"})


def test_each_engine_has_its_own_keys_and_none_of_the_other(keys):
    gpu = {"offload": True, "megatron": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4}}  # fmt: skip
    megatron = keys(profile="gpu", gpu={**gpu, "strategy": "megatron"})
    fsdp = keys(profile="gpu", gpu={"offload": True})
    assert megatron["model_engine"] == "megatron"
    assert megatron[f"{ACTOR}.megatron.tensor_model_parallel_size"] == 2
    assert megatron[f"{ACTOR}.megatron.pipeline_model_parallel_size"] == 4
    for name in ("param_offload", "optimizer_offload"):
        assert megatron[f"{ACTOR}.megatron.{name}"] is True
        assert fsdp[f"{ACTOR}.fsdp_config.{name}"] is True
    # The strategy comes with Megatron's own defaults.
    assert not any(word in key for key in megatron for word in ("fsdp", "strategy"))
    assert not any("megatron" in key for key in fsdp)
    assert "model_engine" not in fsdp
    assert (fsdp[f"{ACTOR}.strategy"], fsdp["actor_rollout_ref.ref.strategy"]) == ("fsdp2",) * 2


@pytest.mark.parametrize("wanted", [True, False])
def test_gradient_checkpointing_of_each_engine(keys, wanted):
    gpu = {"gradient_checkpointing": wanted}
    fsdp = keys(profile="gpu", gpu=gpu)
    assert fsdp["actor_rollout_ref.model.enable_gradient_checkpointing"] is wanted
    megatron = keys(profile="gpu", gpu={**gpu, "strategy": "megatron"})
    key = f"{ACTOR}.megatron.override_transformer_config.recompute_granularity"
    assert megatron.get(key) == ("full" if wanted else None)
    assert "actor_rollout_ref.model.enable_gradient_checkpointing" not in megatron


def test_sglang_has_room_for_the_longest_prompt_and_response(keys):
    """verl's SGLang server always leaves one token free, vLLM's does not."""
    vllm, sglang = (
        keys(profile="gpu", max_prompt_tokens=100, gpu={"rollout": name})
        for name in ("vllm", "sglang")
    )
    assert (vllm[f"{ROLLOUT}.name"], sglang[f"{ROLLOUT}.name"]) == ("vllm", "sglang")
    assert vllm[f"{ROLLOUT}.max_model_len"] == 100 + 16
    assert sglang[f"{ROLLOUT}.max_model_len"] == 100 + 16 + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "seeded"),
    [
        ({}, True),
        ({"profile": "gpu"}, False),
        ({"profile": "gpu", "gpu": {"reproducible": True}}, True),
    ],
)
def test_which_requests_have_seeds(keys, run, train, seeded):
    assert keys(**train)["+trainer.v1.sampler.sampler_kwargs.seeds_requests"] is seeded
    _, sampling = run(**train, seed=7).sampler()
    assert sampling.seed == (7 if seeded else None)


def test_tokens_of_a_pass_on_a_cpu(keys):
    names = [
        f"{ACTOR}.ppo_max_token_len_per_gpu",
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu",
    ]
    assert [keys()[name] for name in names] == [49932] * 3
    assert [keys(cpu={"tokens": 999})[name] for name in names] == [999] * 3
    # The longest row fits, whatever is asked for.
    assert [keys(cpu={"tokens": 9}, max_prompt_tokens=80)[name] for name in names] == [96] * 3
    assert not keys()["actor_rollout_ref.model.enable_gradient_checkpointing"]
    found = keys(cpu={"gradient_checkpointing": True})
    assert found["actor_rollout_ref.model.enable_gradient_checkpointing"]


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_an_adapter(keys, profile):
    model = "actor_rollout_ref.model"
    assert not [key for key in keys(profile=profile) if "lora" in key]
    found = keys(profile=profile, lora={"rank": 8}, seed=3)
    assert (found[f"{model}.lora_rank"], found[f"{model}.lora_alpha"]) == (8, 32)
    assert found[f"{model}.target_modules"] == "all-linear"
    assert found[f"{ACTOR}.fsdp_config.seed"] == 3
    found = keys(profile=profile, lora={"target_modules": ["q_proj", "v_proj"]})
    assert found[f"{model}.target_modules"] == ["q_proj", "v_proj"]


def test_no_name_of_a_place_in_the_environment_is_of_another_run(run, tmp_path):
    found = environment(run())
    assert found["VERL_FILE_LOGGER_PATH"] == f"{tmp_path}/run/metrics.jsonl"
    assert found["TENSORBOARD_DIR"] == f"{tmp_path}/run/tensorboard"
