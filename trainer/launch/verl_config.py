"""verl's configuration of a run, from its `train:` section.

`overrides` has the keys that differ from verl's defaults; RUN/verl.yaml, which Hydra reads on top
of these defaults, has them for the run.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from ...operators.errors import RecipeError, first_line, suggest
from ...operators.json_text import parse_json
from ...operators.sampling.engines import policy_path
from ...operators.sampling.processes import DEFAULT_ENVIRONMENT
from ...operators.sampling.vllm_engine import without_flashinfer
from ...operators.workers import usable_cores
from ...pipelines.ray_session import AUTO, LOCAL
from ...pipelines.recipe.train import TURN_MEAN, Cpu, Gpu, Loss
from ..cpu.fork_server import PYTHON
from ..run import AHEAD_VARIABLE, ESTIMATOR, GEO_MEAN, RUN_VARIABLE, TrainingRun
from ..split import loss_agg_mode
from . import checkpoints
from .failure import last_error

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_SAMPLER = "trainer.v1.sampler.sampler_kwargs"
AGENT_LOOPS = Path(__file__).parents[1] / "verl" / "agent_loops.yaml"
"""Our agent loops, as verl finds them."""
SERVERS_MANAGER = "rejuice.trainer.verl.watched_manager.WatchedManager"
"""Samples from verl's own servers."""
_PLUGIN = "rejuice.trainer.verl.plugin"
_WORKERS = "rejuice.trainer.verl.workers"
LIBRARY = "actor_rollout_ref.model.external_lib"  # what workers import before they load a model
_MANAGER = f"+{_ROLLOUT}.agent.agent_loop_manager_class"


def overrides(run: TrainingRun, resume: bool) -> dict[str, Any]:
    """Keys of verl and their values; a key that verl's defaults lack begins with `+`.

    The user's keys in `train.verl` come last and win; `check_user_keys` refuses those that
    `own_overrides` has, too. Only a library of the user's own is imported after ours.
    """
    ours, mine = {**defaults(run), **own_overrides(run, resume)}, run.config.verl.get(LIBRARY)
    libraries = [ours[LIBRARY], mine] if mine else ours[LIBRARY]
    return {**ours, **run.config.verl, LIBRARY: libraries}


def defaults(run: TrainingRun) -> dict[str, Any]:
    """Keys that say nothing about the recipe: the user may set them otherwise."""
    found = {
        "data.shuffle": True,
        "data.filter_overlong_prompts": False,  # Done earlier, with decisions.
        "data.dataloader_num_workers": 0,
        f"{_ACTOR}.ppo_epochs": 1,
        # seq-mean-token-sum-norm divides by it; by default it divides by the longest response of
        # a forward pass.
        f"{_ACTOR}.loss_scale_factor": run.split.rollout.max_tokens,
        f"{_ACTOR}.kl_loss_type": "low_var_kl",
        # Otherwise the updates of a step take the prompts in the order of the dataset, and the last
        # update takes the remainder.
        f"{_ACTOR}.shuffle": run.config.updates_per_step > 1,
        "trainer.project_name": "rejuice",
        "trainer.experiment_name": run.folder.name,
        # By default Hydra writes to a folder `outputs` in the current directory.
        "hydra.run.dir": str(run.folder),
        "hydra.output_subdir": "verl",
        "hydra/job_logging": "stdout",
        **(_cpu_defaults(run) if run.config.profile == "cpu" else _gpu_defaults(run)),
    }
    if run.config.samples_ahead:
        found["algorithm.rollout_correction.bypass_mode"] = True
    # Recipes without `train.loss` may set verl's other losses by its keys.
    return {**found, **(_loss(run) if run.config.loss == Loss() else {})}


def own_overrides(run: TrainingRun, resume: bool) -> dict[str, Any]:
    """Keys that follow from the recipe, or that training by it needs."""
    hardware = _cpu(run) if run.config.profile == "cpu" else _gpu(run)
    return {
        **_data(run),
        **_grpo(run),
        **_rollout(run),
        **_lora(run),
        **_trainer(run, resume),
        **hardware,
        **({} if run.config.loss == Loss() else _loss(run)),
        **(_replay(hardware[_MANAGER]) if run.config.replay else {}),
    }


def _data(run: TrainingRun) -> dict[str, Any]:
    config, prompts = run.config, run.folder / "prompts"
    # verl needs a file also where nothing is validated.
    held_out = [str(prompts / f"{each.split}.parquet") for each in run.held_out]
    held_out = held_out or [str(prompts / "train.parquet")]
    return {
        "data.train_files": str(prompts / "train.parquet"),
        "data.val_files": held_out[0] if len(held_out) == 1 else held_out,
        "data.train_batch_size": config.prompts_per_step,
        "data.max_prompt_length": config.max_prompt_tokens,
        "data.max_response_length": run.split.rollout.max_tokens,
        "data.val_batch_size": None,  # Each validation set is reported as a whole.
        "data.seed": config.seed,
        # One by one if a step may request some more.
        "data.gen_batch_size": 1 if config.refill else None,
        **{
            f"+data.apply_chat_template_kwargs.{key}": value
            for key, value in run.split.rollout.chat_template_kwargs.items()
        },
        # The recipe chooses among all prompts.
        **(
            {
                "data.train_max_samples": -1,
                "data.filter_overlong_prompts": False,
                "data.custom_cls.path": None,
            }
            if run.split.choosing
            else {}
        ),
    }


def _loss(run: TrainingRun) -> dict[str, Any]:
    losses, policy = loss_agg_mode(run.split, run.config), run.config.loss.policy
    clip_low, clip_high = run.config.clip
    return {
        f"{_ACTOR}.policy_loss.loss_mode": GEO_MEAN if policy == "geo_mean" else policy,
        f"{_ACTOR}.clip_ratio": clip_low,
        f"{_ACTOR}.clip_ratio_low": clip_low,
        f"{_ACTOR}.clip_ratio_high": clip_high,
        # verl does not know ours, whose loss takes the place of its own (see
        # `advantage.trajectory_loss`). It still aggregates the entropy of the old policy, for the
        # loggers.
        f"{_ACTOR}.loss_agg_mode": "token-mean" if losses == TURN_MEAN else losses,
    }


def _grpo(run: TrainingRun) -> dict[str, Any]:
    config = run.config
    return {
        "algorithm.adv_estimator": ESTIMATOR,
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": False,
        "algorithm.norm_adv_by_std_in_grpo": True,  # Which our estimator does not read.
        "critic.enable": False,
        "trainer.critic_warmup": 0,
        f"{_ACTOR}.optim.lr": config.learning_rate,
        f"{_ACTOR}.optim.lr_warmup_steps": config.warmup_steps or -1,
        f"{_ACTOR}.optim.weight_decay": config.weight_decay,
        f"{_ACTOR}.optim.clip_grad": config.max_grad_norm,
        f"{_ACTOR}.ppo_mini_batch_size": config.prompts_per_step // config.updates_per_step,
        f"{_ACTOR}.use_kl_loss": config.kl_coef > 0,
        f"{_ACTOR}.kl_loss_coef": config.kl_coef,
        f"{_ACTOR}.entropy_coeff": config.entropy_coef,
        f"{_ACTOR}.data_loader_seed": config.seed,
    }


def _rollout(run: TrainingRun) -> dict[str, Any]:
    rollout = run.split.rollout
    # Each prompt of a validation set has its own settings, which are obeyed instead of these.
    validation = run.held_out[0].settings if run.held_out else rollout
    loop = "rejuice" if run.split.agents is None else "rejuice_agent"
    return {
        "actor_rollout_ref.model.path": policy_path(run.policy),
        f"{_ROLLOUT}.n": rollout.n,
        f"{_ROLLOUT}.temperature": rollout.temperature,
        f"{_ROLLOUT}.top_p": rollout.top_p,
        f"{_ROLLOUT}.prompt_length": run.config.max_prompt_tokens,
        f"{_ROLLOUT}.response_length": rollout.max_tokens,
        f"{_ROLLOUT}.seed": run.config.seed,
        f"{_ROLLOUT}.calculate_log_probs": True,
        f"{_ROLLOUT}.multi_turn.enable": False,
        f"{_ROLLOUT}.agent.default_agent_loop": loop,
        f"{_ROLLOUT}.agent.agent_loop_config_path": str(AGENT_LOOPS),
        f"{_ROLLOUT}.val_kwargs.n": run.held_out[0].settings.n if run.held_out else 1,
        f"{_ROLLOUT}.val_kwargs.do_sample": True,
        f"{_ROLLOUT}.val_kwargs.temperature": validation.temperature,
        f"{_ROLLOUT}.val_kwargs.top_p": validation.top_p,
    }


def _lora(run: TrainingRun) -> dict[str, Any]:
    """An adapter, if one is trained; verl then takes the policy without it as the reference."""
    lora = run.config.lora
    if lora is None:
        return {}
    chosen = lora.target_modules
    return {
        "actor_rollout_ref.model.lora_rank": lora.rank,
        "actor_rollout_ref.model.lora_alpha": lora.alpha,
        "actor_rollout_ref.model.target_modules": chosen
        if isinstance(chosen, str)
        else list(chosen),
        # vLLM loads the policy itself, and after each step the adapter alone.
        f"{_ROLLOUT}.load_format": "safetensors",
        f"{_ACTOR}.fsdp_config.seed": run.config.seed,
        # The rest of the policy is where it came from.
        f"+{_ACTOR}.checkpoint.save_lora_only": True,
    }


def _trainer(run: TrainingRun, resume: bool) -> dict[str, Any]:
    config, validates = run.config, bool(run.held_out)
    every = config.validate_every or config.steps
    begun = (checkpoints.last(run.folder) if resume else None) or 0
    return {
        "trainer.use_v1": True,
        "actor_rollout_ref.hybrid_engine": True,
        "trainer.total_training_steps": config.steps,
        "trainer.total_epochs": 1_000_000,  # The number of steps ends the run.
        "trainer.test_freq": every if validates else -1,
        # After a resume only where it is due: verl saves a step before it validates it.
        "trainer.val_before_train": validates and begun % every == 0,
        "trainer.save_freq": 1 if config.save_every else -1,  # We are asked at each step.
        "trainer.default_local_dir": str(run.folder / "checkpoints"),
        "trainer.resume_mode": "auto" if resume else "disable",
        "trainer.resume_from_path": None,
        "trainer.max_actor_ckpt_to_keep": None,  # We remove them.
        "trainer.logger": ["console", "file", *config.loggers],
        **_mode(run, begun),
        "trainer.v1.sampler.custom_sampler.path": "pkg://rejuice.trainer.verl.training",
        "trainer.v1.sampler.custom_sampler.name": "RecipeBuffer",
        f"+{_SAMPLER}.run": str(run.folder),
        f"+{_SAMPLER}.seeds_requests": config.seeds_requests,
    }


def _mode(run: TrainingRun, begun: int) -> dict[str, Any]:
    """When responses are sampled, relative to the updates."""
    config = run.config
    if not config.samples_ahead:
        return {"trainer.v1.trainer_mode": "sync"}
    # On a CPU there is one sampler, beside which verl's trainer for one set of hardware goes on.
    mode = "colocate_async" if config.profile == "cpu" else config.mode
    found: dict[str, Any] = {
        "trainer.v1.trainer_mode": mode,
        f"trainer.v1.{mode}.num_warmup_batches": min(config.max_age, config.steps - begun),
        # What is too old is dropped by a step of the recipe.
        "trainer.v1.sampler.max_off_policy_threshold": None,
    }
    if mode != "separate_async":
        return found
    return found | {
        # Of each step of the recipe there is one, and its updates are split by ourselves.
        f"trainer.v1.{mode}.parameter_sync_step": 1,
        f"{_ACTOR}.ppo_mini_batch_size": config.prompts_per_step,
        f"{_ROLLOUT}.nnodes": config.gpu.nodes,
        f"{_ROLLOUT}.n_gpus_per_node": config.gpu.rollout_gpus,
        f"{_ROLLOUT}.checkpoint_engine.backend": "nccl",
    }


def _replay(live: str) -> dict[str, Any]:
    """The stored log-probabilities are those of the old policy."""
    return {
        _MANAGER: "rejuice.trainer.verl.replay.ReplayManager",
        f"+{_SAMPLER}.live": live,
        "algorithm.rollout_correction.bypass_mode": True,
        f"{_ACTOR}.calculate_entropy": True,
    }


def _cpu(run: TrainingRun) -> dict[str, Any]:
    """One training process and the embedded sampler, on the cores of this machine."""
    config, rollout = run.config, run.split.rollout
    longest = config.max_prompt_tokens + rollout.max_tokens
    tokens = max(longest, config.cpu.tokens or tokens_per_pass(run.policy, config.cpu))
    manager = "GroupManager" if run.split.agents is None else "AgentManager"
    # With vLLM's own settings for a CPU, see docs/design/vllm-on-cpu.md.
    of_vllm = config.verl_keys.get(f"{_ROLLOUT}.name") == "vllm"
    return {
        f"+{ADDRESS}": LOCAL,
        "trainer.device": "cpu",
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 1,
        # Slots, not devices: verl requests more cores of Ray than a laptop has.
        "ray_kwargs.ray_init.num_cpus": max(32, os.cpu_count() or 1),
        "+ray_kwargs.ray_init.num_gpus": 1,
        "+ray_kwargs.ray_init.include_dashboard": False,
        # Workers are forked by the server that `rejuice train` has started, if it has.
        "+ray_kwargs.ray_init.runtime_env.py_executable": shlex.join(PYTHON),
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        f"{_ROLLOUT}.name": "vllm" if of_vllm else "rejuice",
        _MANAGER: SERVERS_MANAGER if of_vllm else f"rejuice.trainer.cpu.rollout.{manager}",
        f"{_ROLLOUT}.top_k": -1,
        f"{_ROLLOUT}.val_kwargs.top_k": -1,
        **{
            f"+{_ROLLOUT}.engine_kwargs.rejuice.{key}": value
            for key, value in rollout.chat_template_kwargs.items()
        },
        f"{_ROLLOUT}.tensor_model_parallel_size": 1,
        f"{_ROLLOUT}.free_cache_engine": False,
        f"{_ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": tokens,
        LIBRARY: "rejuice.trainer.cpu.workers",
        "+actor_rollout_ref.model.override_config.attn_implementation": "rejuice_training",
        "actor_rollout_ref.model.use_remove_padding": True,
        # Without it verl computes the log-probability of each token by a separate call.
        "actor_rollout_ref.model.use_fused_kernels": True,
        "actor_rollout_ref.model.fused_kernel_options.impl_backend": "torch",
        "actor_rollout_ref.model.enable_gradient_checkpointing": config.cpu.gradient_checkpointing,
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


def _cpu_defaults(run: TrainingRun) -> dict[str, Any]:
    return {
        "reward.num_workers": 1,
        f"{_ROLLOUT}.agent.num_workers": 1,
        # The sampler computes in float32, as the trainer does: its log-probabilities equal the old
        # ones to 1e-5, and need not be computed again. The update still reports the entropy.
        # This holds at temperature 1 only: verl divides logits by the temperature, the sampler's
        # log-probabilities are those of the policy itself.
        "algorithm.rollout_correction.bypass_mode": run.split.rollout.temperature == 1.0,
        f"{_ACTOR}.calculate_entropy": True,
    }


def _gpu(run: TrainingRun) -> dict[str, Any]:
    """verl's own rollouts and engines, in bfloat16."""
    config, gpu = run.config, run.config.gpu
    # On a Ray cluster that is running already, processes do not inherit our variables.
    variables = {**environment(run), RUN_VARIABLE: str(run.folder)}
    return {
        **{f"+ray_kwargs.ray_init.runtime_env.env_vars.{k}": v for k, v in variables.items()},
        "trainer.nnodes": gpu.nodes,
        "trainer.n_gpus_per_node": gpu.gpus,
        f"{_ROLLOUT}.name": gpu.rollout,
        _MANAGER: SERVERS_MANAGER,
        f"{_ROLLOUT}.tensor_model_parallel_size": gpu.tensor_parallel,
        # verl would give all responses to a prompt one seed, where requests have none.
        **({} if config.seeds_requests else {f"{_ROLLOUT}.full_determinism": False}),
        **(
            {f"{_ACTOR}.strategy": "fsdp2", "actor_rollout_ref.ref.strategy": "fsdp2"}
            if gpu.strategy == "fsdp2"
            else {"model_engine": "megatron"}  # Which has the strategy of actor and reference.
        ),
    }


def _gpu_defaults(run: TrainingRun) -> dict[str, Any]:
    """What a run needs of memory, and how fast it is."""
    gpu = run.config.gpu
    # verl always leaves SGLang one token less than fits.
    spare = 1 if gpu.rollout == "sglang" else 0
    return {
        f"+{ADDRESS}": default_ray_address(run),
        f"{_ROLLOUT}.gpu_memory_utilization": gpu.memory,
        # By default the engine makes room for the longest context of the policy.
        f"{_ROLLOUT}.max_model_len": (
            run.config.max_prompt_tokens + run.split.rollout.max_tokens + spare
        ),
        f"{_ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": 2 * gpu.tokens_per_gpu,
        "actor_rollout_ref.model.use_remove_padding": True,
        LIBRARY: _WORKERS,
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": gpu.tokens_per_gpu,
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 2 * gpu.tokens_per_gpu,
        **(_megatron(gpu) if gpu.strategy == "megatron" else _fsdp2(gpu)),
    }


def attention_of(gpu: Gpu) -> str:
    """verl itself does not choose by what is there."""
    is_there = find_spec("flash_attn") is not None
    return gpu.attention or ("flash_attention_2" if is_there else "sdpa")


def _fsdp2(gpu: Gpu) -> dict[str, Any]:
    return {
        "+actor_rollout_ref.model.override_config.attn_implementation": attention_of(gpu),
        "actor_rollout_ref.model.enable_gradient_checkpointing": gpu.gradient_checkpointing,
        f"{_ACTOR}.fsdp_config.param_offload": gpu.offload,
        f"{_ACTOR}.fsdp_config.optimizer_offload": gpu.offload,
        "actor_rollout_ref.ref.fsdp_config.param_offload": gpu.offload,
    }


def _megatron(gpu: Gpu) -> dict[str, Any]:
    """Megatron's settings; verl's defaults give the reference those of the actor."""
    sizes = gpu.megatron.model_dump()
    # What verl's own `enable_gradient_checkpointing` is to FSDP.
    recompute = {"granularity": "full", "method": "uniform", "num_layers": 1}
    return {
        **{f"{_ACTOR}.megatron.{name}": size for name, size in sizes.items()},
        f"{_ACTOR}.megatron.param_offload": gpu.offload,
        f"{_ACTOR}.megatron.optimizer_offload": gpu.offload,
        **{
            f"{_ACTOR}.megatron.override_transformer_config.recompute_{name}": value
            for name, value in recompute.items()
            if gpu.gradient_checkpointing
        },
    }


def environment(run: TrainingRun) -> Mapping[str, str]:
    common = {
        "VERL_USE_EXTERNAL_MODULES": _PLUGIN,
        "VERL_FILE_LOGGER_PATH": str(run.folder / "metrics.jsonl"),
        "TENSORBOARD_DIR": str(run.folder / "tensorboard"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    if run.config.profile == "gpu":
        # verl's task runner requests no GPU, but an embedder in it may use one.
        return {**common, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", **without_flashinfer()}
    return {
        **common,
        "VERL_USE_EXTERNAL_MODULES": f"{_PLUGIN},rejuice.trainer.cpu.platform",
        "VERL_PLATFORM": "cpu",
        # Ray would start workers that nobody uses: a run's have a runtime environment.
        "RAY_prestart_worker_first_driver": "0",
        # The sampler's processes can be forked only where they differ in nothing that a library
        # reads when it is loaded.
        **DEFAULT_ENVIRONMENT,
        "OMP_NUM_THREADS": str(usable_cores()),
        **({AHEAD_VARIABLE: "1"} if run.config.samples_ahead else {}),
    }


# --- Pass size ------------------------------------------------------------------------
# How many tokens a forward and backward pass on a CPU may have, so that memory suffices.
#
# A pass stores activations for its backward pass. Logits count little: verl computes them, and what
# follows from them, for 512 tokens at a time, whatever the vocabulary.

_BYTES = 4 << 30
_HEAP = 2
"""The heap takes about so many bytes for each that is stored: tensors of several sizes come and go.
With its own mapping for each tensor it would be 1, and an update would take a quarter longer."""
_MOST = 1 << 16  # More make no pass faster.
_UNKNOWN_SHAPE = 1 << 10  # of a policy that is not on this machine yet
_FLOAT32 = 4


def tokens_per_pass(policy: str, cpu: Cpu) -> int:
    """Tokens whose activations take about 4 GiB."""
    shape = _config(policy_path(policy))
    if shape is None:
        return _UNKNOWN_SHAPE
    layer = _bytes_of_layer(shape)
    layers = int(shape["num_hidden_layers"])
    stored = layer * layers
    if cpu.gradient_checkpointing:
        # The inputs of all layers, and the activations of the one that is computed again.
        stored = _FLOAT32 * int(shape["hidden_size"]) * layers + layer
    return min(_MOST, _BYTES // (_HEAP * stored))


def _bytes_of_layer(shape: Mapping[str, Any]) -> int:
    """What a layer stores for each token.

    Of the MLP the gate before and after its activation, the other projection, and their product;
    around it and around attention the inputs of norms and projections, queries, keys, values.
    """
    hidden = int(shape["hidden_size"])
    inner = int(shape.get("intermediate_size") or 4 * hidden)
    return _FLOAT32 * (4 * inner + 16 * hidden)


def _config(path: str) -> Mapping[str, Any] | None:
    """A model's config.json, from its folder or the cache of the hub; None if there is none."""
    file: Any = Path(path) / "config.json"
    if not Path(path).is_dir():
        from huggingface_hub import try_to_load_from_cache

        try:
            file = try_to_load_from_cache(path, "config.json")
        except ValueError:  # It is no name of the hub either.
            return None
        if not isinstance(file, str):
            return None
    try:
        found: Mapping[str, Any] = parse_json(Path(file).read_text("utf-8"))
    except FileNotFoundError:
        return None
    shape = found.get("text_config") or found
    return shape if {"hidden_size", "num_hidden_layers"} <= shape.keys() else None


# --- Ray address ----------------------------------------------------------------------
# Which Ray a run trains on: one of its own on this machine, or a cluster that it joins.

ADDRESS = "ray_kwargs.ray_init.address"
"""The key of verl that goes to `ray.init`. Without one, Ray joins any cluster that was started on
this machine, or fails where that has ended."""


def ray_address(run: TrainingRun) -> str:
    """`local`, `auto`, or HOST:PORT of a cluster; the user's own in `train.verl` wins."""
    # Without a value, Ray looks for a cluster as it does for `auto`.
    return str(run.config.verl_keys.get(ADDRESS, default_ray_address(run)) or AUTO)


def default_ray_address(run: TrainingRun) -> str:
    """Profile cpu and one node have a Ray of their own, whatever runs beside it.

    With profile gpu the environment variable RAY_ADDRESS names a cluster.
    """
    if run.config.profile == "cpu":
        return LOCAL
    named = (os.environ.get("RAY_ADDRESS") or LOCAL) != LOCAL
    return AUTO if run.config.gpu.nodes > 1 or named else LOCAL


# --- RUN/verl.yaml --------------------------------------------------------------------

NAME = "verl"
"""Name of the configuration, for `--config-name`; its file is `verl.yaml`."""
_DEFAULTS = "ppo_trainer"  # the configuration of verl that ours extends
_SEARCH = "hydra.searchpath"
_VERLS = "pkg://verl.trainer.config"
_ENGINE = "model_engine"  # the group by which Megatron takes the place of FSDP


def config_yaml(values: Mapping[str, Any]) -> str:
    """The text of `verl.yaml`; of keys that are there twice, the last one wins."""
    groups, document = list[dict[str, str]](), dict[str, Any]()
    for key, value in values.items():
        if _selects_group(key, value):
            groups.append({f"override {key}": value})
        else:
            _put(document, key.lstrip("+"), value)
    _put(document, _SEARCH, [_VERLS, *values.get(_SEARCH, [])])
    # A learning rate of 1e-6, which PyYAML has read as a text, is written without quotes: it is a
    # number to YAML 1.2 and to Hydra.
    settings = {"defaults": [_DEFAULTS, *groups, "_self_"], **document}
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a key with dots in a tree; a mapping is merged with what is there."""
    name, _, rest = key.partition(".")
    if not rest and not isinstance(value, Mapping):
        tree[name] = value
        return
    below = tree.get(name)
    if not isinstance(below, dict):
        below = tree[name] = {}
    for each, own in {rest: value}.items() if rest else value.items():
        _put(below, str(each), own)


def write_config(folder: Path, values: Mapping[str, Any]) -> None:
    (folder / f"{NAME}.yaml").write_text(config_yaml(values), "utf-8")


def arguments(folder: Path) -> list[str]:
    return ["--config-dir", str(folder), "--config-name", NAME]


def check_keys(values: Mapping[str, Any]) -> None:
    """Check that verl knows every key, lacks those with a `+`, and can read interpolations.

    Hydra accepts any key from a file. Where a key selects another file of a group than verl's own,
    the keys are that file's, and none is checked.
    """
    if "${" in (text := config_yaml(values)):
        from omegaconf import OmegaConf, errors

        try:
            OmegaConf.create(text)
        except errors.OmegaConfBaseException as error:
            raise RecipeError(f"verl's key '{error.full_key}': {first_line(error)}") from None
    engine = values.get(_ENGINE)
    groups = {key for key, value in values.items() if _selects_group(key, value)}
    if any(not key.startswith("hydra/") for key in groups - {_ENGINE}):
        return
    listed = {_ENGINE: engine, **dict(_keys(_listing(engine)))}
    known, of_engine = {*listed}, f" with model_engine {engine}" if engine else ""
    given = [key for key, value in _keys(values) if not (isinstance(value, Mapping) and value)]
    # Those that are added come first: others may be beneath them.
    for key in sorted(given, key=lambda key: not key.startswith("+")):
        name = key.lstrip("+")
        if name == "hydra" or name.startswith(("hydra.", "hydra/")):
            continue  # Hydra's own settings, which it checks itself.
        if name.startswith("~"):
            raise RecipeError(f"verl's key '{name[1:]}' cannot be removed", "set it to null")
        if key.startswith("+"):
            # As in Hydra, one that is null can be added.
            if listed.get(name) is not None and not key.startswith("++"):
                raise RecipeError(f"verl has the key '{name}' already", "write it without +")
            known.add(name)
        elif name not in known:
            right = suggest(name, known) or f"to add it all the same write +{name}"
            raise RecipeError(f"verl has no key '{name}'{of_engine}", right)


def _listing(engine: str | None) -> Any:
    """verl's defaults, as it lists them in one file for each engine."""
    # private: verl==0.9.1, tests/trainer/launch/test_verl_config.py::test_the_keys_that_verl_lists_are_those_that_hydra_composes
    name = "ppo_megatron_trainer" if engine == "megatron" else _DEFAULTS
    text = (_verls_folder() / f"_generated_{name}.yaml").read_text("utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _selects_group(key: str, value: Any) -> bool:
    """Whether a key selects one of the files of a group, which stand in the list of defaults."""
    is_group = "/" in key or "@" in key or (_verls_folder() / key).is_dir()
    return is_group and isinstance(value, str)


def _verls_folder() -> Path:
    """Found without importing verl, which takes seconds."""
    found = find_spec("verl")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "trainer" / "config"


def _keys(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """All keys of a configuration, with dots, and their values."""
    for name, value in tree.items():
        yield f"{above}{name}", value
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{name}.")


# --- verl's own validation of what a run would launch, without a run ------------------


def validate(run: TrainingRun, *, resume: bool = False) -> None:
    """Compose verl's configuration and have verl validate it; takes some seconds."""
    values = overrides(run, resume)
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), values)
        done = subprocess.run(
            [sys.executable, "-m", "rejuice.trainer.launch.compose", folder],
            env={**os.environ, **environment(run)},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode:
        found = last_error(done.stderr) or f"exit status {done.returncode}"
        raise RecipeError(f"verl could not validate its configuration: {found}")
    problem = json.loads(done.stdout.splitlines()[-1])
    if problem is not None:
        raise RecipeError(problem)
