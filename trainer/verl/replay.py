"""Training on responses that were collected before: a curated dataset instead of rollouts.

verl requests the prompts of a step as always; their stored responses are put into TransferQueue,
with stored log-probabilities and rewards. Held-out prompts are sampled from the policy itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import transfer_queue as tq
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.ray_utils import auto_await

from ...operators.agents.trajectory import Trajectory, TrajectoryGroup, turns_of
from ...operators.columns import ADVANTAGES
from ...operators.groups import Groups
from ...operators.sampling.protocol import Group, Sample
from ...pipelines.engine.report import DECISIONS
from ...pipelines.recipe.steps import Step, gives_credit
from ..run import TrainingRun
from ..split import replayed_credit
from .advantage import TrajectoryKey
from .curation import Curated
from .groups import QueuedGroups, give_credit, trained_rows
from .trajectories import Slot, TrainedRows, plain, prompt_batch, put, put_trajectories


class StoredGroups(NamedTuple):
    """The stored groups of a run, and the steps that give them credit."""

    table: pa.Table  # rows of a prompt are adjacent
    first_rows: dict[str, int]  # the first row of each prompt, by its id
    credit: tuple[Step, ...]  # none: the credit is stored as well

    @classmethod
    def open(cls, run: TrainingRun) -> StoredGroups:
        table = feather.read_table(run.folder / "prompts" / "replay.arrow")
        starts_G = Groups.of(table).starts_G
        names = table["prompt_id"].take(starts_G).to_pylist()
        first_rows = dict(zip(names, starts_G.tolist(), strict=True))
        credit = replayed_credit(run.split.after, table.column_names)
        if any(gives_credit(step.operator) for step in credit):
            # Stored advantages are not those of the recipe, unless its steps make them of these.
            read = {name for step in credit for name in step.operator.reads()}
            stale = [n for n in ADVANTAGES if n in table.column_names and n not in read]
            table = table.drop_columns(stale)
        return cls(table, first_rows, credit)

    def trained_rows(self, batch: Any) -> tuple[TrainedRows, list[str]]:
        """The rows of a step's `KVBatchMeta` that train, and the keys of the others."""
        tags = {TrajectoryKey.parse(k): tag for k, tag in zip(batch.keys, batch.tags, strict=True)}
        firsts, groups = sorted({key.first for key in tags}), QueuedGroups()
        names = list(map(str, firsts))
        groups.add_rows(dict(zip(names, firsts, strict=True)), tags)
        data = tq.kv_batch_get(names, partition_id="train", select_fields=["extra_info"])
        infos = map(plain, data["extra_info"])
        row_of = [
            self.first_rows[info["prompt_id"]] + key.session
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
    """verl's agent loop manager, for stored groups."""

    def __init__(self, run: Path, live: Any) -> None:
        self._live = live
        table = feather.read_table(run / "prompts" / "replay.arrow")
        self._table, groups = table, Groups.of(table)
        self._of_agents = TrainingRun.open(run).split.agents is not None
        names = table["prompt_id"].take(groups.starts_G).to_pylist()
        ends_G = groups.starts_G + groups.sizes_G
        self._rows = dict(zip(names, zip(groups.starts_G, ends_G, strict=True), strict=True))

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
        """Put the stored groups of the prompts; sample those that are held out."""
        batch = prompt_batch(prompts)
        if batch.partition == "val":
            self._live.generate_sequences(prompts)
            return
        stored = [(slot, self._stored(slot)) for slot in batch.slots]
        rewards = [[row["reward"] for row in rows] for _, rows in stored]
        if self._of_agents:
            trajectories = [(slot, _trajectories(rows)) for slot, rows in stored]
            put_trajectories(trajectories, batch.partition, batch.step, rewards)
        else:
            groups = [(slot, group_of(rows)) for slot, rows in stored]
            put(groups, batch.partition, batch.step, rewards)

    def _stored(self, slot: Slot) -> list[dict[str, Any]]:
        first, end = self._rows[slot.prompt_id]
        rows: list[dict[str, Any]] = self._table.slice(first, end - first).to_pylist()
        return rows


def _trajectories(rows: list[dict[str, Any]]) -> TrajectoryGroup:
    found = tuple(
        Trajectory(turns_of(row["turns"]), row["response"], row["finish_reason"]) for row in rows
    )
    first = rows[0]
    return TrajectoryGroup(first.get("policy") or "", first.get("policy_version") or 0, None, found)


def group_of(rows: list[dict[str, Any]]) -> Group:
    """The stored responses to a prompt, rows by the names of their columns."""
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
