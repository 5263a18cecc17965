"""The answers of a training step, or its judgements, from rollouts to the rows that train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import transfer_queue as tq

from ...operators.errors import DataError
from ...pipelines.recipe.steps import Step
from .curation import Curated
from .pending_groups import TOKENS, PendingGroups, format_drop_counts
from .rollouts import write
from .types import TrajectoryKey


class StepPart(NamedTuple):
    """Answers of a step, or judgements, and what became of them.

    Attributes:
        groups: their groups.
        rollouts: as sampled.
        curated: what the recipe left of them, without untrainable rows if they train.
        recipe: the steps that they went through.
        trains: whether they train.
        not_asked: decisions about verification prompts that were not chosen.
    """

    groups: PendingGroups
    rollouts: pa.Table
    curated: Curated
    recipe: tuple[Step, ...]
    trains: bool
    not_asked: pa.Table | None = None

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The tables that are kept of it, by the names of their files."""
        found = {"rollouts": self.rollouts}
        found |= {"curated": self.curated.table, "decisions": self.curated.decisions}
        return found if self.not_asked is None else {**found, "not_asked": self.not_asked}

    def release_to_verl(self) -> list[TrajectoryKey]:
        """Write the rewards of the rows that train, and clear all others; keys in row order."""
        table = self.curated.table
        return release(self.groups, table if self.trains else table.slice(0, 0), "train", "reward")


def release(
    groups: PendingGroups, table: pa.Table, partition: str, reward: str
) -> list[TrajectoryKey]:
    """Write rewards to TransferQueue, and clear what is not in the table.

    Args:
        groups: all groups that were collected.
        table: the rows that verl is to read.
        partition: `train` or `val`.
        reward: the column that is their reward.

    Returns:
        The keys of the rows.
    """
    keys = groups.keys(table) if table.num_rows else []
    if keys:
        lengths_N = np.asarray(pc.list_value_length(table[TOKENS]))
        write(keys, partition, table[reward].to_numpy(), lengths_N)
    dropped = map(str, groups.tags.keys() - set(keys))
    cleared = [*groups.uids, *dropped]
    if cleared:
        tq.kv_clear(partition_id=partition, keys=cleared)
    return keys


def tokens_sampled(parts: Mapping[str, StepPart]) -> int:
    """How many tokens all parts of a step have sampled, dropped rows included."""
    lengths = [pc.list_value_length(part.rollouts[TOKENS]) for part in parts.values()]
    return sum(pc.sum(each).as_py() or 0 for each in lengths)


def nothing_to_train_on(step: int, parts: Mapping[str, StepPart]) -> DataError:
    """The error of a step in which no row can train."""
    found = f"step {step}: no group is left to train on"
    judged = parts.get("verify")
    if judged is None:
        return DataError(
            f"{found} ({format_drop_counts(parts[''].curated)})",
            "look at the steps after policy_rollout_mapper, or allow a refill",
        )
    if judged.rollouts.num_rows or judged.groups.failed:
        return DataError(
            f"{found} ({format_drop_counts(judged.curated)})", "look at the steps that judge"
        )
    return DataError(
        f"{found}: no answer gives a verification prompt",
        "a prompt needs right and wrong answers: take more prompts_per_step, or a larger n",
    )
