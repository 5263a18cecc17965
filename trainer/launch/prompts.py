"""The prompts of a run: the steps before sampling, run once, and written as verl reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq

from ...operators.agents.trajectory import FAILURES, POLICY, Turn, turns_of
from ...operators.columns import CREDIT, numbers
from ...operators.errors import DataError
from ...operators.filter.curriculum_filter import CurriculumFilter
from ...operators.groups import Array, Groups, hash_each
from ...operators.sampling.engines import policy_path
from ...operators.sampling.protocol import Settings
from ...operators.sampling.tokenizer import Encode, chat_encoder
from ...pipelines.dataset.read import Dataset, fingerprint, read_all
from ...pipelines.dataset.remote import AnyPath
from ...pipelines.dataset.spec import DatasetSpec
from ...pipelines.engine.conditional_step import MatchLog, unmatched_lines
from ...pipelines.engine.frame import Frame
from ...pipelines.engine.report import DECISIONS
from ...pipelines.recipe.steps import GROUP_OF_ONE, Step, compares_group, of_files
from ..run import TrainingRun, is_prepared
from ..split import RESPONSES, HeldOutSet, replayed_credit
from ..verl.choice import PromptChoice, write_earlier
from ..verl.curation import (
    Curated,
    curate,
    drop_overlong_prompts,
    drop_rows,
    format_drop_counts,
    group_rows_by_prompt,
    prompt_lengths,
)
from . import checkpoints


class PromptCounts(NamedTuple):
    """How many prompts there are, and how many rows of the dataset were dropped."""

    prompts: int
    dropped: int


def write_prompts(run: TrainingRun, *, overwrite: bool = True, by: Encode | None = None) -> None:
    """Write what a run trains and validates on, beside the run's recipe.

    Tokens of prompts are counted `by` the policy's own chat template, where nothing else is given.

    Raises:
        RejuiceError: a dataset is not what the run needs.
    """
    config, rollout, folder = run.config, run.split.rollout, run.folder / "prompts"
    source, longest = run.split.source, config.max_prompt_tokens
    encode = by or chat_encoder(policy_path(run.policy), rollout.chat_template_kwargs)

    for held_out in run.held_out:
        if overwrite or not (folder / f"{held_out.split}.arrow").exists():
            make_held_out(held_out, folder, encode=encode, longest=longest)
        else:  # How they are sampled may have changed.
            write_held_out(held_out, folder)
    # Last: once train.parquet exists, the run can be launched.
    if overwrite or not is_prepared(run.folder):
        if config.replay:
            make_replay(
                config.replay,
                folder,
                source=source,
                longest=(longest, rollout.max_tokens),
                most=rollout.n,
                least=config.prompts_per_step,
                of_agents=run.split.agents is not None,
                after=run.split.after,
            )
        else:
            write_earlier(run)
            make_prompts(
                run.recipe.head.dataset_spec,
                run.split.before,
                folder,
                "train",
                source=source,
                encode=encode,
                longest=longest,
                least=config.prompts_per_step,
            )
    _check_enough_for_steps(run)
    if run.split.choosing:  # So that what fails does so before verl is launched.
        step = (checkpoints.last(run.folder) or 0) + 1
        _check_stages(run, step)
        PromptChoice(run).take(step, config.prompts_per_step)


def _check_enough_for_steps(run: TrainingRun) -> None:
    """Check that there are as many prompts as one step takes, or several that sample ahead."""
    path = run.folder / "prompts" / "train.parquet"
    prompts, least = pq.read_metadata(path).num_rows, run.config.prompts_at_once
    _check_enough(path, prompts, run.config.prompts_per_step)
    if prompts < least:
        raise DataError(
            f"{path} has {prompts} prompts, and by max_age {least} are under way at a time",
            "set max_age or prompts_per_step lower",
        )


def _check_stages(run: TrainingRun, first: int) -> None:
    """Check that each stage of a curriculum that training reaches has prompts."""
    written, prompts = set[str](), Frame.of(run.prompts("train"))
    for step in run.split.choosing:
        operator = step.operator
        is_static = operator.where is None and written.isdisjoint(operator.reads())
        written.update(operator.writes())
        if not isinstance(operator, CurriculumFilter) or not is_static:
            continue
        progress = map(run.progress, range(first, run.config.steps + 1))
        for start in sorted({max(s for s in operator.stages if s <= at) for at in progress}):
            stage = {operator.column: operator.stages[start]}
            match = MatchLog.of(operator.model_copy(update={"where": stage}), prompts)
            if match and (why := match.why_none()):
                found = f"the stage from {start:g} on {why.removeprefix('`where` ')}"
                right = "change the stage, or leave it out"
                raise DataError(found, right, where=run.recipe.where(step))


def make_held_out(
    held_out: HeldOutSet, folder: Path, *, encode: Encode, longest: int
) -> PromptCounts:
    """Write the prompts of a validation set, as `make_prompts` writes those of training.

    Raises:
        RejuiceError: a step fails, or no prompt is left.
    """
    name, source = held_out.split, held_out.source
    counts = make_prompts(
        held_out.path, held_out.steps, folder, name, source=source, encode=encode, longest=longest
    )
    return counts._replace(prompts=write_held_out(held_out, folder))


def write_held_out(held_out: HeldOutSet, folder: Path) -> int:
    """Write the Parquet file of a validation set again: its prompts and how they are sampled.

    Returns:
        The number of prompts.
    """
    table = feather.read_table(folder / f"{held_out.split}.arrow")
    found = for_verl(table, held_out.source, held_out.split, held_out.settings)
    drawn = draw_prompts(table, held_out.max_samples)
    pq.write_table(found.take(drawn), folder / f"{held_out.split}.parquet")
    return len(drawn)


def make_prompts(
    dataset: AnyPath | DatasetSpec,
    steps: Sequence[Step],
    folder: Path,
    name: str,
    *,
    source: str,
    encode: Encode,
    longest: int,
    least: int = 1,
) -> PromptCounts:
    """Write `name.arrow`, the prompts with all their columns, and `name.parquet`, for verl.

    Raises:
        RejuiceError: a step fails, or too few prompts are left.
    """
    curated = prompts_of(dataset, steps, encode, longest)
    table = curated.table
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(curated.decisions, folder / f"{name}-decisions.parquet")
    if not table.num_rows:
        unmatched = unmatched_lines((s, each.why_none()) for s, each in curated.matches.items())
        why = "; ".join([format_drop_counts(curated), *unmatched])
        right = "change the steps before sampling, or the dataset"
        raise DataError(f"{dataset} gives no prompt ({why})", right)
    _check_enough(dataset, table.num_rows, least)
    (folder / f"{name}.hash").write_text(_content_hash(dataset) or "")
    feather.write_feather(table, folder / f"{name}.arrow", compression="uncompressed")
    pq.write_table(for_verl(table, source, name), folder / f"{name}.parquet")
    return PromptCounts(table.num_rows, curated.decisions.num_rows)


def prompts_of(
    dataset: AnyPath | DatasetSpec, steps: Sequence[Step], encode: Encode | None, longest: int
) -> Curated:
    """Return the prompts that the steps before sampling make, each of them once.

    Args:
        dataset: what the steps read.
        steps: those before sampling.
        encode: counts the tokens of a prompt; None: no prompt is too long.
        longest: the most tokens that a prompt may have.

    Raises:
        RejuiceError: a step fails.
    """
    spec = DatasetSpec.of(dataset)
    rows = read_all(spec.with_suffix() if of_files(steps) else spec)
    made = curate(steps, rows)
    if "prompt" in made.table.column_names:  # A step with a `where` leaves others without one.
        made = drop_rows(made, np.asarray(pc.is_null(made.table["prompt"])), "no_prompt")
    prompts = _drop_repeated_prompts(made)
    if encode is None:
        return prompts
    short = drop_overlong_prompts(prompts, encode, longest)
    if not short.table.num_rows:
        most = prompt_lengths(prompts.table["prompt"], encode).max(initial=0)
        if most > longest:
            found = f"no prompt of {dataset} fits train.max_prompt_tokens, {longest:,}"
            raise DataError(found, f"set it higher: the longest has {most:,} tokens or more")
    return short


def _content_hash(dataset: AnyPath | DatasetSpec) -> str | None:
    """Hash of the files of a dataset; None if they are not all on this machine."""
    spec = DatasetSpec.of(dataset)
    there = len(spec.paths) == len(spec.parts) and all(isinstance(p, Path) for p in spec.paths)
    return fingerprint(Dataset(spec).files) if there and spec.exists() else None


def changed_datasets(run: TrainingRun) -> Iterator[str]:
    """Yield the names of the sets of prompts whose files are not those that they were made of."""
    datasets = {"train": run.config.replay or run.recipe.head.dataset_spec}
    for name, dataset in {**datasets, **{each.split: each.path for each in run.held_out}}.items():
        made = run.folder / "prompts" / f"{name}.hash"
        if made.exists() and _content_hash(dataset) not in (None, made.read_text()):
            yield name


def draw_prompts(prompts: pa.Table, most: int | None) -> Array:
    """Return at most so many rows, ascending: always the same, as they are drawn by their ids."""
    drawn: Array = np.argsort(hash_each(prompts["prompt_id"]), kind="stable")[:most]
    return np.sort(drawn)


def _check_enough(dataset: AnyPath | DatasetSpec, prompts: int, least: int) -> None:
    if prompts < least:
        raise DataError(
            f"{dataset} gives {prompts} prompts, a step takes {least}", "set prompts_per_step lower"
        )


def make_replay(
    dataset: Path,
    folder: Path,
    *,
    source: str,
    longest: tuple[int, int],
    most: int,
    least: int = 1,
    of_agents: bool = False,
    after: Sequence[Step] = (),
) -> PromptCounts:
    """Write the groups of a curated dataset as `replay.arrow`, and their prompts as `train.*`.

    Args:
        dataset: sampled responses, as a recipe has curated them.
        folder: where to write.
        source: verl's `data_source`.
        longest: the most tokens that a prompt and a response may have; each turn of an agent is a
            response.
        most: the most responses to a prompt: verl sizes its batches for so many.
        least: the fewest prompts that there may be.
        of_agents: the rows are trajectories of agents.
        after: the recipe's steps after sampling. If what gives credit compares the responses of a
            group, groups of one are left out.

    Raises:
        DataError: a column is missing, a group is too large, or too few are left.
    """
    table = read_all(dataset)
    check_replayed(dataset, table.column_names, of_agents=of_agents)
    curated = Curated(group_rows_by_prompt(table), DECISIONS.empty_table(), {}, {}, {})
    credit = replayed_credit(after, table.column_names)
    compares = any(compares_group(step.operator) for step in credit)
    for reason, drops in (_TRAJECTORY_DROPS if of_agents else _REPLAY_DROPS).items():
        if reason == GROUP_OF_ONE and not compares:
            continue
        curated = drop_rows(curated, drops(curated.table, longest), reason)
    table, groups = curated.table, Groups.of(curated.table)
    if not table.num_rows:
        raise DataError(f"{dataset} gives no group to train on", "it needs two responses or more")
    largest = int(groups.sizes_G.max())
    if largest > most:
        raise DataError(
            f"{dataset} has {largest} responses to one prompt, {_sampler(of_agents)} has n: {most}",
            f"set n to {largest}",
        )
    _check_enough(dataset, len(groups.starts_G), least)
    sampled = [
        name
        for name in table.column_names
        if name.startswith(("response", "reward")) or name in {*_OF_TRAJECTORIES, *CREDIT}
    ]
    first_rows = table.take(groups.starts_G).drop_columns(sampled)
    folder.mkdir(parents=True, exist_ok=True)
    feather.write_feather(table, folder / "replay.arrow", compression="uncompressed")
    feather.write_feather(first_rows, folder / "train.arrow", compression="uncompressed")
    pq.write_table(curated.decisions, folder / "train-decisions.parquet")
    (folder / "train.hash").write_text(_content_hash(dataset) or "")
    pq.write_table(for_verl(first_rows, source, "train"), folder / "train.parquet")
    return PromptCounts(first_rows.num_rows, curated.decisions.num_rows)


def check_replayed(dataset: Path, columns: Sequence[str], *, of_agents: bool = False) -> None:
    """Check that a dataset has the columns that a replay needs.

    Raises:
        DataError: it does not.
    """
    lacking = [
        name for name in (_REPLAYED_TURNS if of_agents else _REPLAYED) if name not in columns
    ]
    if lacking:
        raise DataError(
            f"{dataset} has no column '{lacking[0]}'",
            f"replay needs what {_sampler(of_agents)} and reward_sum_mapper write",
        )
    if not of_agents and "turns" in columns:
        raise DataError(
            f"{dataset} has trajectories of agents",
            f"replay them with a recipe that has {_sampler(True)}",
        )


_REPLAYED = (
    "prompt_id", "prompt", "prompt_token_ids", "response", "response_token_ids",
    "response_logprobs", "reward",
)  # fmt: skip
_OF_TRAJECTORIES = ("turns", "turn_count", "tool_calls", "tool_errors", "tool_seconds")
_REPLAYED_TURNS = ("prompt_id", "prompt", "response", "finish_reason", "turns", "reward")


def _sampler(of_agents: bool) -> str:
    return "agent_rollout_mapper" if of_agents else "policy_rollout_mapper"


def _not_sampled(table: pa.Table, _: tuple[int, int]) -> Array:
    """Return rows without tokens, or without a log-probability for each of them."""
    size_N = _size(table, "response_token_ids")
    drop_N: Array = (size_N == 0) | (size_N != _size(table, "response_logprobs"))
    for name in ("response_token_ids", "response_logprobs"):
        lacking = pc.is_null(pc.list_flatten(table[name]), nan_is_null=True)
        drop_N[pc.list_parent_indices(table[name]).filter(lacking).to_numpy()] = True
    return drop_N


def _without_reward(table: pa.Table, _: tuple[int, int]) -> Array:
    without_N: Array = ~np.isfinite(numbers(table, "reward"))
    return without_N


def _longer(table: pa.Table, longest: tuple[int, int]) -> Array:
    prompt, response = longest
    too_long: Array = _size(table, "prompt_token_ids") > prompt
    return too_long | (_size(table, "response_token_ids") > response)


def _groups_of_one(table: pa.Table, _: tuple[int, int]) -> Array:
    groups = Groups.of(table)
    alone: Array = (groups.sizes_G == 1)[groups.codes_N]
    return alone


_REPLAY_DROPS = {
    "not_sampled": _not_sampled,
    "no_reward": _without_reward,
    "too_long": _longer,
    "group_of_one": _groups_of_one,
}


def _actions(table: pa.Table) -> list[list[Turn]]:
    """Return the turns of the policy in each row."""
    cells = table["turns"].to_pylist()
    return [[turn for turn in turns_of(cell or ()) if turn.role == POLICY] for cell in cells]


def _failed(table: pa.Table, _: tuple[int, int]) -> Array:
    return np.asarray(pc.is_in(table["finish_reason"], pa.array(FAILURES)))


def _not_all_sampled(table: pa.Table, _: tuple[int, int]) -> Array:
    """Trajectories without a turn, or of which one has no tokens or lacks a log-probability."""

    def sampled(turn: Turn) -> bool:
        ids, logprobs = turn.token_ids or (), turn.logprobs or ()
        known = all(each is not None and isfinite(each) for each in logprobs)
        return bool(turn.prompt_token_ids and ids) and len(ids) == len(logprobs) and known

    return np.array([not turns or not all(map(sampled, turns)) for turns in _actions(table)], bool)


def _with_longer_turns(table: pa.Table, longest: tuple[int, int]) -> Array:
    prompt, response = longest

    def too_long(turn: Turn) -> bool:
        return len(turn.prompt_token_ids or ()) > prompt or len(turn.token_ids or ()) > response

    return np.array([any(map(too_long, turns)) for turns in _actions(table)], bool)


_TRAJECTORY_DROPS = {
    "failed_trajectory": _failed,
    "not_sampled": _not_all_sampled,
    "no_reward": _without_reward,
    "too_long": _with_longer_turns,
    "group_of_one": _groups_of_one,
}


def _size(table: pa.Table, name: str) -> Array:
    return np.asarray(pc.fill_null(pc.list_value_length(table[name]), 0))


def _drop_repeated_prompts(curated: Curated) -> Curated:
    """Drop rows whose prompt occurred before: the recipe would see two groups as one."""
    if not curated.table.num_rows:
        return curated
    names = curated.table["prompt_id"].to_pylist()
    first = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))
    repeated_N = np.array([first[name] != row for row, name in enumerate(names)])
    return drop_rows(curated, repeated_N, "repeated_prompt")


def for_verl(
    table: pa.Table, source: str, split: str, settings: Settings | None = None
) -> pa.Table:
    """Prompts as verl's dataset reads them; with settings where they have some of their own."""
    own = {} if settings is None else settings._asdict()
    n = {RESPONSES: pa.repeat(pa.scalar(own.pop("n")), table.num_rows)} if own else {}
    truth = table["reference"] if "reference" in table.column_names else pa.nulls(table.num_rows)
    truths = ["" if each is None else str(each) for each in truth.to_pylist()]
    names = table["prompt_id"].to_pylist()
    infos = [{"index": row, "prompt_id": n, "split": split, **own} for row, n in enumerate(names)]
    return pa.table(
        {
            "data_source": pa.repeat(pa.scalar(source), len(names)),
            "prompt": table["prompt"],
            "ability": pa.repeat(pa.scalar("any"), len(names)),
            "reward_model": pa.array([{"style": "rule", "ground_truth": x} for x in truths]),
            "extra_info": pa.array(infos),
            **n,
        }
    )
