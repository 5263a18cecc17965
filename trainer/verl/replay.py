"""Stored groups that train: those of a curated dataset, and those of earlier steps.

`train.replay`: verl requests the prompts of a step as always; their stored responses are put into
TransferQueue, with stored log-probabilities and rewards. Held-out prompts are sampled from the
policy itself.

`replay_selector`, where a step has fewer groups than prompts:

    files of the last steps ──> groups that trained ──> log-probabilities by the current policy
        ──> `replay_selector` and the steps after it ──> rows of TransferQueue

In TransferQueue, their tokens have the log-probabilities of the current policy in place of those of
the one that sampled them: the update starts from them. What corrects the difference is a weight of
tokens, which `importance_weight_mapper` writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import transfer_queue as tq
from numpy.typing import NDArray
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.ray_utils import auto_await

from ...operators.agents.trajectory import Trajectory, TrajectoryGroup, turns_of
from ...operators.columns import ADVANTAGES, ROW_CONTRACT, BoolArray, flat
from ...operators.errors import DataError
from ...operators.groups import Array, Groups
from ...operators.importance import (
    LAST_VERSION,
    POLICY_AGE,
    POLICY_LOGPROBS,
    REPLAYED_FROM,
    SAMPLED_LOGPROBS,
)
from ...operators.logs import redact
from ...operators.sampling.protocol import Group, Sample
from ...operators.selector.replay_selector import ReplaySelector, preferred
from ...pipelines.engine.report import DECISIONS
from ...pipelines.recipe.recipe import load
from ...pipelines.recipe.steps import Step, gives_credit
from ..run import TrainingRun, plan_step
from ..split import REPLAYED, grading_and_credit, replayed_credit
from .advantage import TrajectoryKey
from .credit import has_signal
from .curation import TRAINING, Curated, recorded_steps
from .groups import (
    AFTER_CREDIT,
    QueuedGroups,
    StepPart,
    give_credit,
    number_of_groups,
    trained_rows,
)
from .trajectories import AnyGroup, Slot, TrainedRows, plain, prompt_batch, put


class StoredGroups(NamedTuple):
    table: pa.Table  # rows of a prompt are adjacent
    rows: dict[str, range]  # of each prompt, by its id
    credit: tuple[Step, ...]  # none: the credit is stored as well

    @classmethod
    def open(cls, run: TrainingRun) -> StoredGroups:
        table = feather.read_table(run.folder / "prompts" / "replay.arrow")
        groups = Groups.of(table)
        names = table["prompt_id"].take(groups.starts_G).to_pylist()
        ranges = map(range, groups.starts_G, groups.starts_G + groups.sizes_G)
        credit = replayed_credit(run.split.after, table.column_names)
        if any(gives_credit(step.operator) for step in credit):
            # Stored advantages are not those of the recipe, unless its steps make them of these.
            read = {name for step in credit for name in step.operator.reads()}
            stale = [n for n in ADVANTAGES if n in table.column_names and n not in read]
            table = table.drop_columns(stale)
        return cls(table, dict(zip(names, ranges, strict=True)), credit)

    def trained_rows(self, batch: Any) -> tuple[TrainedRows, list[str]]:
        """The rows of a step's `KVBatchMeta` that train, and the keys of the others."""
        tags = {TrajectoryKey.parse(k): tag for k, tag in zip(batch.keys, batch.tags, strict=True)}
        firsts, groups = sorted({key.first for key in tags}), QueuedGroups()
        names = list(map(str, firsts))
        groups.add_rows(dict(zip(names, firsts, strict=True)), tags)
        data = tq.kv_batch_get(names, partition_id="train", select_fields=["extra_info"])
        infos = map(plain, data["extra_info"])
        row_of = [
            self.rows[info["prompt_id"]][key.session]
            for info, key in zip(infos, firsts, strict=True)
        ]
        order = np.argsort(row_of, kind="stable")
        table = self.table.take(pa.array(np.array(row_of)[order]))
        ids = pa.array([names[at] for at in order])
        if "response_id" in table.column_names:
            table = table.drop_columns(["response_id"])
        table = table.append_column("response_id", ids)
        stored = Curated(table, DECISIONS.empty_table(), {}, {}, {})
        left = give_credit(stored, self.credit).table
        rows = trained_rows(left, groups.keys(left), tags)
        return rows, [str(key) for key in tags.keys() - set(rows.keys)]


class ReplayManager:
    def __init__(self, run: Path, live: Any) -> None:
        self._live = live
        opened = TrainingRun.open(run)
        self._stored, self._of_agents = StoredGroups.open(opened), opened.split.agents is not None

    @classmethod
    @auto_await  # type: ignore[untyped-decorator]
    async def create(cls, config: Any, **clients: Any) -> ReplayManager:
        """By the signature with which verl creates one."""
        settings = config.trainer.v1.sampler.sampler_kwargs
        kind = load_class_from_fqn(settings.live)
        made = kind.create(config=config, **clients)
        live = await made if hasattr(made, "__await__") else made
        return cls(Path(settings.run), live)

    def generate_sequences(self, prompts: Any) -> None:
        batch = prompt_batch(prompts)
        if batch.partition == "val":
            self._live.generate_sequences(prompts)
            return
        found = [self._stored.rows[slot.prompt_id] for slot in batch.slots]
        tables = [self._stored.table.slice(rows.start, len(rows)) for rows in found]
        stored = [*zip(batch.slots, (each.to_pylist() for each in tables), strict=True)]
        rewards = [[row["reward"] for row in rows] for _, rows in stored]
        made: Callable[[list[dict[str, Any]]], AnyGroup]
        made = _trajectories if self._of_agents else group_of
        put([(slot, made(rows)) for slot, rows in stored], batch.partition, batch.step, rewards)


def _trajectories(rows: list[dict[str, Any]]) -> TrajectoryGroup:
    found = tuple(
        Trajectory(turns_of(row["turns"]), row["response"], row["finish_reason"]) for row in rows
    )
    first = rows[0]
    return TrajectoryGroup(first.get("policy") or "", first.get("policy_version") or 0, None, found)


def group_of(rows: list[dict[str, Any]]) -> Group:
    samples = tuple(
        Sample(
            row["response"],
            tuple(row["response_token_ids"]),
            tuple(row["response_logprobs"]),
            row.get("finish_reason") or "stop",
        )
        for row in rows
    )
    first = rows[0]
    ids = tuple(first["prompt_token_ids"])
    return Group(first.get("policy") or "", first.get("policy_version") or 0, None, ids, samples)


# --- Groups of earlier steps that train again ------------------------------------------

_READ_PER_MISSING = 2
"""Groups that get log-probabilities for each one that is missing: some may be outside the range."""
_OF_GROUPS = (
    "prompt_id", "prompt_token_ids", "response", "response_token_ids", "finish_reason", "policy",
    "policy_version",
)  # fmt: skip
"""Columns of which a group of TransferQueue is made."""


def replayable(
    run: TrainingRun, step: int, selector: ReplaySelector, missing: int, sampled: Collection[str]
) -> pa.Table:
    """Groups that trained in earlier steps, as they came to the selector.

    They are rows as sampled and graded, with `replayed_from` and `policy_age`: of the groups that
    the selector prefers, a few more than are missing. Of a prompt there is one group, the newest,
    and none of those that the step has sampled itself.
    """
    steps = range(max(1, step - selector.max_age), step)
    replays, most = _replays(run, steps), _READ_PER_MISSING * missing
    seen, tables, found = set(sampled), list[pa.Table](), 0
    for earlier in reversed(steps):
        if found >= most:
            break
        folder = run.step_folder(earlier)
        # Of a step without a recipe nothing was kept.
        if not plan_step(run.config, earlier).answers or not (folder / "recipe.yaml").is_file():
            continue
        table = _trained(folder)
        names = table["prompt_id"].unique().to_pylist() if table.num_rows else []
        left = [n for n in names if n not in seen and replays[n, earlier] < selector.max_replays]
        seen.update(names)
        if not left:
            continue
        table = table.filter(pc.is_in(table["prompt_id"], value_set=pa.array(left, pa.string())))
        ages = step - earlier + _ages(table)
        lost = {POLICY_AGE, LAST_VERSION, POLICY_LOGPROBS} & {*table.column_names}
        table = table.drop_columns(sorted(lost))
        for name, value in ((REPLAYED_FROM, np.full(len(ages), earlier)), (POLICY_AGE, ages)):
            table = table.append_column(name, pa.array(value, pa.int64()))
        tables.append(table)
        found += len(left)
    if not tables:
        return pa.table({})
    table = pa.concat_tables(tables, promote_options="permissive")
    groups = Groups.of(table)
    chosen_G = np.zeros(found, bool)
    chosen_G[preferred(table, groups)[:most]] = True
    return table.filter(pa.array(chosen_G[groups.codes_N]))


def _trained(folder: Path) -> pa.Table:
    """The groups of a step that trained, with what the steps before the selector wrote.

    Rows that the steps of credit dropped, such as masked ones, are among them: they count in the
    statistics of their group.
    """
    rollouts, values, decisions = (_read(folder, n) for n in ("rollouts", "values", "decisions"))
    if not rollouts.num_rows:
        return rollouts
    left_N = ~_is_in(rollouts["response_id"], decisions["row_id"])
    signal_N = left_N & has_signal(values)
    recorded = recorded_steps(values.schema)
    kept = [each for each in recorded if each is not None]
    if len(kept) < len(recorded):  # A step made rows, of which no values are kept.
        return rollouts.slice(0, 0)
    own = load(folder / "recipe.yaml").steps  # Today's may be others.
    at = len(grading_and_credit(own)[0])
    grading, credit = kept[:at], kept[at:]
    of_credit = _is_in(decisions["step"], pa.array([x.name for x in credit], pa.string()))
    of_credit |= _is_in(decisions["reason"], pa.array(sorted(AFTER_CREDIT))) & _is_in(
        decisions["step"], pa.array([TRAINING])
    )
    before_N = ~_is_in(rollouts["response_id"], decisions["row_id"].filter(pa.array(~of_credit)))
    for each in grading:
        lost = {*each.columns, *each.without} & {*rollouts.column_names}
        rollouts = rollouts.drop_columns(sorted(lost))
        for name, stored in each.columns.items():
            rollouts = rollouts.append_column(name, values[stored])
    groups = Groups.of(rollouts)
    trained_G = groups.sum(signal_N) > 0
    return rollouts.filter(pa.array(before_N & trained_G[groups.codes_N]))


def _ages(table: pa.Table) -> Array:
    """How old responses were in their own step, int64[N]."""
    if POLICY_AGE not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    return np.asarray(pc.fill_null(table[POLICY_AGE], 0))


def _is_in(values: pa.ChunkedArray, names: pa.Array | pa.ChunkedArray) -> BoolArray:
    return np.asarray(pc.is_in(values, value_set=flat(names)), bool)


def _replays(run: TrainingRun, steps: range) -> Counter[tuple[str, int]]:
    """How often each prompt's group of each step has trained again in these steps."""
    found = Counter[tuple[str, int]]()
    for step in steps:
        folder = run.step_folder(step) / REPLAYED
        if not (folder / "recipe.yaml").is_file():
            continue
        rows = _read(folder, "rollouts", ["response_id", "prompt_id", REPLAYED_FROM])
        lost_N = _is_in(rows["response_id"], _read(folder, "decisions")["row_id"])
        rows = rows.filter(pa.array(~lost_N))
        pairs = zip(rows["prompt_id"].to_pylist(), rows[REPLAYED_FROM].to_pylist(), strict=True)
        found.update(set(pairs))
    return found


def _read(folder: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    file = folder / f"{name}.parquet"
    try:
        return pq.read_table(file, columns=columns and list(columns))
    except (OSError, pa.ArrowException) as error:
        right = "groups of the last steps are replayed: put the file back, or begin anew"
        raise DataError(f"{file} cannot be read: {redact(str(error))}", right) from error


def with_logprobs(table: pa.Table, logprobs: Sequence[NDArray[np.float32] | None]) -> pa.Table:
    """With log-probabilities of their tokens by the current policy, as far as given."""
    column = pa.array(logprobs, ROW_CONTRACT[SAMPLED_LOGPROBS])
    return table.append_column(POLICY_LOGPROBS, column)


def put_rows(table: pa.Table, step: int, logprobs: str) -> QueuedGroups:
    """Put the responses of whole or partial groups, rows of a prompt adjacent, into TransferQueue.

    There they get the log-probabilities of the column `logprobs`.
    """
    groups = QueuedGroups()
    if not table.num_rows:
        return groups
    read = [name for name in _OF_GROUPS if name in table.column_names]
    rows: list[dict[str, Any]] = [
        {**row, SAMPLED_LOGPROBS: row[logprobs]}
        for row in table.select([*read, logprobs]).to_pylist()
    ]
    starts_G = Groups.of(table).starts_G.tolist()
    pairs = []
    for start, end in zip(starts_G, [*starts_G[1:], len(rows)], strict=True):
        own = rows[start:end]
        slot = Slot(str(uuid4()), {"extra_info": {"prompt_id": own[0]["prompt_id"]}})
        pairs.append((slot, group_of(own)))
    tags = put(pairs, "train", step)
    groups.add_rows(dict(zip(table["response_id"].to_pylist(), tags, strict=True)), tags)
    return groups


def replayed_figures(part: StepPart, trained: int) -> Mapping[str, float]:
    """For `rejuice/replayed/...`; `trained` are the rows of all parts that train."""
    table = part.trained
    found = {"rows_trained": float(table.num_rows), "groups": 0.0, "share": 0.0}
    found |= part.curated.figures
    if not table.num_rows:
        return found
    for name in (POLICY_AGE, "importance_ratio", "mean_token_ratio"):
        found[name] = float(np.mean(np.asarray(table[name], float)))
    return found | {"groups": float(number_of_groups(table)), "share": table.num_rows / trained}
