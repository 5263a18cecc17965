"""The answers of a training step, or its judgements, from rollouts to the rows that train."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import transfer_queue as tq

from ...operators.errors import DataError
from ...pipelines.recipe.steps import Step
from .curation import Curated
from .pending_groups import TOKENS, PendingGroups, format_drop_counts
from .rollouts import write, write_turns
from .types import TrajectoryKey
from .values import values_table


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
        found["values"] = values_table(self.rollouts, self.recipe, self.curated.written)
        return found if self.not_asked is None else {**found, "not_asked": self.not_asked}

    @property
    def rows_trained(self) -> int:
        """How many of its rows train."""
        return self.curated.table.num_rows if self.trains else 0

    @property
    def trained_keys(self) -> list[TrajectoryKey]:
        """The rows of TransferQueue that train, in row order."""
        table = self.curated.table
        trains = self.trains and table.num_rows
        return list(chain.from_iterable(self.groups.keys(table))) if trains else []

    def release_to_verl(self, updates: int | None) -> list[TrajectoryKey]:
        """Write the rewards of the rows that train, and clear all others; see `release`."""
        table = self.curated.table if self.trains else self.curated.table.slice(0, 0)
        return release(self.groups, table, "train", "reward", updates)


def release(
    groups: PendingGroups,
    table: pa.Table,
    partition: str,
    reward: str,
    updates: int | None = None,
) -> list[TrajectoryKey]:
    """Write rewards to TransferQueue, and clear what is not in the table.

    Args:
        groups: all groups that were collected.
        table: the rows that verl is to read.
        partition: `train` or `val`; of a trajectory that validates, verl reads the last turn.
        reward: the column that is their reward.
        updates: where turns of trajectories train: how many optimizer updates they do.

    Returns:
        The keys of the rows: those of a trajectory are next to each other, by turn.
    """
    turns = groups.keys(table) if table.num_rows else []
    if partition == "val":
        turns = [keys[-1:] for keys in turns]
    keys = list(chain.from_iterable(turns))
    if keys:
        reward_N = np.repeat(table[reward].to_numpy(), [len(each) for each in turns])
        write(keys, partition, reward_N, groups.lengths(keys))
    if keys and updates is not None:
        write_turns(keys, partition, groups.lengths(keys), updates)
    dropped = map(str, groups.tags.keys() - set(keys))
    cleared = [*groups.uids, *dropped]
    if cleared:
        tq.kv_clear(partition_id=partition, keys=cleared)
    return keys


def tokens_sampled(parts: Mapping[str, StepPart]) -> int:
    """How many tokens all parts of a step have sampled, dropped rows included."""
    lengths = [pc.list_value_length(part.rollouts[TOKENS]) for part in parts.values()]
    return sum(pc.sum(each).as_py() or 0 for each in lengths)


def nothing_to_train_on(step: int, parts: Mapping[str, StepPart], sampler: str) -> DataError:
    """The error of a step in which no row can train; `sampler` names the step that samples."""
    found = f"step {step}: no group is left to train on"
    judged = parts.get("verify")
    if judged is None:
        return DataError(
            f"{found} ({format_drop_counts(parts[''].curated)})",
            f"look at the steps after {sampler}, or allow a refill",
        )
    if judged.rollouts.num_rows or judged.groups.failed:
        return DataError(
            f"{found} ({format_drop_counts(judged.curated)})", "look at the steps that judge"
        )
    return DataError(
        f"{found}: no answer gives a verification prompt",
        "a prompt needs right and wrong answers: take more prompts_per_step or n, or refill",
    )
