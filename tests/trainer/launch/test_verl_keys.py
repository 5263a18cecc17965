"""Keys of `train.verl` that cannot work beside the recipe: each is refused in a line."""

import pytest
from each import check_each
from fake_run import write_recipe

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


@pytest.fixture
def run(tmp_path):
    def make(verl, **train):
        path = write_recipe(tmp_path / "try.yaml", train={**train, "verl": verl})
        return TrainingRun.of(tmp_path / "run", load(path))

    return make


def check_refused(run, key, value):
    with pytest.raises(RecipeError) as error:
        check_user_keys(run, resume=False)
    line = str(error.value)
    assert line.startswith(f"train.verl: '{key.lstrip('+')}' cannot be {value!r}: ")
    assert "leave it out" in line


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_what_the_recipe_decides(run, profile):
    cases = [
        ("trainer.v1.trainer_mode", "colocate_async"),
        ("trainer.v1.trainer_mode", "separate_async"),
        ("trainer.v1.separate_async.parameter_sync_step", 2),
        ("trainer.v1.sampler.custom_sampler.path", "mine.py"),
        ("trainer.v1.sampler.sync_refill_failed_groups", True),
        ("actor_rollout_ref.hybrid_engine", False),
        ("trainer.use_v1", False),
        (f"+{ROLLOUT}.agent.agent_loop_manager_class", "my.Manager"),
        (f"{ROLLOUT}.agent.default_agent_loop", "tool_agent"),
        (f"{ROLLOUT}.agent.agent_loop_config_path", "mine.yaml"),
        (f"{ROLLOUT}.multi_turn.enable", True),
        (f"{ROLLOUT}.calculate_log_probs", False),
        ("reward.custom_reward_function.path", "mine.py"),
        ("reward.reward_model.enable", True),
        ("custom_reward_function.path", "mine.py"),
        ("algorithm.adv_estimator", "gae"),
        ("algorithm.filter_groups.enable", True),
        ("critic.enable", True),
        ("trainer.critic_warmup", 5),
        ("data.val_batch_size", 8),
        ("data.train_files", "mine.parquet"),
        ("data.val_files", "mine.parquet"),
        ("data.train_batch_size", 1024),
        ("data.gen_batch_size", 2),
        ("data.seed", 2),
        ("data.max_prompt_length", 99),
        ("data.max_response_length", 99),
        ("+data.apply_chat_template_kwargs.enable_thinking", False),
        (f"{ROLLOUT}.n", 16),
        (f"{ROLLOUT}.temperature", 0.5),
        (f"{ROLLOUT}.top_p", 0.5),
        (f"{ROLLOUT}.prompt_length", 99),
        (f"{ROLLOUT}.response_length", 99),
        (f"{ROLLOUT}.seed", 42),
        (f"{ROLLOUT}.val_kwargs.n", 4),
        (f"{ROLLOUT}.val_kwargs.temperature", 0.6),
        (f"{ROLLOUT}.val_kwargs.top_p", 0.5),
        (f"{ROLLOUT}.val_kwargs.do_sample", False),
        (f"{MODEL}.path", "Qwen/Qwen3-8B"),
        (f"{MODEL}.lora_rank", 8),
        (f"{MODEL}.lora.rank", 8),
        (f"{MODEL}.target_modules", ["lm_head"]),
        (f"{ACTOR}.optim.lr", 0.5),
        (f"{ACTOR}.optim.lr_warmup_steps", 5),
        (f"{ACTOR}.optim.weight_decay", 0.5),
        (f"{ACTOR}.use_kl_loss", True),
        ("algorithm.use_kl_in_reward", True),
        (f"{ACTOR}.entropy_coeff", 0.5),
        (f"{ACTOR}.ppo_mini_batch_size", 2),
        (f"{ACTOR}.grad_clip", 0.5),
        ("algorithm.norm_adv_by_std_in_grpo", False),
        ("trainer.total_training_steps", 7),
        ("trainer.total_epochs", 3),
        ("trainer.test_freq", 3),
        ("trainer.logger", ["console", "wandb"]),
        ("trainer.default_local_dir", "elsewhere"),
        ("trainer.resume_mode", "auto"),
        ("trainer.resume_from_path", "elsewhere"),
    ]

    def check(key, value):
        check_refused(run({key: value}, profile=profile), key, value)

    check_each(cases, check)


def test_the_line_names_what_the_recipe_sets_and_its_value(run):
    with pytest.raises(RecipeError, match=r"the recipe decides 'data\.seed', which is 1; leave it"):
        check_user_keys(run({"data.seed": 2}, seed=1), resume=False)


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
        check_refused(named, key, value)

    check_each(cases, check)


def test_a_library_of_the_users_own_is_imported_after_ours(run):
    """By ours, the workers find our geo_mean, and a resume the recipe's learning rate."""
    key, ours = f"{MODEL}.external_lib", "rejuice.trainer.verl.workers"
    for verl, expected in (({key: "mine"}, [ours, "mine"]), ({key: None}, ours), ({}, ours)):
        made = run(verl, profile="gpu", loss={"policy": "geo_mean"})
        check_user_keys(made, resume=False)
        assert overrides(made, resume=False)[key] == expected


def test_what_profile_cpu_cannot_do(run):
    cases = [
        (f"{MODEL}.enable_gradient_checkpointing", True),
        (f"+{MODEL}.override_config.attn_implementation", "sdpa"),
        (f"{MODEL}.use_remove_padding", False),
        (f"{MODEL}.use_fused_kernels", False),
        (f"{MODEL}.external_lib", "mine"),
        ("+ray_kwargs.ray_init.address", "10.0.0.1:6379"),
        ("trainer.device", "cuda"),
        ("model_engine", "megatron"),
        (f"{ACTOR}.strategy", "fsdp"),
        (f"{ROLLOUT}.name", "sglang"),
        (f"{ROLLOUT}.top_k", 20),
    ]

    def check(key, value):
        check_refused(run({key: value}), key, value)

    check_each(cases, check)


def test_what_profile_gpu_cannot_do(run):
    cases = [
        ({}, "model_engine", "megatron"),
        ({}, f"{ACTOR}.strategy", "megatron"),
        ({}, "model_engine", "veomni"),
        ({"strategy": "megatron"}, "model_engine", "dp"),
        ({"strategy": "megatron"}, f"{ACTOR}.strategy", "fsdp2"),
        ({}, f"{ROLLOUT}.name", "sglang"),
        ({}, "trainer.nnodes", 2),
        ({}, f"{ROLLOUT}.full_determinism", True),
    ]

    def check(gpu, key, value):
        check_refused(run({key: value}, profile="gpu", gpu=gpu), key, value)

    check_each(cases, check)


def test_a_replay_keeps_its_log_probabilities(run):
    key = "algorithm.rollout_correction.bypass_mode"
    check_user_keys(run({key: False}), resume=False)
    check_refused(run({key: False}, replay="a.parquet"), key, False)


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
