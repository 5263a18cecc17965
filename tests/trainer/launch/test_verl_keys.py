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
MODE = "train.mode says when responses are sampled, and on what; set train.mode"
REWARDS = "rewards are those of the recipe, and verl's own would be ignored or replace them"
LOOPS = "the recipe says what is sampled, and agent loops of rejuice sample it"
CPU = "profile cpu has one engine that trains, and one that samples"
SHARED = "attention over shared prompts needs it as it is"


@pytest.fixture
def run(tmp_path):
    def make(verl, **train):
        path = write_recipe(tmp_path / "try.yaml", train={**train, "verl": verl})
        return TrainingRun.of(tmp_path / "run", load(path))

    return make


def refused(run):
    with pytest.raises(RecipeError) as error:
        check_user_keys(run, resume=False)
    line = str(error.value)
    assert line.startswith("train.verl: ")
    return line.removeprefix("train.verl: ")


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_what_is_in_the_way_of_the_recipe(run, profile):
    cases = [
        ("trainer.v1.trainer_mode", "colocate_async", f"cannot be 'colocate_async': {MODE}"),
        ("trainer.v1.trainer_mode", "separate_async", f"cannot be 'separate_async': {MODE}"),
        ("trainer.v1.separate_async.parameter_sync_step", 2, f"cannot be 2: {MODE}"),
        ("actor_rollout_ref.hybrid_engine", False, f"cannot be False: {MODE}"),
        ("trainer.use_v1", False, "cannot be False: only verl's v1 trainer runs the steps of the recipe; leave it out"),
        ("trainer.v1.sampler.custom_sampler.path", "mine.py", "cannot be 'mine.py': the steps of the recipe run in the place of verl's sampler; leave it out"),
        ("trainer.v1.sampler.sync_refill_failed_groups", True, "cannot be True: the steps of the recipe run in the place of verl's sampler; leave it out"),
        (f"+{ROLLOUT}.agent.agent_loop_manager_class", "my.Manager", f"cannot be 'my.Manager': {LOOPS}; leave it out"),
        (f"{ROLLOUT}.agent.default_agent_loop", "tool_agent", f"cannot be 'tool_agent': {LOOPS}; leave it out"),
        (f"{ROLLOUT}.agent.agent_loop_config_path", "mine.yaml", f"cannot be 'mine.yaml': {LOOPS}; leave it out"),
        (f"{ROLLOUT}.multi_turn.enable", True, f"cannot be True: {LOOPS}; sample with agent_rollout_mapper"),
        (f"{ROLLOUT}.calculate_log_probs", False, "cannot be False: responses are stored with their log-probabilities; leave it out"),
        ("reward.custom_reward_function.path", "mine.py", f"cannot be 'mine.py': {REWARDS}; add a step that gives the reward"),
        ("reward.reward_model.enable", True, f"cannot be True: {REWARDS}; add a step that gives the reward"),
        ("custom_reward_function.path", "mine.py", f"cannot be 'mine.py': {REWARDS}; add a step that gives the reward"),
        ("algorithm.adv_estimator", "gae", "cannot be 'gae': the advantage is the recipe's; set the fields of grpo_advantage_mapper, or write the column `advantage`"),
        ("algorithm.filter_groups.enable", True, "cannot be True: verl's filter of groups does not run beside the recipe; drop groups by a step of the recipe, and set train.refill"),
        ("critic.enable", True, "cannot be True: GRPO has no critic; leave it out"),
        ("trainer.critic_warmup", 5, "cannot be 5: GRPO has no critic to warm up: steps would update nothing; leave it out"),
        ("data.val_batch_size", 8, "cannot be 8: each validation set is reported as a whole, and it would be validated on in parts; leave it out"),
        (f"{MODEL}.lora.rank", 8, "cannot be 8: checkpoints would be exported without such an adapter; set train.lora, with train.gpu.strategy fsdp2"),
        ("trainer.logger", ["console", "wandb"], "lacks 'file', which writes metrics.jsonl; give train.loggers instead"),
    ]  # fmt: skip

    def check(key, value, line):
        assert refused(run({key: value}, profile=profile)) == f"'{key.lstrip('+')}' {line}"

    check_each(cases, check)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_what_a_field_sets(run, profile):
    cases = [
        ("data.train_files", "mine.parquet", "dataset_path"),
        ("data.val_files", "mine.parquet", "train.validation_path"),
        ("data.train_batch_size", 1024, "train.prompts_per_step"),
        ("data.gen_batch_size", 2, "train.refill"),
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
        (f"{ACTOR}.ppo_mini_batch_size", 2, "train.updates_per_step"),
        (f"{ACTOR}.grad_clip", 0.5, "train.max_grad_norm"),
        ("algorithm.norm_adv_by_std_in_grpo", False, "grpo_advantage_mapper.normalise"),
        ("trainer.total_training_steps", 7, "train.steps"),
        ("trainer.total_epochs", 3, "train.steps"),
        ("trainer.default_local_dir", "elsewhere", "--output"),
        ("trainer.resume_mode", "auto", "--resume"),
        ("trainer.resume_from_path", "elsewhere", "--resume"),
    ]  # fmt: skip

    def check(key, value, field):
        line = f"'{key.lstrip('+')}' would contradict {field}; give {field} instead"
        assert refused(run({key: value}, profile=profile)) == line

    check_each(cases, check)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_the_loss_is_named_once(run, profile):
    """Without `train.loss`, these keys are the user's, as they were before there was one."""
    cases = [
        (f"{ACTOR}.policy_loss.loss_mode", "cispo", "train.loss.policy"),
        (f"{ACTOR}.clip_ratio", 0.1, "train.loss.clip"),
        (f"{ACTOR}.clip_ratio_low", 0.1, "train.loss.clip"),
        (f"{ACTOR}.clip_ratio_high", 0.1, "train.loss.clip"),
        (f"{ACTOR}.loss_agg_mode", "token-mean", "train.loss.aggregate"),
    ]

    def check(key, value, field):
        check_user_keys(run({key: value}, profile=profile), resume=False)
        line = f"'{key}' would contradict {field}; give {field} instead"
        assert refused(run({key: value}, profile=profile, loss={"policy": "gspo"})) == line

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
        (f"{MODEL}.enable_gradient_checkpointing", True, "would contradict train.cpu.gradient_checkpointing; give train.cpu.gradient_checkpointing instead"),
        (f"{MODEL}.lora_rank", 8, "would contradict train.lora; give train.lora instead"),
        (f"{MODEL}.target_modules", ["lm_head"], "would contradict train.lora; give train.lora instead"),
        (f"+{MODEL}.override_config.attn_implementation", "sdpa", f"cannot be 'sdpa': {SHARED}; leave it out"),
        (f"{MODEL}.use_remove_padding", False, f"cannot be False: {SHARED}; leave it out"),
        (f"{MODEL}.use_fused_kernels", False, f"cannot be False: {SHARED}; leave it out"),
        (f"{MODEL}.external_lib", "mine", f"cannot be 'mine': {SHARED}; leave it out"),
        ("+ray_kwargs.ray_init.address", "10.0.0.1:6379", "cannot be '10.0.0.1:6379': profile cpu trains on this machine, on a Ray of its own; leave it out, or choose profile gpu"),
        ("trainer.device", "cuda", f"cannot be 'cuda': {CPU}; choose profile gpu"),
        ("model_engine", "megatron", f"cannot be 'megatron': {CPU}; leave it out"),
        (f"{ACTOR}.strategy", "fsdp", f"cannot be 'fsdp': {CPU}; leave it out"),
        (f"{ROLLOUT}.name", "sglang", f"cannot be 'sglang': {CPU}; leave it out"),
        (f"{ROLLOUT}.top_k", 20, "cannot be 20: the sampler of profile cpu has no top_k; leave it out"),
    ]  # fmt: skip

    def check(key, value, line):
        assert refused(run({key: value})) == f"'{key.lstrip('+')}' {line}"

    check_each(cases, check)


STRATEGY = "set train.gpu.strategy to fsdp2 or megatron"
FSDP2 = f"train.gpu.strategy is fsdp2, by which the other keys are chosen; {STRATEGY}"
MEGATRON = f"train.gpu.strategy is megatron, by which the other keys are chosen; {STRATEGY}"


def test_what_profile_gpu_cannot_do(run):
    cases = [
        ({}, "model_engine", "megatron", f"cannot be 'megatron': {FSDP2}"),
        ({}, f"{ACTOR}.strategy", "megatron", f"cannot be 'megatron': {FSDP2}"),
        ({}, "model_engine", "veomni", f"cannot be 'veomni': {FSDP2}"),
        ({"strategy": "megatron"}, "model_engine", "dp", f"cannot be 'dp': {MEGATRON}"),
        ({"strategy": "megatron"}, f"{ACTOR}.strategy", "fsdp2", f"cannot be 'fsdp2': {MEGATRON}"),
        ({}, f"{ROLLOUT}.name", "sglang", "cannot be 'sglang': train.gpu.rollout is vllm; set train.gpu.rollout to vllm or sglang"),
        ({}, f"{ROLLOUT}.name", "trtllm", "cannot be 'trtllm': train.gpu.rollout is vllm; set train.gpu.rollout to vllm or sglang"),
        ({}, f"{ROLLOUT}.full_determinism", True, "cannot be True: verl would give all responses to a prompt one seed, where requests have none; set train.gpu.reproducible, too"),
    ]  # fmt: skip

    def check(gpu, key, value, line):
        assert refused(run({key: value}, profile="gpu", gpu=gpu)) == f"'{key}' {line}"

    check_each(cases, check)


def test_a_replay_keeps_its_log_probabilities(run):
    found = refused(run({"algorithm.rollout_correction.bypass_mode": False}, replay="a.parquet"))
    assert found == (
        "'algorithm.rollout_correction.bypass_mode' cannot be False: the ratios of a replay are "
        "relative to the stored log-probabilities; leave it out"
    )


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
    assert "cannot be" in refused(run(verl)) or "would contradict" in refused(run(verl))


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_a_value_that_is_there_anyway_is_right(run, profile):
    ours = own_overrides(run({}, profile=profile), resume=False)
    check_user_keys(run(ours, profile=profile), resume=False)


@pytest.mark.parametrize(
    ("verl", "train"),
    [
        ({f"{ACTOR}.optim.betas": [0.9, 0.95], "data.shuffle": False, "reward.num_workers": 2}, {}),
        ({"trainer.logger": ["console", "file", "wandb"], f"{ACTOR}.clip_ratio_c": 10.0}, {}),
        ({f"{ROLLOUT}.agent": {"num_workers": 4}, f"{ROLLOUT}.top_k": 20}, {"profile": "gpu"}),
        ({f"{ROLLOUT}.val_kwargs.top_k": 20, f"{MODEL}.lora.merge": True}, {"profile": "gpu"}),
        ({f"{ACTOR}.strategy": "fsdp", "model_engine": "dp"}, {"profile": "gpu"}),
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
    found = refused(TrainingRun.of(tmp_path / "run", load(path)))
    assert found.endswith("give agent_rollout_mapper.n instead")
