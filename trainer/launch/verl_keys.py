"""Keys of `train.verl` that cannot work beside the recipe.

verl would accept them, and the run would be another one than the recipe says, or ignore them. One
with the value that it has anyway is not refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ...operators.errors import RecipeError
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...pipelines.ray_session import LOCAL
from ..run import TrainingRun
from .overrides import AGENT_LOOPS, SERVERS_MANAGER, own_overrides
from .ray_address import ADDRESS

_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
_LEAVE_OUT = "leave it out"
_HARMLESS = frozenset({"reward.num_workers", "reward_model.num_workers"})
"""Below a key that is refused, but only a number of processes."""


class _Restriction(NamedTuple):
    """Why a key cannot have other values.

    Attributes:
        key: of verl; it stands for all keys below it, too.
        reason: completes "it cannot be so: ".
        right: what to do instead.
        allowed: values that work.
    """

    key: str
    reason: str
    right: str = _LEAVE_OUT
    allowed: Collection[Any] = ()


_SYNCHRONOUS = (
    "the recipe's steps run on whole groups, between the sampling of a step and its update"
)
_OWN_LOOPS = "the recipe says what is sampled, and agent loops of rejuice sample it"
_OWN_REWARDS = "rewards are those of the recipe, and verl's own would be ignored or replace them"
_RULES = (
    _Restriction(
        "trainer.use_v1", "only verl's v1 trainer runs the steps of the recipe", allowed=[True]
    ),
    _Restriction(
        "trainer.v1.sampler", "the steps of the recipe run in the place of verl's sampler"
    ),
    _Restriction("trainer.v1", _SYNCHRONOUS),
    _Restriction("actor_rollout_ref.hybrid_engine", _SYNCHRONOUS, allowed=[True]),
    _Restriction(
        f"{_ROLLOUT}.agent.agent_loop_manager_class", _OWN_LOOPS, allowed=[SERVERS_MANAGER]
    ),
    _Restriction(
        f"{_ROLLOUT}.agent.default_agent_loop", _OWN_LOOPS, allowed=["rejuice", "rejuice_agent"]
    ),
    _Restriction(
        f"{_ROLLOUT}.agent.agent_loop_config_path", _OWN_LOOPS, allowed=[str(AGENT_LOOPS)]
    ),
    _Restriction(
        f"{_ROLLOUT}.multi_turn.enable", _OWN_LOOPS, "sample with agent_rollout_mapper", [False]
    ),
    _Restriction(
        f"{_ROLLOUT}.calculate_log_probs",
        "responses are stored with their log-probabilities",
        allowed=[True],
    ),
    *(
        _Restriction(key, _OWN_REWARDS, "add a step that gives the reward")
        for key in ("reward", "reward_model", "custom_reward_function", "sandbox_fusion")
    ),
    _Restriction(
        "algorithm.adv_estimator",
        "the advantage is the recipe's",
        f"set the fields of {GrpoAdvantageMapper.name()}",
    ),
    _Restriction(
        "algorithm.filter_groups.enable",
        "verl's filter of groups does not run beside the recipe",
        "drop groups by a step of the recipe, and set train.refill",
        [False],
    ),
    _Restriction(
        "data.val_batch_size",
        "each validation set is reported as a whole, and it would be validated on in parts",
        allowed=[None],
    ),
    _Restriction(
        f"{_MODEL}.lora.rank",
        "checkpoints would be exported without such an adapter",
        "set train.lora, with train.gpu.strategy fsdp2",
        [0],
    ),
    _Restriction("critic.enable", "GRPO has no critic", allowed=[False, None]),
    _Restriction(
        "trainer.critic_warmup",
        "GRPO has no critic to warm up: steps would update nothing",
        allowed=[0],
    ),
)


def check_user_keys(run: TrainingRun, *, resume: bool) -> None:
    """Check that no key of `train.verl` contradicts the recipe, or what trains it.

    Raises:
        RecipeError: one does.
    """
    fields, rules = _fields(run), list(_rules(run))
    for key, value in run.config.verl_keys.items():
        found = _conflict(key, value, fields, rules)
        if found is not None and not _is_ours(run, resume, key, value):
            raise RecipeError(*found, where="train.verl")


def _conflict(
    key: str, value: Any, fields: Mapping[str, str], rules: Collection[_Restriction]
) -> tuple[str, str] | None:
    """What is wrong with a key, and what would be right."""
    if key in _HARMLESS:
        return None
    for other, field in fields.items():
        if _overlap(key, other):
            return f"'{key}' would contradict {field}", f"give {field} instead"
    for rule in rules:
        if _overlap(key, rule.key) and value not in rule.allowed:
            return f"'{key}' cannot be {value!r}: {rule.reason}", rule.right
    if key == "trainer.logger" and "file" not in (value or ()):
        return f"'{key}' lacks 'file', which writes metrics.jsonl", "give train.loggers instead"
    return None


def _is_ours(run: TrainingRun, resume: bool, key: str, value: Any) -> bool:
    ours = {name.lstrip("+"): each for name, each in own_overrides(run, resume).items()}
    return key in ours and ours[key] == value


def _overlap(key: str, other: str) -> bool:
    """Whether they are one key, or one is above the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def _fields(run: TrainingRun) -> Mapping[str, str]:
    """Keys that fields set, and that are read from these fields, too."""
    step, actor = run.split.rollout.name(), "actor_rollout_ref.actor"
    return {
        "data.train_files": "dataset_path",
        "data.val_files": "train.validation_path",
        "data.train_batch_size": "train.prompts_per_step",
        "data.gen_batch_size": "train.refill",
        "data.max_prompt_length": "train.max_prompt_tokens",
        "data.max_response_length": f"{step}.max_tokens",
        "data.apply_chat_template_kwargs": f"{step}.chat_template_kwargs",
        f"{_ROLLOUT}.prompt_length": "train.max_prompt_tokens",
        f"{_ROLLOUT}.response_length": f"{step}.max_tokens",
        f"{_ROLLOUT}.n": f"{step}.n",
        f"{_ROLLOUT}.temperature": f"{step}.temperature",
        f"{_ROLLOUT}.top_p": f"{step}.top_p",
        f"{_ROLLOUT}.seed": "train.seed",
        # Each prompt of a validation set has its own, which are obeyed instead of verl's.
        **{
            f"{_ROLLOUT}.val_kwargs.{name}": "train.validation"
            for name in ("n", "temperature", "top_p", "do_sample")
        },
        f"{_MODEL}.path": "train.policy",
        **(
            {f"{_MODEL}.enable_gradient_checkpointing": "train.cpu.gradient_checkpointing"}
            if run.config.profile == "cpu"
            else {}
        ),
        f"{_MODEL}.lora_rank": "train.lora",  # The exported policy has the adapter by the field.
        f"{_MODEL}.lora_alpha": "train.lora",
        f"{_MODEL}.target_modules": "train.lora",
        f"{actor}.ppo_mini_batch_size": "train.updates_per_step",
        f"{actor}.grad_clip": "train.max_grad_norm",  # verl reads `optim.clip_grad`.
        "algorithm.norm_adv_by_std_in_grpo": f"{GrpoAdvantageMapper.name()}.normalise",
        "trainer.total_training_steps": "train.steps",
        "trainer.total_epochs": "train.steps",
        "trainer.default_local_dir": "--output",
        "trainer.resume_mode": "--resume",
        "trainer.resume_from_path": "--resume",
    }


def _rules(run: TrainingRun) -> Iterator[_Restriction]:
    yield from _RULES
    yield from _cpu_rules() if run.config.profile == "cpu" else _gpu_rules(run)
    if run.config.replay is not None:
        yield _Restriction(
            "algorithm.rollout_correction.bypass_mode",
            "the ratios of a replay are relative to the stored log-probabilities",
            allowed=[True],
        )


def _cpu_rules() -> Iterator[_Restriction]:
    one = "profile cpu has one engine that trains, and one that samples"
    yield _Restriction("trainer.device", one, "choose profile gpu")
    yield _Restriction("model_engine", one, allowed=["dp"])
    yield _Restriction("actor_rollout_ref.actor.strategy", one)
    yield _Restriction("actor_rollout_ref.ref.strategy", one)
    # With vLLM's own settings for a CPU, see docs/design/vllm-on-cpu.md.
    yield _Restriction(f"{_ROLLOUT}.name", one, allowed=["vllm"])
    for key in (f"{_ROLLOUT}.top_k", f"{_ROLLOUT}.val_kwargs.top_k"):
        yield _Restriction(key, "the sampler of profile cpu has no top_k", allowed=[-1])
    yield _Restriction(
        ADDRESS,
        "profile cpu trains on this machine, on a Ray of its own",
        "leave it out, or choose profile gpu",
        [LOCAL],
    )
    shared = "attention over shared prompts needs it as it is"
    for name in (
        "override_config.attn_implementation",
        "use_remove_padding",
        "use_fused_kernels",
        "external_lib",
    ):
        yield _Restriction(f"{_MODEL}.{name}", shared)


def _gpu_rules(run: TrainingRun) -> Iterator[_Restriction]:
    gpu = run.config.gpu
    fsdp = gpu.strategy == "fsdp2"
    reason = f"train.gpu.strategy is {gpu.strategy}, by which the other keys are chosen"
    right = "set train.gpu.strategy to fsdp2 or megatron"
    yield _Restriction("model_engine", reason, right, ["dp"] if fsdp else ["megatron"])
    for part in ("actor", "ref"):
        key = f"actor_rollout_ref.{part}.strategy"
        yield _Restriction(key, reason, right, ["fsdp", "fsdp2"] if fsdp else ["megatron"])
    yield _Restriction(
        f"{_ROLLOUT}.name",
        f"train.gpu.rollout is {gpu.rollout}",
        "set train.gpu.rollout to vllm or sglang",
    )
    if not run.config.seeds_requests:
        yield _Restriction(
            f"{_ROLLOUT}.full_determinism",
            "verl would give all responses to a prompt one seed, where requests have none",
            "set train.gpu.reproducible, too",
            [False],
        )
