"""What `rejuice check` and `rejuice train` check before anything is made.

The recipe itself is checked where a run is made of it (`TrainingRun.of`), columns and first rows of
`dataset_path` as for `rejuice run`. Here are the other datasets, and the keys of verl.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

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
from ..run import TrainingRun
from ..split import HeldOutSet, grading_steps
from .foreseen import foreseen
from .verl_config import (
    ADDRESS,
    are_known,
    check_keys,
    defaults,
    overrides,
    own_overrides,
    ray_address,
)


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
    repeated = frame.num_rows - len(frame.select(["prompt_id"])["prompt_id"].unique())
    if repeated:
        from ..report.watch import repeats_line

        yield repeats_line(held_out.split, repeated, f"the first {frame.num_rows:,}")


def _check_replay(path: Path, *, of_agents: bool) -> None:
    from .prompts import check_replayed

    dataset = Dataset(path)
    try:  # A column may begin further down, but seldom does.
        check_replayed(path, dataset.first_rows.schema.names, of_agents=of_agents)
    except DataError:
        check_replayed(path, dataset.schema.names, of_agents=of_agents)


def _check_validation(run: TrainingRun, held_out: HeldOutSet) -> None:
    """Check that prompts can be made of a validation set, and responses to them graded."""
    recipe, parts = run.recipe, run.split
    numbers = {step.number for step in grading_steps(parts.after)}
    rest = [s for s in recipe.steps if s.number in numbers or s.operator is parts.rollout]
    # It reads that file as it is, and not what the recipe's own head reads.
    alone = {"dataset_path": held_out.path, "dataset": None, "columns": None, "suffixes": ()}
    head = recipe.head.model_copy(update=alone)
    steps = (*held_out.steps, *rest)
    try:
        checked_schema(recipe.replace(head=head, steps=steps, table=None))
    except RecipeError as error:
        named = held_out.name in run.config.validation
        where = f"train.validation.{held_out.name}" if named else "train.validation_path"
        raise error.at(where) from None


# --- Keys of `train.verl` that cannot work beside the recipe --------------------------
# verl would accept them, and the run would be another one than the recipe says, or ignore them.

_ACTOR = "actor_rollout_ref.actor"
_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
_INSTEAD = {
    "dataset_path": ["data.train_files"],
    "train.validation_path": ["data.val_files"],
    # Each prompt of a validation set has its own settings, which are obeyed instead of verl's.
    "train.validation": [
        f"{_ROLLOUT}.val_kwargs.n",
        f"{_ROLLOUT}.val_kwargs.temperature",
        f"{_ROLLOUT}.val_kwargs.top_p",
        f"{_ROLLOUT}.val_kwargs.do_sample",
    ],
    "{step}.n": [f"{_ROLLOUT}.n"],
    "{step}.temperature": [f"{_ROLLOUT}.temperature"],
    "{step}.top_p": [f"{_ROLLOUT}.top_p"],
    "{step}.max_tokens": ["data.max_response_length", f"{_ROLLOUT}.response_length"],
    "{step}.chat_template_kwargs": ["data.apply_chat_template_kwargs"],
    "train.policy": [f"{_MODEL}.path"],
    "train.lora": [
        f"{_MODEL}.lora_rank",
        f"{_MODEL}.lora_alpha",
        f"{_MODEL}.target_modules",
        f"{_MODEL}.lora.rank",
    ],
    "train.prompts_per_step": ["data.train_batch_size"],
    "train.refill": ["data.gen_batch_size", "algorithm.filter_groups.enable"],
    "train.max_prompt_tokens": ["data.max_prompt_length", f"{_ROLLOUT}.prompt_length"],
    "train.updates_per_step": [f"{_ACTOR}.ppo_mini_batch_size"],
    "train.learning_rate": [f"{_ACTOR}.optim.lr"],
    "train.warmup_steps": [f"{_ACTOR}.optim.lr_warmup_steps"],
    "train.weight_decay": [f"{_ACTOR}.optim.weight_decay"],
    "train.max_grad_norm": [f"{_ACTOR}.optim.clip_grad", f"{_ACTOR}.grad_clip"],
    "train.kl_coef": [
        f"{_ACTOR}.use_kl_loss",
        f"{_ACTOR}.kl_loss_coef",
        "algorithm.use_kl_in_reward",
    ],
    "train.entropy_coef": [f"{_ACTOR}.entropy_coeff"],
    "train.loss": [
        f"{_ACTOR}.policy_loss.loss_mode",
        f"{_ACTOR}.loss_agg_mode",
        f"{_ACTOR}.clip_ratio",
        f"{_ACTOR}.clip_ratio_low",
        f"{_ACTOR}.clip_ratio_high",
    ],
    "train.seed": ["data.seed", f"{_ROLLOUT}.seed", f"{_ACTOR}.data_loader_seed"],
    "train.mode": ["trainer.v1", "trainer.use_v1", "actor_rollout_ref.hybrid_engine"],
    "train.steps": ["trainer.total_training_steps", "trainer.total_epochs"],
    "train.save_every": ["trainer.save_freq"],
    "train.validate_every": ["trainer.test_freq", "trainer.val_before_train"],
    "train.keep_checkpoints": ["trainer.max_actor_ckpt_to_keep"],
    "train.loggers": ["trainer.logger"],
    "--output": ["trainer.default_local_dir"],
    "--resume": ["trainer.resume_mode", "trainer.resume_from_path"],
    "{advantage}.normalise": ["algorithm.norm_adv_by_std_in_grpo"],
    "{advantage}, or a step that writes `advantage`,": ["algorithm.adv_estimator"],
    "a step that writes a reward": [
        "reward.custom_reward_function",
        "reward.reward_manager",
        "reward.reward_model",
        "reward.sandbox_fusion",
        "custom_reward_function",
        "reward_model",
        "sandbox_fusion",
    ],
    "agent_rollout_mapper": [f"{_ROLLOUT}.multi_turn.enable"],
    "{gpu}.nodes": ["trainer.nnodes"],
    "{gpu}.gpus": ["trainer.n_gpus_per_node"],
    "{gpu}.rollout": [f"{_ROLLOUT}.name"],
    "{gpu}.strategy": [
        "model_engine",
        f"{_ACTOR}.strategy",
        "actor_rollout_ref.ref.strategy",
    ],
    "{gpu}.tensor_parallel": [f"{_ROLLOUT}.tensor_model_parallel_size"],
    "train.{profile}.gradient_checkpointing": [f"{_MODEL}.enable_gradient_checkpointing"],
}
"""What to give in place of keys of verl."""
_RIGHT = {
    "trainer.device": "choose profile gpu",
    "ray_kwargs.ray_init.address": "choose profile gpu",
    f"{_ROLLOUT}.full_determinism": "set train.gpu.reproducible, too",
}
"""What to do where a run sets a key to a value of its own."""


def check_user_keys(run: TrainingRun, *, resume: bool) -> None:
    """Check that no key of `train.verl` contradicts the recipe, or what trains it.

    Raises:
        RecipeError: one does.
    """
    ours = {name.lstrip("+"): value for name, value in own_overrides(run, resume).items()}
    free = {name.lstrip("+") for name in defaults(run)} - ours.keys()
    profile = run.config.profile
    named = {
        "step": run.split.rollout.name(),
        "advantage": GrpoAdvantageMapper.name(),
        "profile": profile,
        "gpu": "train.gpu" if profile == "gpu" else "profile gpu and train.gpu",
    }
    fields = {key: field.format(**named) for field, keys in _INSTEAD.items() for key in keys}
    for key, value in run.config.verl_keys.items():
        others = [other for other in {**fields, **ours} if _overlap(key, other)]
        if not others or key in free or (key in ours and ours[key] == value):
            continue
        if others[0] in fields:
            found, right = "the recipe decides it", f"give {fields[others[0]]} instead"
        else:
            found = f"'{others[0]}' is {ours[others[0]]!r} in such a run"
            right = _RIGHT.get(key, "leave it out")
        raise RecipeError(f"'{key}' cannot be {value!r}: {found}", right, where="train.verl")


def _overlap(key: str, other: str) -> bool:
    """Return whether they are one key, or one is above the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


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
    there, right = "no Ray cluster runs on this machine", "start Ray on all nodes"
    if found:
        there = f"the Ray cluster has {found} node{'' if found == 1 else 's'}"
        right = "add nodes to it"
    what = f"train.gpu.nodes is {wanted}, and {there}"
    return RejuiceError(what, f"{right}, or lower train.gpu.nodes")


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
