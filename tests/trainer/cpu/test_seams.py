"""Where we hold on to verl: one test for each seam, so that a new verl fails here and says where."""

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import MethodType, SimpleNamespace

import pytest
from training_stage import PLAIN, Stage, _recipe

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(verl):
    """verl's own source: file to syntax tree."""
    root = Path(verl.__file__).parent
    return {
        str(file.relative_to(root)): ast.parse(file.read_text("utf-8"))
        for file in root.rglob("*.py")
    }


@pytest.fixture
def run(verl, tmp_path):
    """A factory of runs, by keys of the `train:` section."""
    from rejuice.trainer.launch.training import prepare

    def make(n=4, rollout=None, **train):
        return prepare(_recipe(tmp_path, PLAIN, 8, n, {}, train, rollout), tmp_path / "run")

    return make


@pytest.fixture
def composed(run):
    """verl's configuration under our overrides."""
    from verl_configs import config_of

    def make(**train):
        return config_of(run(**train))

    return make


# --------------------------------------------------------------------------- the plug-in

_ASKED = """
import json, sys
import verl
from verl.plugin.platform import get_platform
from verl.plugin.platform.platform_manager import PlatformRegistry
from verl.utils.import_utils import is_trl_available
print(json.dumps([
    PlatformRegistry.get("cpu") is not None, get_platform().device_name,
    is_trl_available(), "rejuice.trainer.cpu.platform" in sys.modules,
]))
"""


@pytest.mark.parametrize(
    ("platform", "message"),
    [("cpu", [True, "cpu", False, True]), (None, [False, "cuda", False, False])],
)
def test_the_platform_is_there_where_it_is_named_and_nowhere_else(platform, message):
    environment = {k: v for k, v in os.environ.items() if k != "VERL_PLATFORM"}
    environment["VERL_USE_EXTERNAL_MODULES"] = "rejuice.trainer.verl.plugin"
    if platform:
        environment["VERL_PLATFORM"] = platform
        environment["VERL_USE_EXTERNAL_MODULES"] += ",rejuice.trainer.cpu.platform"
    done = subprocess.run(
        [sys.executable, "-c", _ASKED], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == message


# --------------------------------------------------------------------------- the platform


def test_the_platform_answers_all_that_verl_asks_of_one(verl):
    from verl.plugin.platform import get_platform
    from verl.plugin.platform.platform_base import PlatformBase

    from rejuice.trainer.cpu.platform import CpuPlatform

    platform = get_platform()
    assert type(platform) is CpuPlatform
    assert not CpuPlatform.__abstractmethods__
    arguments = {
        "set_device": (0,), "manual_seed": (0,), "manual_seed_all": (0,),
        "set_allocator_settings": ("",), "nvtx_range": ("",),
    }  # fmt: skip
    for name in PlatformBase.__abstractmethods__:
        member = getattr(platform, name)
        if callable(member):
            member(*arguments.get(name, ()))
    with platform.nvtx_range("a step"):
        pass
    assert not platform.is_platform_available()
    assert platform.communication_backend_name() == "gloo"
    assert platform.ray_resource_options(1) == {"num_gpus": 1}


NOT_REACHED = {
    # Diagnosis that somebody asks for, on CUDA.
    "utils/memory_utils.py": {
        "set_per_process_memory_fraction", "reset_accumulated_memory_stats", "memory",
        "current_device", "get_device_properties",
    },
    "utils/profiler/torch_memory_profile.py": {"memory"},
}  # fmt: skip
"""Functions of a device that verl calls in places where a run on a CPU never is."""


def _calls(tree):
    """What verl calls on `get_torch_device()`, also through a variable of the same function."""
    for scope in ast.walk(tree):
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            continue
        names = {
            target.id
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and _is_device(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(scope):
            if isinstance(node, ast.Attribute):
                named = isinstance(node.value, ast.Name) and node.value.id in names
                if _is_device(node.value) or (named and not isinstance(scope, ast.Module)):
                    yield node.attr


def _is_device(node):
    name = getattr(
        getattr(node, "func", None), "id", getattr(getattr(node, "func", None), "attr", "")
    )
    return isinstance(node, ast.Call) and name == "get_torch_device"


def test_the_device_has_every_function_that_verl_calls(verl, sources):
    from verl.plugin.platform import get_platform

    device, called = get_platform().device_module, set()
    for file, tree in sources.items():
        requests = set(_calls(tree))
        called |= requests
        missing = {name for name in requests if not hasattr(device, name)}
        assert missing <= NOT_REACHED.get(file, set()), file
    assert {"empty_cache", "get_rng_state", "mem_get_info", "max_memory_allocated"} <= called


def test_the_device_gives_freed_memory_back(verl):
    import psutil
    import torch
    from verl.plugin.platform import get_platform

    process = psutil.Process()
    tensors = [torch.ones(1 << 14) for _ in range(4_000)]  # 64 KiB each: the C library pools them
    tensors = tensors[-1:]  # Behind the freed ones, it keeps them in the heap.
    before = process.memory_info().rss
    get_platform().empty_cache()
    assert before - process.memory_info().rss > 200 << 20


def test_the_device_reports_what_is_true_of_processor_cores(verl):
    import torch
    from verl.plugin.platform import get_platform

    device = get_platform().device_module
    free, total = device.mem_get_info()
    assert 0 < free < total
    assert device.memory_allocated() == device.max_memory_reserved() == 0
    state = device.get_rng_state()
    first = torch.rand(3)
    device.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
    with pytest.raises(AttributeError):
        _ = device.no_such_function


# --------------------------------------------------------------------------- engine and rollouts


def test_verl_imports_several_libraries(verl):
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.import_utils import import_external_libs

    named = {"_target_": "types.SimpleNamespace", "external_lib": ["colorsys", "sched"]}
    import_external_libs(omega_conf_to_dataclass(OmegaConf.create(named)).external_lib)
    assert {"colorsys", "sched"} <= {*sys.modules}


def test_the_engine_and_the_rollouts_are_found(verl, composed):
    from verl.utils.import_utils import import_external_libs
    from verl.workers.engine import EngineRegistry
    from verl.workers.rollout.base import get_rollout_class
    from verl.workers.rollout.replica import get_rollout_replica_class

    config = composed().actor_rollout_ref
    import_external_libs(config.model.external_lib)
    from rejuice.trainer.cpu.rollout import Adapter, Replica
    from rejuice.trainer.cpu.workers import CpuEngine

    assert EngineRegistry.get_engine_cls("language_model", config.actor.strategy) is CpuEngine
    assert EngineRegistry.get_engine_cls("language_model", config.ref.strategy) is CpuEngine
    assert get_rollout_class(config.rollout.name, config.rollout.mode) is Adapter
    assert get_rollout_replica_class(config.rollout.name) is Replica
    assert not getattr(Replica, "__abstractmethods__", None)
    assert not getattr(Adapter, "__abstractmethods__", None)


def test_the_attention_is_the_one_that_is_named(verl, composed):
    """The sampler has one of its own in the same registry; both may be in one process."""
    from transformers import AttentionInterface

    for module in ("operators.sampling.transformers_engine", "trainer.cpu.workers"):
        importlib.import_module(f"rejuice.{module}")
    from rejuice.trainer.cpu.workers import NAME, shared_attention

    assert composed().actor_rollout_ref.model.override_config.attn_implementation == NAME
    assert AttentionInterface()[NAME] is shared_attention


def test_a_forward_only_engine_is_built_like_any(verl):
    """It would pin its memory, which needs CUDA: verl must ask for that where we say it does not."""
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead

    source = inspect.getsource(FSDPEngine._build_fsdp_module)
    assert "self.engine_config.forward_only" in source
    for name in ("prepare_model_inputs", "prepare_model_outputs", "_build_fsdp_module"):
        assert callable(getattr(FSDPEngineWithLMHead, name))


# --------------------------------------------------------------------------- named in overrides


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_verl_builds_its_replay_buffer_of_ours(queue, composed, profile):
    """By its own code, with all that it hands to a custom sampler."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from rejuice.trainer.verl.training import RecipeBuffer

    class Trainer:
        step, _compute_metrics = PPOTrainer.step, PPOTrainer._compute_metrics
        _log_rollout_data = PPOTrainer._log_rollout_data
        _save_checkpoint = PPOTrainer._save_checkpoint

        def __init__(self):
            self.config, self.trainer_mode, self.requested = composed(profile=profile), "sync", []

        def _add_prompts_to_generate(self, prompts):
            self.requested.append(prompts)

    trainer = Trainer()
    buffer = PPOTrainer._build_replay_buffer(trainer)
    assert type(buffer) is RecipeBuffer
    buffer.refill_fn(3)
    assert trainer.requested == [3]
    assert buffer.refill_fn.__self__ is trainer
    # Bound to the trainer, by which judgements are requested.
    assert "refill_fn=self._add_prompts_to_generate" in inspect.getsource(
        PPOTrainer._build_replay_buffer
    )


@pytest.mark.parametrize(
    "train",
    [
        {"mode": "colocate_async"},
        {"mode": "colocate_async", "max_age": 3},
        {"mode": "colocate_async", "profile": "gpu", "prompts_per_step": 4, "updates_per_step": 2},
        {"mode": "separate_async", "profile": "gpu", "prompts_per_step": 4, "updates_per_step": 2, "gpu": {"gpus": 2, "rollout_gpus": 2}},
    ],
)  # fmt: skip
def test_verls_trainers_take_each_mode(composed, monkeypatch, train):
    """By their own checks of the configuration."""
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    config = composed(**train)
    theirs = get_trainer_cls(config.trainer.v1.trainer_mode)
    monkeypatch.setattr(PPOTrainer, "__init__", lambda self, config: setattr(self, "config", config))  # fmt: skip
    trainer = theirs(config)
    assert config.trainer.v1[config.trainer.v1.trainer_mode].num_warmup_batches == train.get("max_age", 1)  # fmt: skip
    assert "on_step_end" in vars(theirs)
    assert trainer.config is config


def test_verl_has_its_loggers_before_it_validates(verl):
    """And logs under a step's number more than once: figures of validation sets come before its own."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    source = inspect.getsource(PPOTrainer.fit)
    assert source.index("self.logger = Tracking(") < source.index("self._validate()")
    assert "self.logger.log(data=metrics, step=self.global_steps)" in source
    # `sample` is called once, and no other way: each set is validated on as a whole.
    validate = inspect.getsource(PPOTrainer._validate)
    assert validate.count("replay_buffer.sample(") == 1
    dataloader = inspect.getsource(PPOTrainer._init_dataloader)
    assert "self.config.data.val_batch_size or len(self.val_dataset)" in dataloader


def test_verl_keeps_its_loggers_by_name(verl, monkeypatch, tmp_path):
    """And logs to some of them alone: a table is for trackers, not for metrics.jsonl."""
    from verl.utils.tracking import Tracking

    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "events"))
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "metrics.jsonl"))
    tracking = Tracking("rejuice", "run", ["tensorboard", "file"])
    assert set(tracking.logger) == {"tensorboard", "file"}
    assert callable(tracking.logger["tensorboard"].writer.add_text)
    tracking.log(data={"alone": 1.0}, step=1, backend=["tensorboard"])
    tracking.finish()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""
    # W&B's is its module, with `Table` and `log`.
    assert 'self.logger["wandb"] = wandb' in inspect.getsource(Tracking.__init__)


def test_verl_reads_the_mini_batch_size_at_each_step(verl, composed):
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from rejuice.trainer.verl.verl_trainer import VerlTrainer

    class Trainer:
        config = composed(prompts_per_step=8)

        def refill(self, prompts):
            return prompts

        @property
        def actor_rollout_wg(self):
            raise NotImplementedError  # The update itself.

    trainer, seen = Trainer(), []
    n = trainer.config.actor_rollout_ref.rollout.n
    for groups in (8, 6):
        assert VerlTrainer(trainer.refill).set_mini_batch_size(groups * n, updates=2) == 2
        batch = SimpleNamespace(extra_info={})
        with pytest.raises(NotImplementedError):
            PPOTrainer._update_actor(trainer, batch, {})
        seen.append(batch.extra_info["mini_batch_size"])
    assert seen == [4 * n, 3 * n]
    # Few rows give fewer updates: each takes a multiple of n.
    assert VerlTrainer(trainer.refill).set_mini_batch_size(n, updates=2) == 1
    assert VerlTrainer(trainer.refill).set_mini_batch_size(n + 1, updates=4) == 2


def test_verl_saves_checkpoints_by_a_method():
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    assert list(inspect.signature(PPOTrainer._save_checkpoint).parameters) == ["self"]
    assert "self._save_checkpoint()" in inspect.getsource(PPOTrainer.fit)


def test_verl_logs_figures_of_an_update(verl, composed):
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from rejuice.trainer.verl.verl_trainer import VerlTrainer

    class Trainer:
        config, train_dataloader = composed(prompts_per_step=8), SimpleNamespace(state_dict=dict)
        parameter_sync_step, step, updated = 1, PPOTrainer.step, False
        _compute_metrics = _log_rollout_data = None

        def refill(self, prompts):
            return prompts

        def prepare_step(self):
            return {}

        def _step_once(self, metrics, timing_raw, sample_batch_size):
            self.updated = True
            metrics["actor/loss"] = 1.0
            return SimpleNamespace(keys=[], tags=[], partition_id="train")

    trainer, metrics = Trainer(), {}
    VerlTrainer(trainer.refill).end_steps(
        lambda figures: figures.update({"rejuice/updated": float(trainer.updated)})
    )
    trainer.step(metrics, {})
    assert metrics == {"actor/loss": 1.0, "rejuice/updated": 1.0}
    assert "batch = self.step(metrics, self.timing_raw)" in inspect.getsource(PPOTrainer.fit)


def test_a_step_with_nothing_to_train_on_passes_verls_loop(verl, composed):
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from rejuice.trainer.verl.verl_trainer import StepSkippedError, VerlTrainer

    class Trainer:
        config = composed(prompts_per_step=8, save_every=7, validate_every=9)
        parameter_sync_step, total_training_steps, ended, global_steps = 1, 40, 0, 3
        step, _compute_metrics = PPOTrainer.step, PPOTrainer._compute_metrics
        _log_rollout_data = PPOTrainer._log_rollout_data
        train_dataloader = SimpleNamespace(state_dict=dict)

        def refill(self, prompts):
            return prompts

        def prepare_step(self):
            return {}

        def on_sample_end(self):
            self.ended += 1

        def _step_once(self, metrics, timing_raw, sample_batch_size):
            raise StepSkippedError(skipped, {"rejuice/groups": 0.0})

    # verl clears its rows, of which there are some: TransferQueue refuses none.
    skipped = SimpleNamespace(keys=["prompt"], extra_info={"skips": True})
    trainer, metrics = Trainer(), {}
    made = VerlTrainer(trainer.refill)
    made.end_steps(lambda _: None)
    batch = trainer.step(metrics, {})
    trainer._compute_metrics(batch, metrics, {"step": 2.0}, global_steps=3, epoch=0)
    assert batch is skipped
    assert trainer.ended == 1
    trainer._log_rollout_data(batch, {}, "folder")  # By `trainer.rollout_data_dir`.
    assert metrics == {"rejuice/groups": 0.0, "timing_s/step": 2.0, "training/global_step": 3}
    made.end_after(3)
    assert trainer.total_training_steps == 3
    assert (made.is_last, trainer.config.trainer.test_freq) == (True, 1)
    # As its loop calls them, and reads these at each step.
    loop = inspect.getsource(PPOTrainer.fit)
    for line in (
        "self.global_steps <= self.total_training_steps",
        "batch = self.step(metrics, self.timing_raw)",
        "self.config.trainer.save_freq > 0 and (",
        "self.config.trainer.test_freq > 0 and (",
        "self._log_rollout_data(batch, self.timing_raw, rollout_data_dir)",
        "tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)",
        "self._compute_metrics(batch, metrics, self.timing_raw, global_steps=self.global_steps, epoch",
    ):
        assert line in loop, line
    assert "self.on_sample_end()" in inspect.getsource(PPOTrainer._step_once)


def test_verl_computes_log_probs_of_replayed_rows(verl):
    """As its own step does, which ends the sampling before."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from rejuice.trainer.verl.verl_trainer import VerlTrainer

    source = inspect.getsource(PPOTrainer._compute_old_log_prob)
    for line in (
        '"compute_loss": False',
        '"temperature": self.config.actor_rollout_ref.rollout.temperature',
        "self.actor_rollout_wg.compute_log_prob(batch)",
        'response_from_nested(data.pop("log_probs"), data["response_mask"])',
    ):
        assert line in source, line
    assert "self.checkpoint_manager.sleep_replicas()" in inspect.getsource(
        PPOTrainerSync.on_sample_end
    )

    class Trainer:
        ended = 0

        def refill(self, prompts):
            return prompts

        def on_sample_end(self):
            self.ended += 1

    trainer = Trainer()
    VerlTrainer(trainer.refill).end_sampling()
    trainer.on_sample_end()  # verl's own call of the same step.
    assert trainer.ended == 1
    trainer.on_sample_end()
    assert trainer.ended == 2


def test_every_worker_of_the_actor_takes_our_loss(verl, composed):
    from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.workers.engine_workers import ActorRolloutRefWorker

    from rejuice.trainer.verl.advantage import LossSettings, trajectory_loss
    from rejuice.trainer.verl.verl_trainer import VerlTrainer

    found = []
    config = composed(kl_coef=0.01, loss={"clip": [0.2, 0.28]}, entropy_coef=0.5)
    trainer = SimpleNamespace(
        config=config, actor_rollout_wg=SimpleNamespace(set_loss_fn=found.append)
    )
    VerlTrainer(MethodType(lambda self, prompts: prompts, trainer)).use_turn_loss()
    assert found[0].func is trajectory_loss
    assert found[0].args == (LossSettings(0.2, 0.28, 0.01, "low_var_kl", 0.5),)
    registered = getattr(ActorRolloutRefWorker.set_loss_fn, MAGIC_ATTR)
    assert registered["dispatch_mode"] is Dispatch.ONE_TO_ALL
    assert "self.actor_rollout_wg.update_actor(batch)" in inspect.getsource(
        PPOTrainer._update_actor
    )


def test_verification_prompts_reach_the_rollouts_as_verls_own_do(queue):
    """What the buffer is given to ask for more is the trainer's; so the trainer is at hand."""
    import pyarrow as pa
    from verl.trainer.ppo.v1 import agent_loop_tq
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from rejuice.operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
    from rejuice.trainer.verl import judging
    from rejuice.trainer.verl.trajectories import RESPONSES, prompt_batch

    chat = [{"role": "user", "content": "Is it?"}]
    prompts = pa.table({"prompt_id": ["a", "b"], "prompt": [chat] * 2, "label": ["Yes", "No"]})
    rollout = PolicyRolloutMapper(task="verify", n=3, max_tokens=5)
    uids, batch = judging.verl_batch(prompts, rollout, "test", 7)
    given = []
    manager = SimpleNamespace(generate_sequences=given.append)
    trainer = SimpleNamespace(global_steps=7, trainer_mode="sync", agent_loop_manager=manager)
    assert PPOTrainer._submit_batch_to_rollout(trainer, batch) == 2
    assert set(queue.partitions["train"]) == set(uids)
    # As agent loops take a prompt out of the batch.
    for name, value in given[0].items():
        assert value.data is not None if name == "global_steps" else value[1].data is not None
    found = prompt_batch(given[0])
    assert found.own == [{"n": 3, "max_tokens": 5}] * 2
    assert (found.step, found.partition) == (7, "train")
    assert [slot.prompt_id for slot in found.slots] == ["a", "b"]
    # The key by which verl's agent loops know of another n.
    worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    assert RESPONSES in inspect.getsource(worker._run_prompt)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_verl_loads_the_manager_of_agent_loops(verl, composed, profile):
    from verl.trainer.main_ppo import load_class_from_fqn

    name = composed(profile=profile).actor_rollout_ref.rollout.agent.agent_loop_manager_class
    manager = load_class_from_fqn(name, "AgentLoopManager")
    assert callable(manager.create)
    assert callable(manager.generate_sequences)


@pytest.mark.parametrize("rollout", [None, {"agent_rollout_mapper": {"max_tokens": 16}}])
def test_the_agent_loop_of_gpus_is_loaded_by_its_name(verl, composed, rollout):
    from hydra.utils import get_class
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase
    from verl.experimental.agent_loop.utils import resolve_config_path

    agent = composed(rollout=rollout, profile="gpu").actor_rollout_ref.rollout.agent
    entries = {e.name: e for e in OmegaConf.load(resolve_config_path(agent.agent_loop_config_path))}
    loop = get_class(entries[agent.default_agent_loop]._target_)
    assert issubclass(loop, AgentLoopBase)
    assert (loop.__name__ == "FlowAgentLoop") == (rollout is not None)


@pytest.mark.parametrize(
    "train",
    [{}, {"profile": "gpu"}, {"kl_coef": 0.1, "updates_per_step": 2}, {"refill": 2}],
    ids=["cpu", "gpu", "divergence", "refill"],
)
def test_verl_knows_every_key_and_agrees_to_the_whole(run, train):
    from verl_configs import problem_of

    made = run(**train)
    assert problem_of(made, resume=False) is None
    assert problem_of(made, resume=True) is None


def test_verl_reads_the_keys_that_we_add(run, sources):
    """A key with + is accepted whatever it says."""
    from ray import init

    from rejuice.trainer.launch.verl_config import overrides

    ours = {"run", "live", "seeds_requests"}
    rays = set(inspect.signature(init).parameters)
    texts = [ast.unparse(tree) for tree in sources.values()]
    for train in ({}, {"profile": "gpu"}, {"lora": {}}):
        run_ = run(**train)
        for key in overrides(run_, resume=False):
            parts = key.removeprefix("+").split(".")
            if not key.startswith("+") or parts[-1] in ours:
                continue
            if parts[0] == "ray_kwargs":
                assert parts[2] in rays, key
                continue
            name = "override_config" if "override_config" in parts else parts[-1]
            assert any(name in text for text in texts), key
        import shutil

        shutil.rmtree(run_.folder)


def test_old_log_probs_are_taken_from_the_sampler_only_where_they_are_verls(run):
    """The sampler's are the policy's own; verl divides by the temperature."""
    from rejuice.trainer.launch.verl_config import overrides

    made = run()
    key = "algorithm.rollout_correction.bypass_mode"
    assert overrides(made, resume=False)[key] is True
    warm = made.split.rollout.model_copy(update={"temperature": 0.7})
    made = made._replace(split=made.split._replace(rollout=warm))
    assert overrides(made, resume=False)[key] is False


# --------------------------------------------------------------------------- TransferQueue

VERLS_OWN = {
    # What verl computes and puts itself, between our sample() and where it reads it.
    "entropy", "log_probs", "old_log_probs", "ref_log_prob", "values", "advantages", "returns",
    "token_level_rewards", "rollout_is_weights",
    "raw_prompt",  # A reward model that shares the GPUs, which we do not use.
    "routed_experts",  # Of mixtures of experts, where their balance is logged.
}  # fmt: skip


_MORE = ("fields.append", "fields.extend")


def _selected(tree):
    """Names of fields in lists that are called `fields`, or given as `select_fields`."""
    for node in ast.walk(tree):
        lists = []
        if (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "fields") or (
            isinstance(node, ast.keyword) and node.arg == "select_fields"
        ):
            lists = [node.value]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _MORE:
            lists = node.args
        for found in lists:
            for each in ast.walk(found):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value


def test_every_field_that_verl_selects_is_put(queue, tmp_path, sources):
    stage = Stage(tmp_path / "run", queue, PLAIN)
    stage.answer({0: ["1", "0"], 1: ["0", "1"]})
    batch, _ = stage.sample(1, 2)
    put = set(queue.kv_batch_get(batch.keys, "train").keys())
    selected = set(_selected(sources["trainer/ppo/v1/trainer_base.py"]))
    assert selected - put - VERLS_OWN == set()
    assert {"prompts", "responses", "rm_scores", "uid", "num_turns"} <= selected
    # And what the workers take, by whatever way they name it.
    assert {"input_ids", "position_ids", "response_mask", "loss_mask", "prompts"} <= put


def test_keys_are_as_verl_takes_them_apart(queue, tmp_path):
    stage = Stage(tmp_path / "run", queue, PLAIN)
    stage.answer({0: ["1", "0"], 1: ["0", "1"]})
    uids = {uid for made in stage.uids.values() for uid in made}
    keys = set(queue.kv_list("train")["train"]) - uids
    pattern = re.compile(r"([^_]+)_(\d+)_(\d+)")
    assert {pattern.fullmatch(key)[1] for key in keys} == uids
    assert {pattern.fullmatch(key)[2] for key in keys} == {"0", "1"}
    assert {pattern.fullmatch(key)[3] for key in keys} == {"0"}
    # verl's own buffer finds the same groups in them.
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    own = ReplayBuffer("sync", {}, 1, "drop", {})
    found, _ = own.sample(1, "train", 2)
    assert set(found.keys) == keys


def test_verl_marks_prompts_as_we_read_them(sources):
    """`is_prompt`, `status` and `global_steps`; `finished` and `failure` end a group."""
    text = ast.unparse(sources["trainer/ppo/v1/trainer_base.py"])
    assert "{'is_prompt': True, 'status': 'pending', 'global_steps': self.global_steps}" in text
    buffer = importlib.import_module("verl.trainer.ppo.v1.replay_buffer").ReplayBuffer
    kept = inspect.getsource(buffer._sync_metadata_from_transfer_queue)
    assert all(
        f'case "{status}"' in kept for status in ("pending", "running", "finished", "failure")
    )
