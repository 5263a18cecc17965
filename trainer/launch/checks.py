"""What `rejuice check` and `rejuice train` check before anything is made.

The recipe itself is checked where a run is made of it (`TrainingRun.of`), columns and first rows of
`dataset_path` as for `rejuice run`. Here are the other datasets, and the keys of verl.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from ...operators import PromptTemplateMapper
from ...operators.errors import DataError, RecipeError, RejuiceError
from ...operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.operator import ResumableOperator
from ...operators.sampling.engines import policy_path
from ...operators.sampling.tokenizer import chat_encoder
from ...pipelines.dataset.read import Dataset
from ...pipelines.ray_session import LOCAL, connected_to_ray
from ...pipelines.recipe.columns import checked_schema
from ...pipelines.recipe.train import Loss
from ..run import TrainingRun
from ..split import HeldOutSet, grading_steps
from .foreseen import foreseen
from .verl_config import ADDRESS, AGENT_LOOPS, SERVERS_MANAGER, own_overrides, ray_address


def check_training(
    run: TrainingRun,
    dataset: Dataset | None = None,
    *,
    may_lack: bool = False,
    resume: bool = False,
) -> list[str]:
    """Check that a run can be made: its datasets, and its keys of verl.

    Returns:
        A line about each thing that was left out, but `dataset_path`, and about each validation
        set in which prompts repeat.

    Raises:
        RejuiceError: a dataset is not what the run needs, or verl does not know a key.
    """
    may_lack_data = may_lack or resume
    head = run.recipe.head
    there = head.dataset_spec.exists() or head.generated_part() is not None
    if run.config.replay is None and (there or not may_lack_data):
        checked_schema(run.recipe.in_training(), dataset)
    left_out = [*_other_datasets(run, may_lack=may_lack_data)]
    if not resume:
        left_out += foreseen(run)
    if not run.config.verl:
        return left_out

    check_user_keys(run, resume=resume)
    if may_lack and find_spec("verl") is None:
        return [*left_out, "verl is not installed, so the keys of train.verl were not checked."]
    from .verl_config import are_known, check_keys, overrides

    if run.config.gpu.strategy != "fsdp2" or not are_known(run.config.verl):
        check_keys(overrides(run, resume))
    return left_out


def _other_datasets(run: TrainingRun, *, may_lack: bool) -> Iterator[str]:
    """Check the datasets of the `train:` section; lines about them."""
    replay = run.config.replay
    if replay is not None:
        if may_lack and not replay.exists():
            yield _lacking(replay)
        else:
            _check_replay(replay, of_agents=run.split.agents is not None)
    for held_out in run.held_out:
        generated = run.recipe.head.generated(held_out.path)
        if may_lack and not held_out.path.exists() and generated is None:
            yield _lacking(held_out.path)
        else:
            _check_validation(run, held_out)
            if held_out.path.exists():
                yield from _repeats(held_out)


def _lacking(path: Path) -> str:
    return f"{path} does not exist yet, so columns were not checked."


def _repeats(held_out: HeldOutSet) -> Iterator[str]:
    """A line where prompts repeat in the first rows of a validation set: each is sampled once."""
    from ...pipelines.engine.frame import Frame
    from ...pipelines.engine.steps import apply_steps

    frame = Frame.of(Dataset(held_out.path).first_rows)
    steps = takewhile(lambda step: isinstance(step.operator, PromptTemplateMapper), held_out.steps)
    frame = apply_steps(list(steps), frame)
    if "prompt_id" not in frame.column_names:
        return
    counts = Counter[str](frame.select(["prompt_id"])["prompt_id"].to_pylist())
    if len(counts) < frame.num_rows:
        from ..report.watch import repeats_line

        n, rows = held_out.settings.n, f"the first {frame.num_rows:,}"
        yield repeats_line(held_out.split, counts, n, rows)


def _check_replay(path: Path, *, of_agents: bool) -> None:
    from .prompts import check_replayed

    dataset = Dataset(path)
    try:  # A column may begin further down, but seldom does.
        check_replayed(path, dataset.first_schema.names, of_agents=of_agents)
    except DataError:
        check_replayed(path, dataset.schema.names, of_agents=of_agents)


def _check_validation(run: TrainingRun, held_out: HeldOutSet) -> None:
    """Check that prompts can be made of a validation set, and responses to them graded."""
    recipe, parts = run.recipe, run.split
    numbers = {step.number for step in grading_steps(parts.after)}
    rest = [s for s in recipe.steps if s.number in numbers or s.operator is parts.rollout]
    head = recipe.head.model_copy(update=_of_file(held_out.path))
    steps = (*held_out.steps, *rest)
    try:
        checked_schema(recipe.replace(head=head, steps=steps, table=None))
    except RecipeError as error:
        named = held_out.name in run.config.validation
        where = f"train.validation.{held_out.name}" if named else "train.validation_path"
        raise error.at(where) from None


def _of_file(path: Path) -> dict[str, Any]:
    """The head of a recipe that reads one file as it is, and not what the recipe's own reads."""
    return {"dataset_path": path, "dataset": None, "columns": None, "suffixes": ()}


# --- Keys of `train.verl` that cannot work beside the recipe --------------------------
# verl would accept them, and the run would be another one than the recipe says, or ignore them. One
# with the value that it has anyway is not refused.

_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
_LEAVE_OUT = "leave it out"
_HARMLESS = frozenset({"reward.num_workers", "reward_model.num_workers"})
"""Below a key that is refused, but only a number of processes."""


class _Restriction(NamedTuple):
    """Why a key cannot have other values."""

    key: str  # of verl; it stands for all keys below it, too
    reason: str  # completes "it cannot be so: "
    right: str = _LEAVE_OUT  # what to do instead
    allowed: Collection[Any] = ()  # values that work


_MODE = "train.mode says when responses are sampled, and on what"
_OTHER_MODE = "set train.mode"
_OWN_LOOPS = "the recipe says what is sampled, and agent loops of rejuice sample it"
_OWN_REWARDS = "rewards are those of the recipe, and verl's own would be ignored or replace them"
_RULES = (
    _Restriction(
        "trainer.use_v1", "only verl's v1 trainer runs the steps of the recipe", allowed=[True]
    ),
    _Restriction(
        "trainer.v1.sampler", "the steps of the recipe run in the place of verl's sampler"
    ),
    _Restriction("trainer.v1", _MODE, _OTHER_MODE),
    _Restriction("actor_rollout_ref.hybrid_engine", _MODE, _OTHER_MODE, allowed=[True]),
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
        f"set the fields of {GrpoAdvantageMapper.name()}, or write the column `advantage`",
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
    """Return what is wrong with a key, and what would be right."""
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
    """Return whether they are one key, or one is above the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def _fields(run: TrainingRun) -> Mapping[str, str]:
    """Return keys that fields set, and that are read from these fields, too."""
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
        **(
            {}
            if run.config.loss == Loss()  # Recipes without the section may set these by themselves.
            else {
                f"{actor}.policy_loss.loss_mode": "train.loss.policy",
                f"{actor}.clip_ratio": "train.loss.clip",
                f"{actor}.clip_ratio_low": "train.loss.clip",
                f"{actor}.clip_ratio_high": "train.loss.clip",
                f"{actor}.loss_agg_mode": "train.loss.aggregate",
            }
        ),
        f"{_MODEL}.lora_rank": "train.lora",  # The exported policy has the adapter by the field.
        f"{_MODEL}.lora_alpha": "train.lora",
        f"{_MODEL}.target_modules": "train.lora",
        f"{actor}.ppo_mini_batch_size": "train.updates_per_step",
        f"{actor}.grad_clip": "train.max_grad_norm",  # verl reads `optim.clip_grad`.
        "algorithm.norm_adv_by_std_in_grpo": f"{GrpoAdvantageMapper.name()}.normalise",
        "trainer.save_freq": "train.save_every",
        "trainer.max_actor_ckpt_to_keep": "train.keep_checkpoints",
        "trainer.total_training_steps": "train.steps",
        "trainer.total_epochs": "train.steps",
        "trainer.default_local_dir": "--output",
        "trainer.resume_mode": "--resume",
        "trainer.resume_from_path": "--resume",
    }


def _rules(run: TrainingRun) -> Iterator[_Restriction]:
    yield from _RULES
    yield from _cpu_rules() if run.config.profile == "cpu" else _gpu_rules(run)
    if run.split.choosing:
        chosen = f"{run.split.choosing[0].name} chooses among all prompts"
        yield _Restriction("data.train_max_samples", chosen, allowed=[-1, None])
        yield _Restriction("data.filter_overlong_prompts", chosen, allowed=[False])
        yield _Restriction("data.custom_cls", chosen)
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


# --- Preflight ------------------------------------------------------------------------
# Checks what the steps of a run need before verl is launched, which takes a minute.


def check_servers(run: TrainingRun) -> None:
    """Check that the servers of a recipe's steps are up, such as that of an LLM judge.

    verl takes the place of the steps that sample, but not that of the tools and frozen models of
    agents.

    Raises:
        RejuiceError: a server is not up, or lacks its model; a package is missing; or the flow
            does not suit the policy.
    """
    _check_transport(run)
    parts = run.split
    if parts.agents is not None:
        _check_flow(run, parts.agents)
    judging = () if parts.judging is None else (*parts.judging.prompting, *parts.judging.after)
    for step in (*parts.before, *parts.after, *judging):
        operator = step.operator
        try:
            operator.check_files()
            if not isinstance(operator, ResumableOperator):
                continue
            if run.config.replay and operator.has_results():
                continue  # It may have scored the stored responses before.
            operator.preflight()
        except RejuiceError as error:
            raise error.at(run.recipe.where(step)) from error


def _check_transport(run: TrainingRun) -> None:
    apart = run.config.profile == "gpu" and run.config.mode == "separate_async"
    if apart and find_spec("cupy") is None:
        raise RejuiceError(
            "mode separate_async sends weights by NCCL, for which verl needs cupy",
            "install the package cupy for its CUDA, or choose mode colocate_async",
        )


def _check_flow(run: TrainingRun, agents: AgentRolloutMapper) -> None:
    if run.config.replay is not None and not run.held_out:
        return  # Nothing is sampled.
    encode = chat_encoder(policy_path(run.policy), agents.chat_template_kwargs)
    (step,) = (step for step in run.recipe.steps if step.operator is agents)
    try:
        agents.preflight_parts(encode)
    except RejuiceError as error:
        raise error.at(run.recipe.where(step)) from error


# --- All nodes of a cluster see what a run needs ---------------------------------------
#
# the folder of the run           shared: prompts and recipe are read from it, and checkpoints,
#                                 steps and the cause of a failure are written to it
# the policy, operator files      the same on each node: shared, or copied to the same path

_TOKEN = ".shared"
_SHARE = "put it on a file system that all nodes share"
_SAME = "let all nodes have the same {} at this path"


class NodeView(NamedTuple):
    """What a node sees."""

    version: str  # of rejuice
    reads: bool  # whether it reads the token in the folder of the run
    answer: str  # name of the file that it has written there
    error: str | None  # why it could not; None if it could
    copies: tuple[Mapping[str, int], ...]  # names and sizes of all files of each copy


Look = Callable[[Path, Sequence[Path]], NodeView]


def look(token: Path, copies: Sequence[Path]) -> NodeView:
    """Return what the node that this runs on sees."""
    from ...pipelines.engine.workers_on_ray import reads_text

    reads, error = reads_text(token, token.name), None
    answer = f"{token.name}-{secrets.token_hex(8)}"
    if reads:
        try:
            token.with_name(answer).write_text(answer, "utf-8")
        except OSError as reason:
            error = reason.strerror or str(reason)
    return NodeView(version("rejuice"), reads, answer, error, tuple(map(_sizes, copies)))


def _sizes(path: Path) -> Mapping[str, int]:
    """Return the size of a file, or of each file in a folder; nothing if it is not there."""
    if path.is_file():
        return {path.name: path.stat().st_size}
    files = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return {
        str(file.relative_to(path)): file.stat().st_size
        for file in files
        if "__pycache__" not in file.parts
    }


_SOCKET = "/ray/session_2000-01-01_00-00-00_000000_4194304/sockets/plasma_store"
_LONGEST_SOCKET = 107 - len(_SOCKET)  # bytes that the system leaves for the folder before it


def check_temporary_folder(run: TrainingRun) -> None:
    """Check that Ray's sockets fit in its temporary folder, where the run starts a Ray of its own.

    Raises:
        RejuiceError: the folder's path is too long.
    """
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    size = len(os.fsencode(os.environ.get(name, "")))
    if ray_address(run) == LOCAL and size > _LONGEST_SOCKET:
        found = f"{name} has a path of {size} bytes, which is too long for Ray's sockets"
        raise RejuiceError(found, f"set it to one of at most {_LONGEST_SOCKET}, such as /tmp")


def check_nodes(run: TrainingRun, look: Look = look) -> None:
    """Check that each node of the Ray cluster sees the folder of the run, and the same files.

    Raises:
        RejuiceError: no cluster is running, it has too few nodes, or one of them does not see what
            it must.
    """
    wanted, address = run.config.gpu.nodes, ray_address(run)
    if run.config.profile != "gpu" or (wanted == 1 and address == LOCAL):
        return
    policy = Path(policy_path(run.policy))
    copies = (*run.recipe.head.custom_operator_paths, *([policy] if policy.is_dir() else []))
    token = run.folder / f"{_TOKEN}-{secrets.token_hex(8)}"
    token.write_text(token.name, "utf-8")
    try:
        # Not verl's own process: this connection ends before verl starts.
        with connected_to_ray(address) as started_here:
            no_address = run.config.verl_keys.get(ADDRESS, address) is None
            if started_here and wanted == 1 and no_address:
                return  # There is no cluster to join: verl starts a Ray of its own, too.
            from ...pipelines.engine.workers_on_ray import on_each_node

            nodes = [] if started_here else on_each_node(look, token, copies)
        if len(nodes) < wanted:
            raise _too_few(wanted, len(nodes))
        for node, view in nodes:
            _check_folder(node, view, token)
            _check_copies(node, view, copies)
    finally:
        for file in run.folder.glob(f"{token.name}*"):
            file.unlink(missing_ok=True)


def _too_few(wanted: int, found: int) -> RejuiceError:
    if wanted == 1:
        return RejuiceError(
            "no Ray cluster runs on this machine, and the run is to join one",
            "start Ray, or set neither RAY_ADDRESS nor ray_kwargs.ray_init.address",
        )
    if not found:
        return RejuiceError(
            f"train.gpu.nodes is {wanted}, and no Ray cluster runs on this machine",
            "start Ray on all nodes, or lower train.gpu.nodes",
        )
    counted = f"{found} node{'' if found == 1 else 's'}"
    return RejuiceError(
        f"train.gpu.nodes is {wanted}, and the Ray cluster has {counted}",
        "add nodes to it, or lower train.gpu.nodes",
    )


def _check_folder(node: str, view: NodeView, token: Path) -> None:
    folder = f"the folder of the run {token.parent}"
    if view.version != version("rejuice"):
        raise RejuiceError(
            f"node {node} has rejuice {view.version}, this one {version('rejuice')}",
            "install the same version on all nodes",
        )
    if view.error is not None:
        found = f"node {node} cannot write to {folder}: {view.error}"
        raise RejuiceError(found, "let it write there")
    if not view.reads:
        raise RejuiceError(f"node {node} does not see {folder}", _SHARE)
    from ...pipelines.engine.workers_on_ray import reads_text

    if not reads_text(token.with_name(view.answer), view.answer):
        raise RejuiceError(f"node {node} has a copy of {folder}", _SHARE)


def _check_copies(node: str, view: NodeView, copies: Sequence[Path]) -> None:
    for path, there in zip(copies, view.copies, strict=True):
        here = _sizes(path)
        if not there:
            what = "folder" if path.is_dir() else "file"
            raise RejuiceError(f"node {node} does not see {path}", _SAME.format(what))
        if here != there:
            file = min(name for name, _ in here.items() ^ there.items())
            other = path if path.is_file() else path / file
            found = f"node {node} has another {other} than this one"
            raise RejuiceError(found, _SAME.format("file"))
