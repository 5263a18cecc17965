"""From a `train:` section to the keys of verl's configuration that differ from its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...operators.cores import usable_cores
from ..policies import policy_path
from ..run import ESTIMATOR, RUN_VARIABLE, TrainingRun
from ..split import advantage_operator

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_SAMPLER = "trainer.v1.sampler.sampler_kwargs"
_AGENT_LOOPS = Path(__file__).parents[1] / "loop" / "agent_loops.yaml"
_TOKENS = 1 << 16  # in one pass on a CPU; a prompt counts for each response, but is computed once
_PLUGIN = "rejuice.trainer.loop.plugin"
_MANAGER = f"+{_ROLLOUT}.agent.agent_loop_manager_class"


def overrides(run: TrainingRun, resume: bool) -> dict[str, Any]:
    """Keys of verl and their values; a key that verl's defaults lack begins with `+`.

    The user's keys in `train.verl` come last and win.
    """
    hardware = _cpu(run) if run.config.profile == "cpu" else _gpu(run)
    return {
        **_data(run),
        **_grpo(run),
        **_rollout(run),
        **_trainer(run, resume),
        **hardware,
        **(_replay(hardware[_MANAGER]) if run.config.replay else {}),
        **run.config.verl,
    }


def _data(run: TrainingRun) -> dict[str, Any]:
    config, prompts = run.config, run.folder / "prompts"
    validation = "validation" if config.validation_path else "train"
    return {
        "data.train_files": str(prompts / "train.parquet"),
        "data.val_files": str(prompts / f"{validation}.parquet"),
        "data.train_batch_size": config.prompts_per_step,
        "data.max_prompt_length": config.max_prompt_tokens,
        "data.max_response_length": run.split.rollout.max_tokens,
        "data.filter_overlong_prompts": False,  # Done earlier, with decisions.
        "data.shuffle": True,
        "data.seed": config.seed,
        "data.dataloader_num_workers": 0,
        # One by one if a step may request some more.
        "data.gen_batch_size": 1 if config.refill else None,
        **{
            f"+data.apply_chat_template_kwargs.{key}": value
            for key, value in run.split.rollout.chat_template_kwargs.items()
        },
    }


def _grpo(run: TrainingRun) -> dict[str, Any]:
    config, advantage = run.config, advantage_operator(run.split.post_rollout_steps)
    return {
        "algorithm.adv_estimator": ESTIMATOR,
        "algorithm.norm_adv_by_std_in_grpo": advantage.normalise == "std",
        "algorithm.use_kl_in_reward": False,
        f"{_ACTOR}.optim.lr": config.learning_rate,
        f"{_ACTOR}.optim.lr_warmup_steps": config.warmup_steps or -1,
        f"{_ACTOR}.optim.weight_decay": config.weight_decay,
        f"{_ACTOR}.grad_clip": config.max_grad_norm,
        f"{_ACTOR}.ppo_mini_batch_size": config.prompts_per_step // config.updates_per_step,
        f"{_ACTOR}.ppo_epochs": 1,
        f"{_ACTOR}.clip_ratio": config.clip_ratio_low,
        f"{_ACTOR}.clip_ratio_low": config.clip_ratio_low,
        f"{_ACTOR}.clip_ratio_high": config.clip_ratio_high,
        f"{_ACTOR}.loss_agg_mode": config.loss_agg_mode,
        # seq-mean-token-sum-norm divides by it; by default it divides by the longest response of
        # a forward pass.
        f"{_ACTOR}.loss_scale_factor": run.split.rollout.max_tokens,
        f"{_ACTOR}.use_kl_loss": config.kl_coef > 0,
        f"{_ACTOR}.kl_loss_coef": config.kl_coef,
        f"{_ACTOR}.kl_loss_type": "low_var_kl",
        f"{_ACTOR}.entropy_coeff": config.entropy_coef,
        # Otherwise the updates of a step take the prompts in the order of the dataset, and the last
        # update takes the remainder.
        f"{_ACTOR}.shuffle": config.updates_per_step > 1,
        f"{_ACTOR}.data_loader_seed": config.seed,
    }


def _rollout(run: TrainingRun) -> dict[str, Any]:
    rollout = run.split.rollout
    return {
        "actor_rollout_ref.model.path": policy_path(run.policy),
        f"{_ROLLOUT}.n": rollout.n,
        f"{_ROLLOUT}.temperature": rollout.temperature,
        f"{_ROLLOUT}.top_p": rollout.top_p,
        f"{_ROLLOUT}.prompt_length": run.config.max_prompt_tokens,
        f"{_ROLLOUT}.response_length": rollout.max_tokens,
        f"{_ROLLOUT}.seed": run.config.seed,
        f"{_ROLLOUT}.calculate_log_probs": True,
        f"{_ROLLOUT}.val_kwargs.n": run.config.validation_n,
        f"{_ROLLOUT}.val_kwargs.do_sample": True,
        f"{_ROLLOUT}.val_kwargs.temperature": rollout.temperature,
        f"{_ROLLOUT}.val_kwargs.top_p": rollout.top_p,
    }


def _trainer(run: TrainingRun, resume: bool) -> dict[str, Any]:
    config, validates = run.config, run.config.validation_path is not None
    return {
        "trainer.project_name": "rejuice",
        "trainer.experiment_name": run.folder.name,
        "trainer.total_training_steps": config.steps,
        "trainer.total_epochs": 1_000_000,  # The number of steps ends the run.
        "trainer.test_freq": (config.validate_every or config.steps) if validates else -1,
        "trainer.val_before_train": validates,
        "trainer.save_freq": config.save_every or -1,
        "trainer.max_actor_ckpt_to_keep": config.keep_checkpoints,
        "trainer.default_local_dir": str(run.folder / "checkpoints"),
        "trainer.resume_mode": "auto" if resume else "disable",
        "trainer.logger": ["console", "file", *config.loggers],
        "trainer.v1.trainer_mode": "sync",
        "trainer.v1.sampler.custom_sampler.path": "pkg://rejuice.trainer.loop.buffer",
        "trainer.v1.sampler.custom_sampler.name": "RecipeBuffer",
        f"+{_SAMPLER}.run": str(run.folder),
        # By default Hydra writes to a folder `outputs` in the current directory.
        "hydra.run.dir": str(run.folder),
        "hydra.output_subdir": "verl",
        "hydra/job_logging": "stdout",
    }


def _replay(live: str) -> dict[str, Any]:
    """Stored responses for training, live ones for validation.

    The stored log-probabilities are those of the old policy.
    """
    return {
        _MANAGER: "rejuice.trainer.loop.replay.ReplayManager",
        f"+{_SAMPLER}.live": live,
        "algorithm.rollout_correction.bypass_mode": True,
        f"{_ACTOR}.calculate_entropy": True,
    }


def _cpu(run: TrainingRun) -> dict[str, Any]:
    """One training process and the embedded sampler, on the cores of this machine."""
    config, rollout = run.config, run.split.rollout
    tokens = max(_TOKENS, config.max_prompt_tokens + rollout.max_tokens)
    return {
        "trainer.device": "cpu",
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 1,
        # Slots, not devices: verl requests more cores of Ray than a laptop has.
        "ray_kwargs.ray_init.num_cpus": max(32, usable_cores()),
        "+ray_kwargs.ray_init.num_gpus": 1,
        "+ray_kwargs.ray_init.include_dashboard": False,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "reward.num_workers": 1,
        f"{_ROLLOUT}.agent.num_workers": 1,
        f"{_ROLLOUT}.name": "rejuice",
        _MANAGER: "rejuice.trainer.cpu.rollout.GroupManager",
        **{
            f"+{_ROLLOUT}.engine_kwargs.rejuice.{key}": value
            for key, value in rollout.chat_template_kwargs.items()
        },
        f"{_ROLLOUT}.tensor_model_parallel_size": 1,
        f"{_ROLLOUT}.free_cache_engine": False,
        f"{_ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": tokens,
        "actor_rollout_ref.model.external_lib": "rejuice.trainer.cpu.workers",
        "+actor_rollout_ref.model.override_config.attn_implementation": "rejuice_training",
        "actor_rollout_ref.model.use_remove_padding": True,
        # Without it verl computes the log-probability of each token by a separate call.
        "actor_rollout_ref.model.use_fused_kernels": True,
        "actor_rollout_ref.model.fused_kernel_options.impl_backend": "torch",
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        # The sampler computes in float32, as the trainer does: its log-probabilities equal the old
        # ones to 1e-5, and need not be computed again. The update still reports the entropy.
        # This holds at temperature 1 only: verl divides logits by the temperature, the sampler's
        # log-probabilities are those of the policy itself.
        "algorithm.rollout_correction.bypass_mode": rollout.temperature == 1.0,
        f"{_ACTOR}.calculate_entropy": True,
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": tokens,
        f"{_ACTOR}.use_torch_compile": False,
        f"{_ACTOR}.fsdp_config.use_torch_compile": False,
        f"{_ACTOR}.fsdp_config.model_dtype": "fp32",
        f"+{_ACTOR}.fsdp_config.mixed_precision.param_dtype": "fp32",
        "actor_rollout_ref.ref.strategy": "fsdp2",
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": tokens,
        "actor_rollout_ref.ref.use_torch_compile": False,
        "actor_rollout_ref.ref.fsdp_config.model_dtype": "fp32",
        "+actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype": "fp32",
    }


def _gpu(run: TrainingRun) -> dict[str, Any]:
    """verl's own vLLM rollouts and FSDP2, in bfloat16."""
    config, gpu, max_tokens = run.config, run.config.gpu, run.split.rollout.max_tokens
    # On a Ray cluster that is running already, processes do not inherit our variables.
    variables = {**environment(run), RUN_VARIABLE: str(run.folder)}
    return {
        **{f"+ray_kwargs.ray_init.runtime_env.env_vars.{k}": v for k, v in variables.items()},
        "trainer.nnodes": gpu.nodes,
        "trainer.n_gpus_per_node": gpu.gpus,
        f"{_ROLLOUT}.name": "vllm",
        _MANAGER: "verl.trainer.ppo.v1.agent_loop_tq.AgentLoopManagerTQ",
        f"{_ROLLOUT}.agent.default_agent_loop": "rejuice",
        f"{_ROLLOUT}.agent.agent_loop_config_path": str(_AGENT_LOOPS),
        f"{_ROLLOUT}.tensor_model_parallel_size": gpu.tensor_parallel,
        f"{_ROLLOUT}.gpu_memory_utilization": gpu.memory,
        # By default vLLM makes room for the longest context of the policy.
        f"{_ROLLOUT}.max_model_len": config.max_prompt_tokens + max_tokens,
        f"{_ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": 2 * gpu.tokens_per_gpu,
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": gpu.gradient_checkpointing,
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": gpu.tokens_per_gpu,
        f"{_ACTOR}.fsdp_config.param_offload": gpu.offload,
        f"{_ACTOR}.fsdp_config.optimizer_offload": gpu.offload,
        "actor_rollout_ref.ref.strategy": "fsdp2",
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 2 * gpu.tokens_per_gpu,
        "actor_rollout_ref.ref.fsdp_config.param_offload": gpu.offload,
    }


def environment(run: TrainingRun) -> Mapping[str, str]:
    """Environment variables that the processes of the run need."""
    common = {
        "VERL_USE_EXTERNAL_MODULES": _PLUGIN,
        "VERL_FILE_LOGGER_PATH": str(run.folder / "metrics.jsonl"),
        "TENSORBOARD_DIR": str(run.folder / "tensorboard"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    if run.config.profile == "gpu":
        # verl's task runner requests no GPU, but an embedder in it may use one.
        return {**common, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return {
        **common,
        "VERL_USE_EXTERNAL_MODULES": f"{_PLUGIN},rejuice.trainer.cpu.platform",
        "VERL_PLATFORM": "cpu",
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(usable_cores()),
        # Keep freed memory: each step needs the same large blocks again.
        "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    }
