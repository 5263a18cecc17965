"""The prompts of a run: the steps before sampling, run once, and written as verl reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq

from ...operators.agents.trajectory import FAILURES, POLICY
from ...operators.columns import CREDIT, ROW_CONTRACT, flat, numbers
from ...operators.errors import DataError, first_line
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
    first_rows,
    format_drop_counts,
    group_rows_by_prompt,
    prompt_lengths,
)
from . import checkpoints


def write_prompts(run: TrainingRun, *, overwrite: bool = True, by: Encode | None = None) -> None:
    """Write what a run trains and validates on; `by` counts the tokens of prompts."""
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
    """As many prompts as one step takes, or several that sample ahead."""
    path = run.folder / "prompts" / "train.parquet"
    prompts, least = pq.read_metadata(path).num_rows, run.config.prompts_at_once
    _check_enough(path, prompts, run.config.prompts_per_step)
    if prompts < least:
        what = f"{path} has {prompts} prompts, and by max_age {least} are under way at a time"
        raise DataError(what, "set max_age or prompts_per_step lower")


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


def make_held_out(held_out: HeldOutSet, folder: Path, *, encode: Encode, longest: int) -> int:
    name, source = held_out.split, held_out.source
    make_prompts(
        held_out.path, held_out.steps, folder, name, source=source, encode=encode, longest=longest
    )
    return write_held_out(held_out, folder)


def write_held_out(held_out: HeldOutSet, folder: Path) -> int:
    """Its prompts, and how they are sampled; the number of prompts."""
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
) -> int:
    """Write `name.arrow`, the prompts with all their columns, and `name.parquet`, for verl."""
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
    return int(table.num_rows)


def prompts_of(
    dataset: AnyPath | DatasetSpec, steps: Sequence[Step], encode: Encode | None, longest: int
) -> Curated:
    """The prompts that the steps before sampling make; without `encode`, of any length."""
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
    """None if the files are not all on this machine."""
    spec = DatasetSpec.of(dataset)
    there = len(spec.paths) == len(spec.parts) and all(isinstance(p, Path) for p in spec.paths)
    return fingerprint(Dataset(spec).files) if there and spec.exists() else None


def changed_datasets(run: TrainingRun) -> Iterator[str]:
    """The names of the sets of prompts whose files are not those that they were made of."""
    datasets = {"train": run.config.replay or run.recipe.head.dataset_spec}
    for name, dataset in {**datasets, **{each.split: each.path for each in run.held_out}}.items():
        made = run.folder / "prompts" / f"{name}.hash"
        if made.exists() and _content_hash(dataset) not in (None, made.read_text()):
            yield name


def draw_prompts(prompts: pa.Table, most: int | None) -> Array:
    """At most so many rows, ascending: always the same, as they are drawn by their ids."""
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
) -> int:
    """Write the groups of a curated dataset as `replay.arrow`, and their prompts as `train.*`.

    `longest` are the most tokens that a prompt and a response may have; each turn of an agent is a
    response. `most` are the most responses to a prompt, for which verl sizes its batches.
    """
    table = read_all(dataset)
    check_replayed(dataset, table.column_names, of_agents=of_agents)
    table = _typed(table, dataset, of_agents=of_agents)
    curated = Curated(group_rows_by_prompt(table), DECISIONS.empty_table(), {}, {}, {})
    credit = replayed_credit(after, table.column_names)
    compares = any(compares_group(step.operator) for step in credit)
    left_N = np.ones(table.num_rows, bool)
    for reason, drop_N in _unfit(curated.table, longest, of_agents=of_agents).items():
        curated = drop_rows(curated, drop_N[left_N], reason)
        left_N &= ~drop_N
    if compares:
        groups = Groups.of(curated.table)
        curated = drop_rows(curated, (groups.sizes_G == 1)[groups.codes_N], GROUP_OF_ONE)
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
    return int(first_rows.num_rows)


def check_replayed(dataset: Path, columns: Sequence[str], *, of_agents: bool = False) -> None:
    lacking = [
        name for name in (_REPLAYED_TURNS if of_agents else _REPLAYED) if name not in columns
    ]
    if lacking:
        right = f"replay needs what {_sampler(of_agents)} and reward_sum_mapper write"
        raise DataError(f"{dataset} has no column '{lacking[0]}'", right)
    if not of_agents and "turns" in columns:
        what = f"{dataset} has trajectories of agents"
        raise DataError(what, f"replay them with a recipe that has {_sampler(True)}")


_REPLAYED = (
    "prompt_id", "prompt", "prompt_token_ids", "response", "response_token_ids",
    "response_logprobs", "reward",
)  # fmt: skip
_OF_TRAJECTORIES = ("turns", "turn_count", "tool_calls", "tool_errors", "tool_seconds")
_REPLAYED_TURNS = ("prompt_id", "prompt", "response", "finish_reason", "turns", "reward")


_TYPED = ("prompt_token_ids", "response_token_ids", "response_logprobs", "finish_reason", *CREDIT)


def _typed(table: pa.Table, dataset: Path, *, of_agents: bool) -> pa.Table:
    """In JSON, a column or a field has no type of its own where it is null in all rows."""
    for name in (*_TYPED, "turns"):
        if name in table.column_names:
            try:
                typed = table[name].cast(ROW_CONTRACT[name])
            except pa.ArrowException as error:
                found = f"column '{name}' of {dataset}: {first_line(error)}"
                raise DataError(found, f"replay needs what {_sampler(of_agents)} writes") from None
            table = table.set_column(table.column_names.index(name), name, typed)
    return table


def _sampler(of_agents: bool) -> str:
    return "agent_rollout_mapper" if of_agents else "policy_rollout_mapper"


def _unfit(table: pa.Table, longest: tuple[int, int], *, of_agents: bool) -> dict[str, Array]:
    """Which rows cannot train, each bool[N], by reason."""
    row_T, *columns = _turns(table, of_agents=of_agents)
    prompt_T, size_T, logprobs_T = (
        np.asarray(pc.fill_null(pc.list_value_length(each), 0)) for each in columns
    )
    _, ids, logprobs = columns
    lacks_T = (prompt_T == 0) | (size_T == 0) | (size_T != logprobs_T)
    for lists, known in (
        (ids, pc.is_valid(ids.flatten())),
        (logprobs, pc.fill_null(pc.is_finite(logprobs.flatten()), False)),
    ):
        lacks_T[pc.list_parent_indices(lists).filter(pc.invert(known)).to_numpy()] = True
    too_long_T = (prompt_T > longest[0]) | (size_T > longest[1])

    def rows(of_turns_T: Array) -> Array:
        return np.bincount(row_T[of_turns_T], minlength=table.num_rows)

    found = {
        "not_sampled": (rows(lacks_T) > 0) | (np.bincount(row_T, minlength=table.num_rows) == 0),
        "no_reward": ~np.isfinite(numbers(table, "reward")),
        "too_long": rows(too_long_T) > 0,
    }
    if not of_agents:
        return found
    failed_N = np.asarray(pc.is_in(table["finish_reason"], pa.array(FAILURES)))
    return {"failed_trajectory": failed_N, **found}


def _turns(table: pa.Table, *, of_agents: bool) -> tuple[Array, pa.Array, pa.Array, pa.Array]:
    """The row of each turn of the policy, and the tokens of its prompt, its own, and logprobs.

    A response is one turn.
    """
    if not of_agents:
        names = ("prompt_token_ids", "response_token_ids", "response_logprobs")
        prompts, ids, logprobs = (flat(table[name]) for name in names)
        return np.arange(table.num_rows), prompts, ids, logprobs
    lists = flat(table["turns"])
    turns = lists.flatten()
    by_policy = pc.equal(pc.struct_field(turns, "role"), POLICY)
    rows, turns = pc.list_parent_indices(lists).filter(by_policy), turns.filter(by_policy)
    names = ("prompt_token_ids", "token_ids", "logprobs")
    prompts, ids, logprobs = (pc.struct_field(turns, name) for name in names)
    return rows.to_numpy(), prompts, ids, logprobs


def _drop_repeated_prompts(curated: Curated) -> Curated:
    """The recipe would see two groups of a prompt as one."""
    if not curated.table.num_rows:
        return curated
    repeated_N = np.ones(curated.table.num_rows, bool)
    repeated_N[first_rows(curated.table["prompt_id"])] = False
    return drop_rows(curated, repeated_N, "repeated_prompt")


def for_verl(
    table: pa.Table, source: str, split: str, settings: Settings | None = None
) -> pa.Table:
    """As verl's dataset reads prompts; with settings where they have some of their own."""
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
