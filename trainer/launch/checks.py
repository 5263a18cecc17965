"""What `rejuice check` and `rejuice train` check before anything is made.

The recipe itself is checked where a run is made of it (`TrainingRun.of`), columns and first rows of
`dataset_path` as for `rejuice run`. Here are the other datasets, and the keys of verl.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...operators import Filter, Operator, PromptTemplateMapper
from ...operators.errors import DataError, RecipeError, RejuiceError
from ...operators.filter.ngram_decontamination_filter import found_in
from ...operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from ...operators.operator import ResumableOperator
from ...operators.sampling.engines import policy_path
from ...operators.sampling.tokenizer import chat_encoder, content_encoder
from ...pipelines.dataset.read import Dataset
from ...pipelines.dataset.spec import SplitError
from ...pipelines.ray_session import LOCAL, connected_to_ray
from ...pipelines.recipe.columns import checked_schema
from ...pipelines.recipe.steps import Step
from ..run import TrainingRun
from ..split import HeldOutSet, grading_steps
from .verl_config import ADDRESS, check_keys, defaults, overrides, own_overrides, ray_address


def check_training(
    run: TrainingRun,
    dataset: Dataset | None = None,
    *,
    may_lack: bool = False,
    resume: bool = False,
) -> list[str]:
    """Check that a run can be made: its datasets, and its keys of verl.

    The lines are about what was left out, but `dataset_path`, and what the first steps would meet.
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
    check_keys(overrides(run, resume))
    return left_out


def _other_datasets(run: TrainingRun, *, may_lack: bool) -> Iterator[str]:
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
    recipe, parts = run.recipe, run.split
    numbers = {step.number for step in grading_steps(parts.after)}
    rest = [s for s in recipe.steps if s.number in numbers or s.operator is parts.rollout]
    # It reads that file as it is, and not what the recipe's own head reads.
    unset = dict.fromkeys(("dataset", "columns", "split"))
    alone = {"dataset_path": held_out.path, **unset, "suffixes": ()}
    head = recipe.head.model_copy(update=alone)
    steps = (*held_out.steps, *rest)
    named = held_out.name in run.config.validation
    where = f"train.validation.{held_out.name}" if named else "train.validation_path"
    try:
        checked_schema(recipe.replace(head=head, steps=steps, table=None))
    except SplitError as error:
        raise error.without_option().at(where) from None
    except RecipeError as error:
        raise error.at(where) from None


def foreseen(run: TrainingRun) -> list[str]:
    """What the first steps would meet, of small datasets whose steps need nothing else."""
    datasets = [run.recipe.in_training().opened(), *(Dataset(each.path) for each in run.held_out)]
    steps = [*run.split.before, *(step for each in run.held_out for step in each.steps)]
    quick = all(map(_is_quick, steps)) and not run.config.replay
    if not (quick and all(map(Dataset.is_small, datasets))):
        return []
    from .prompts import write_prompts

    with TemporaryDirectory(prefix="rejuice-") as folder:
        made = run._replace(folder=Path(folder))
        write_prompts(made, by=content_encoder(policy_path(run.policy)))
        return [*shared_prompts(made)]


def _is_quick(step: Step) -> bool:
    operator = step.operator
    quick = isinstance(operator, PromptTemplateMapper | Filter)
    return quick and type(operator).preflight is Operator.preflight


def shared_prompts(run: TrainingRun) -> Iterator[str]:
    """A line for each validation set with prompts that train, of those that are written."""
    from ..report.watch import shown_set

    for held_out in run.held_out:
        texts, prompts = (run.prompts(split)["prompt"] for split in ("train", held_out.split))
        if known := found_in(texts, prompts):
            yield (
                f"{shown_set(held_out.split)}: {known:,} of {len(prompts):,} validation prompts "
                "are also in the dataset that trains; leave them out of one of the two"
            )


# --- Keys of `train.verl` that cannot work beside the recipe --------------------------
# verl would accept them, and the run would be another one than the recipe says, or ignore them.

_OF_THE_RECIPE = (
    "trainer.v1",
    "data.apply_chat_template_kwargs",
    *(f"actor_rollout_ref.model.{name}" for name in ("lora_rank", "lora_alpha", "lora.rank")),
    "actor_rollout_ref.model.target_modules",
    *("model_engine", "actor_rollout_ref.actor.strategy", "actor_rollout_ref.ref.strategy"),
    "actor_rollout_ref.actor.grad_clip",
    *("reward.custom_reward_function", "reward.reward_manager", "reward.reward_model"),
    *("reward.sandbox_fusion", "custom_reward_function", "reward_model", "sandbox_fusion"),
)
"""Keys that the recipe decides even if a run leaves them as verl has them."""


def check_user_keys(run: TrainingRun, *, resume: bool) -> None:
    """Check that no key of `train.verl` is one that the run sets, or is above or beneath one."""
    ours = {name.lstrip("+"): value for name, value in own_overrides(run, resume).items()}
    free = {name.lstrip("+") for name in defaults(run)} - ours.keys()
    for key, value in run.config.verl_keys.items():
        others = [other for other in (*ours, *_OF_THE_RECIPE) if _overlap(key, other)]
        if not others or key in free or (key in ours and ours[key] == value):
            continue
        found = f"the recipe decides '{others[0]}'"
        if others[0] in ours:
            found += f", which is {ours[others[0]]!r}"
        right = "leave it out, and set it by a field of the recipe"
        raise RecipeError(f"'{key}' cannot be {value!r}: {found}", right, where="train.verl")


def _overlap(key: str, other: str) -> bool:
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


# --- Preflight ------------------------------------------------------------------------
# Checks what the steps of a run need before verl is launched, which takes a minute.


def check_servers(run: TrainingRun) -> None:
    """Check that the servers of a recipe's steps are up, such as that of an LLM judge.

    verl takes the place of the steps that sample, but not that of the tools and frozen models of
    agents.
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
        what = "mode separate_async sends weights by NCCL, for which verl needs cupy"
        right = "install the package cupy for its CUDA, or choose mode colocate_async"
        raise RejuiceError(what, right)


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


class NodeView(NamedTuple):
    reads: bool  # whether it reads the token in the folder of the run
    error: str | None  # why it cannot write there
    lacks: tuple[Path, ...]  # copies that it does not have


Look = Callable[[Path, Sequence[Path]], NodeView]


def look(token: Path, copies: Sequence[Path]) -> NodeView:
    from ...pipelines.engine.workers_on_ray import reads_text

    reads, error = reads_text(token, token.name), None
    if reads:
        try:
            token.with_name(f"{token.name}-{secrets.token_hex(8)}").touch()
        except OSError as reason:
            error = reason.strerror or str(reason)
    return NodeView(reads, error, tuple(path for path in copies if not path.exists()))


_SOCKET = "/ray/session_2000-01-01_00-00-00_000000_4194304/sockets/plasma_store"
_LONGEST_SOCKET = 107 - len(_SOCKET)  # bytes that the system leaves for the folder before it


def check_temporary_folder(run: TrainingRun) -> None:
    """Check that Ray's sockets fit in its temporary folder, where the run starts its own Ray."""
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    size = len(os.fsencode(os.environ.get(name, "")))
    if ray_address(run) == LOCAL and size > _LONGEST_SOCKET:
        found = f"{name} has a path of {size} bytes, which is too long for Ray's sockets"
        raise RejuiceError(found, f"set it to one of at most {_LONGEST_SOCKET}, such as /tmp")


def check_nodes(run: TrainingRun, look: Look = look) -> None:
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
            _check_node(node, view, run.folder)
    finally:
        for file in run.folder.glob(f"{token.name}*"):
            file.unlink(missing_ok=True)


def _too_few(wanted: int, found: int) -> RejuiceError:
    if wanted == 1:
        what = "no Ray cluster runs on this machine, and the run is to join one"
        right = "start Ray, or set neither RAY_ADDRESS nor ray_kwargs.ray_init.address"
        return RejuiceError(what, right)
    there, right = "no Ray cluster runs on this machine", "start Ray on all nodes"
    if found:
        there = f"the Ray cluster has {found} node{'' if found == 1 else 's'}"
        right = "add nodes to it"
    what = f"train.gpu.nodes is {wanted}, and {there}"
    return RejuiceError(what, f"{right}, or lower train.gpu.nodes")


def _check_node(node: str, view: NodeView, folder: Path) -> None:
    if view.error is not None:
        found = f"node {node} cannot write to the folder of the run {folder}: {view.error}"
        raise RejuiceError(found, "let it write there")
    if not view.reads:
        found = f"node {node} does not see the folder of the run {folder}"
        raise RejuiceError(found, "put it on a file system that all nodes share")
    for path in view.lacks:
        right = "let all nodes have the same files at this path"
        raise RejuiceError(f"node {node} does not see {path}", right)
