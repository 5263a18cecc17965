"""Keys of `train.verl` that cannot work beside the recipe: each is refused in a line."""

import pytest
from each import check_each
from fake_run import PROCESS, write_recipe

from rejuice.operators import RecipeError
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.launch.checks import check_training, check_user_keys
from rejuice.trainer.launch.verl_config import (
    AGENT_LOOPS,
    SERVERS_MANAGER,
    overrides,
    own_overrides,
)
from rejuice.trainer.run import TrainingRun

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
LEAVE_OUT = "leave it out"


@pytest.fixture
def run(tmp_path):
    def make(verl, **train):
        path = write_recipe(tmp_path / "try.yaml", train={**train, "verl": verl})
        return TrainingRun.of(tmp_path / "run", load(path))

    return make


def check_refused(run, key, value, right):
    with pytest.raises(RecipeError) as error:
        check_user_keys(run, resume=False)
    line = str(error.value)
    assert line.startswith(f"train.verl: '{key.lstrip('+')}' cannot be {value!r}: ")
    assert line.endswith(f"; {right}")


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_what_is_in_the_way_of_the_recipe(run, profile):
    rewards = "give a step that writes a reward instead"
    cases = [
        ("trainer.v1.trainer_mode", "colocate_async", "give train.mode instead"),
        ("trainer.v1.trainer_mode", "separate_async", "give train.mode instead"),
        ("trainer.v1.separate_async.parameter_sync_step", 2, "give train.mode instead"),
        ("trainer.v1.sampler.custom_sampler.path", "mine.py", "give train.mode instead"),
        ("trainer.v1.sampler.sync_refill_failed_groups", True, "give train.mode instead"),
        ("actor_rollout_ref.hybrid_engine", False, "give train.mode instead"),
        ("trainer.use_v1", False, "give train.mode instead"),
        (f"+{ROLLOUT}.agent.agent_loop_manager_class", "my.Manager", LEAVE_OUT),
        (f"{ROLLOUT}.agent.default_agent_loop", "tool_agent", LEAVE_OUT),
        (f"{ROLLOUT}.agent.agent_loop_config_path", "mine.yaml", LEAVE_OUT),
        (f"{ROLLOUT}.multi_turn.enable", True, "give agent_rollout_mapper instead"),
        (f"{ROLLOUT}.calculate_log_probs", False, LEAVE_OUT),
        ("reward.custom_reward_function.path", "mine.py", rewards),
        ("reward.reward_model.enable", True, rewards),
        ("custom_reward_function.path", "mine.py", rewards),
        ("algorithm.adv_estimator", "gae", "give grpo_advantage_mapper, or a step that writes `advantage`, instead"),
        ("algorithm.filter_groups.enable", True, "give train.refill instead"),
        ("critic.enable", True, LEAVE_OUT),
        ("trainer.critic_warmup", 5, LEAVE_OUT),
        ("data.val_batch_size", 8, LEAVE_OUT),
    ]  # fmt: skip

    def check(key, value, right):
        check_refused(run({key: value}, profile=profile), key, value, right)

    check_each(cases, check)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_what_a_field_sets(run, profile):
    cases = [
        ("data.train_files", "mine.parquet", "dataset_path"),
        ("data.val_files", "mine.parquet", "train.validation_path"),
        ("data.train_batch_size", 1024, "train.prompts_per_step"),
        ("data.gen_batch_size", 2, "train.refill"),
        ("data.seed", 2, "train.seed"),
        ("data.max_prompt_length", 99, "train.max_prompt_tokens"),
        ("data.max_response_length", 99, "policy_rollout_mapper.max_tokens"),
        ("+data.apply_chat_template_kwargs.enable_thinking", False, "policy_rollout_mapper.chat_template_kwargs"),
        (f"{ROLLOUT}.n", 16, "policy_rollout_mapper.n"),
        (f"{ROLLOUT}.temperature", 0.5, "policy_rollout_mapper.temperature"),
        (f"{ROLLOUT}.top_p", 0.5, "policy_rollout_mapper.top_p"),
        (f"{ROLLOUT}.prompt_length", 99, "train.max_prompt_tokens"),
        (f"{ROLLOUT}.response_length", 99, "policy_rollout_mapper.max_tokens"),
        (f"{ROLLOUT}.seed", 42, "train.seed"),
        (f"{ROLLOUT}.val_kwargs.n", 4, "train.validation"),
        (f"{ROLLOUT}.val_kwargs.temperature", 0.6, "train.validation"),
        (f"{ROLLOUT}.val_kwargs.top_p", 0.5, "train.validation"),
        (f"{ROLLOUT}.val_kwargs.do_sample", False, "train.validation"),
        (f"{MODEL}.path", "Qwen/Qwen3-8B", "train.policy"),
        (f"{MODEL}.lora_rank", 8, "train.lora"),
        (f"{MODEL}.lora.rank", 8, "train.lora"),
        (f"{MODEL}.target_modules", ["lm_head"], "train.lora"),
        (f"{ACTOR}.optim.lr", 0.5, "train.learning_rate"),
        (f"{ACTOR}.optim.lr_warmup_steps", 5, "train.warmup_steps"),
        (f"{ACTOR}.optim.weight_decay", 0.5, "train.weight_decay"),
        (f"{ACTOR}.use_kl_loss", True, "train.kl_coef"),
        ("algorithm.use_kl_in_reward", True, "train.kl_coef"),
        (f"{ACTOR}.entropy_coeff", 0.5, "train.entropy_coef"),
        (f"{ACTOR}.ppo_mini_batch_size", 2, "train.updates_per_step"),
        (f"{ACTOR}.grad_clip", 0.5, "train.max_grad_norm"),
        ("algorithm.norm_adv_by_std_in_grpo", False, "grpo_advantage_mapper.normalise"),
        ("trainer.total_training_steps", 7, "train.steps"),
        ("trainer.total_epochs", 3, "train.steps"),
        ("trainer.test_freq", 3, "train.validate_every"),
        ("trainer.logger", ["console", "wandb"], "train.loggers"),
        ("trainer.default_local_dir", "elsewhere", "--output"),
        ("trainer.resume_mode", "auto", "--resume"),
        ("trainer.resume_from_path", "elsewhere", "--resume"),
    ]  # fmt: skip

    def check(key, value, field):
        check_refused(run({key: value}, profile=profile), key, value, f"give {field} instead")

    check_each(cases, check)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_the_loss_is_named_once(run, profile):
    """Without `train.loss`, these keys are the user's, as they were before there was one."""
    cases = [
        (f"{ACTOR}.policy_loss.loss_mode", "cispo"),
        (f"{ACTOR}.clip_ratio", 0.1),
        (f"{ACTOR}.clip_ratio_low", 0.1),
        (f"{ACTOR}.clip_ratio_high", 0.1),
        (f"{ACTOR}.loss_agg_mode", "seq-mean-token-sum"),
    ]

    def check(key, value):
        check_user_keys(run({key: value}, profile=profile), resume=False)
        named = run({key: value}, profile=profile, loss={"policy": "gspo"})
        check_refused(named, key, value, "give train.loss instead")

    check_each(cases, check)


def test_a_library_of_the_users_own_is_imported_after_ours(run):
    """By ours, the workers find our geo_mean, and a resume the recipe's learning rate."""
    key, ours = f"{MODEL}.external_lib", "rejuice.trainer.verl.workers"
    for verl, expected in (({key: "mine"}, [ours, "mine"]), ({key: None}, ours), ({}, ours)):
        made = run(verl, profile="gpu", loss={"policy": "geo_mean"})
        check_user_keys(made, resume=False)
        assert overrides(made, resume=False)[key] == expected


def test_what_profile_cpu_cannot_do(run):
    strategy = "give profile gpu and train.gpu.strategy instead"
    cases = [
        (f"{MODEL}.enable_gradient_checkpointing", True, "give train.cpu.gradient_checkpointing instead"),
        (f"+{MODEL}.override_config.attn_implementation", "sdpa", LEAVE_OUT),
        (f"{MODEL}.use_remove_padding", False, LEAVE_OUT),
        (f"{MODEL}.use_fused_kernels", False, LEAVE_OUT),
        (f"{MODEL}.external_lib", "mine", LEAVE_OUT),
        ("+ray_kwargs.ray_init.address", "10.0.0.1:6379", "choose profile gpu"),
        ("trainer.device", "cuda", "choose profile gpu"),
        ("model_engine", "megatron", strategy),
        (f"{ACTOR}.strategy", "fsdp", strategy),
        (f"{ROLLOUT}.name", "sglang", "give profile gpu and train.gpu.rollout instead"),
        (f"{ROLLOUT}.top_k", 20, LEAVE_OUT),
    ]  # fmt: skip

    def check(key, value, right):
        check_refused(run({key: value}), key, value, right)

    check_each(cases, check)


def test_what_profile_gpu_cannot_do(run):
    strategy = "give train.gpu.strategy instead"
    cases = [
        ({}, "model_engine", "megatron", strategy),
        ({}, f"{ACTOR}.strategy", "megatron", strategy),
        ({}, "model_engine", "veomni", strategy),
        ({"strategy": "megatron"}, "model_engine", "dp", strategy),
        ({"strategy": "megatron"}, f"{ACTOR}.strategy", "fsdp2", strategy),
        ({}, f"{ROLLOUT}.name", "sglang", "give train.gpu.rollout instead"),
        ({}, "trainer.nnodes", 2, "give train.gpu.nodes instead"),
        ({}, f"{ROLLOUT}.full_determinism", True, "set train.gpu.reproducible, too"),
    ]

    def check(gpu, key, value, right):
        check_refused(run({key: value}, profile="gpu", gpu=gpu), key, value, right)

    check_each(cases, check)


def test_a_replay_keeps_its_log_probabilities(run):
    key = "algorithm.rollout_correction.bypass_mode"
    check_user_keys(run({key: False}), resume=False)
    check_refused(run({key: False}, replay="a.parquet"), key, False, LEAVE_OUT)


@pytest.mark.parametrize(
    "verl",
    [
        {"trainer": {"v1": {"trainer_mode": "separate_async"}}},
        {"trainer.v1": {"trainer_mode": "separate_async"}},
        {"++trainer.v1.trainer_mode": "separate_async"},
        {"trainer.v1": None},
        {"trainer": None},
        {"data": {"val_batch_size": 8}},
    ],
)
def test_a_key_may_be_nested_and_one_above_counts_too(run, verl):
    with pytest.raises(RecipeError, match="cannot be"):
        check_user_keys(run(verl), resume=False)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_a_value_that_is_there_anyway_is_right(run, profile):
    ours = own_overrides(run({}, profile=profile), resume=False)
    check_user_keys(run(ours, profile=profile), resume=False)


@pytest.mark.parametrize(
    ("verl", "train"),
    [
        ({f"{ACTOR}.optim.betas": [0.9, 0.95], "data.shuffle": False, "reward.num_workers": 2}, {}),
        ({"reward.num_workers": 2, f"{ACTOR}.clip_ratio_c": 10.0}, {"profile": "gpu"}),
        (
            {f"{ACTOR}.kl_loss_type": "k1", "trainer.project_name": "mine"},
            {"loss": {"policy": "gspo"}},
        ),
        ({"trainer.device": "npu", f"{ROLLOUT}.max_model_len": 4096}, {"profile": "gpu"}),
        ({f"{ROLLOUT}.agent": {"num_workers": 4}, f"{ROLLOUT}.top_k": 20}, {"profile": "gpu"}),
        ({f"{ROLLOUT}.val_kwargs.top_k": 20, f"{MODEL}.lora.merge": True}, {"profile": "gpu"}),
        ({f"{MODEL}.enable_gradient_checkpointing": True}, {"profile": "gpu"}),
        ({f"{ROLLOUT}.full_determinism": True}, {"profile": "gpu", "gpu": {"reproducible": True}}),
        # docs/design/vllm-on-cpu.md
        (
            {
                f"{ROLLOUT}.name": "vllm",
                f"+{ROLLOUT}.agent.agent_loop_manager_class": SERVERS_MANAGER,
                f"{ROLLOUT}.agent.default_agent_loop": "rejuice",
                f"{ROLLOUT}.agent.agent_loop_config_path": str(AGENT_LOOPS),
                "algorithm.rollout_correction.bypass_mode": False,
            },
            {},
        ),
    ],
)
def test_the_rest_of_verl_is_the_users(run, verl, train):
    check_user_keys(run(verl, **train), resume=False)


def test_it_is_checked_with_the_recipe_and_without_verl(run, monkeypatch):
    from rejuice.trainer.launch import checks

    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="trainer_mode"):
        check_training(run({"trainer.v1.trainer_mode": "colocate_async"}), may_lack=True)


def test_the_field_of_the_step_that_samples_is_named(tmp_path):
    agents = {"agent_rollout_mapper": {"n": 2, "flow": "react"}}
    path = write_recipe(
        tmp_path / "try.yaml",
        process=[PROCESS[0], agents, *PROCESS[2:]],
        train={"verl": {f"{ROLLOUT}.n": 8}},
    )
    found = TrainingRun.of(tmp_path / "run", load(path))
    check_refused(found, f"{ROLLOUT}.n", 8, "give agent_rollout_mapper.n instead")
