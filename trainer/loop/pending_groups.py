"""The groups of a step that are finished so far, and which of their rows can train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators.errors import DataError
from ...operators.groups import Groups, hash_each
from .curation import Curated, Curation, curate, drop_rows
from .failures import NO_PROMPT_LEFT
from .types import Rollouts, TrajectoryKey

TOKENS = "response_token_ids"
_NO_ROLLOUTS = pa.schema(
    [("prompt_id", pa.string()), ("reward", pa.float64()), (TOKENS, pa.list_(pa.int32()))]
).empty_table()


class PendingGroups:
    """The groups of a step that are finished so far, while others are still sampled.

    Attributes:
        curation: runs the recipe's steps on the groups.
        uids: keys of the prompts whose groups were added.
        tags: TransferQueue's tags of their trajectories.
        ended: how many prompts have ended, failed ones included.
        failed: how many prompts have no responses.
        repeated: how many groups were left out because their prompt was there already.
    """

    def __init__(self, curation: Curation) -> None:
        self.curation = curation
        self.uids: set[str] = set()
        self.tags: dict[TrajectoryKey, dict[str, Any]] = {}
        self.ended = self.failed = self.repeated = 0
        self._key_of: dict[str, TrajectoryKey] = {}
        self._uid_of: dict[int, str] = {}
        self._parts: list[Rollouts] = []

    def fail(self, prompts: int) -> None:
        """Count prompts that have no responses."""
        self.failed += prompts
        self.ended += prompts

    def add(
        self, uids: set[str], tags: Mapping[TrajectoryKey, dict[str, Any]], rollouts: Rollouts
    ) -> None:
        """Start the curation of groups; a prompt that is here already is left out.

        A refill may reach the end of the dataset and start over. The samples of a prompt at a step
        are determined by its seed: a second group would be the first one again.
        """
        self.uids.update(uids)
        self.ended += len(uids)
        self.tags.update(tags)
        uid_N = [key.uid for key in rollouts.keys]
        first_N = [
            self._uid_of.setdefault(index, uid) == uid
            for index, uid in zip(rollouts.index_N.tolist(), uid_N, strict=True)
        ]
        if not all(first_N):
            self.repeated += len({u for u, first in zip(uid_N, first_N, strict=True) if not first})
            rollouts = rollouts.take(np.flatnonzero(first_N))
        ids = rollouts.table["response_id"].to_pylist()
        self._key_of.update(zip(ids, rollouts.keys, strict=True))
        self._parts.append(rollouts)
        self.curation.add(rollouts.table)

    def close(self) -> tuple[pa.Table, Curated]:
        """All rollouts so far, in the order of the prompts, and what the recipe made of them."""
        if not self._parts:
            return _NO_ROLLOUTS, curate((), _NO_ROLLOUTS)
        table = pa.concat_tables([part.table for part in self._parts])
        index_N = np.concatenate([part.index_N for part in self._parts])
        # The order in which groups finished must not matter.
        rollouts = table.take(np.argsort(index_N, kind="stable"))
        return rollouts, self.curation.close(rollouts["prompt_id"].unique())

    def keys(self, table: pa.Table) -> list[TrajectoryKey]:
        """The trajectory of each row.

        Raises:
            DataError: a row has none, or two rows have the same one.
        """
        ids = table["response_id"].to_pylist()
        if len(set(ids)) < len(ids) or not self._key_of.keys() >= set(ids):
            raise DataError(
                "a row is not one response of the policy, or not the only one that is",
                "leave out steps that copy or make rows after a policy_rollout_mapper",
            )
        return [self._key_of[each] for each in ids]


def number_of_groups(table: pa.Table) -> int:
    """How many prompts the rows belong to."""
    return len(Groups.of(table).starts_G)


def drop_untrainable(curated: Curated) -> Curated:
    """Drop rows that have no reward or no token to give it to, then groups of one."""
    if not curated.table.num_rows:
        return curated
    no_tokens_N = np.asarray(pc.equal(pc.list_value_length(curated.table[TOKENS]), 0))
    curated = drop_rows(curated, no_tokens_N, "no_tokens")
    reward_N = curated.table["reward"].to_numpy(zero_copy_only=False).astype(float)
    curated = drop_rows(curated, ~np.isfinite(reward_N), "no_reward")
    groups = Groups.of(curated.table)
    return drop_rows(curated, (groups.sizes_G == 1)[groups.codes_N], "group_of_one")


def drop_excess_groups(curated: Curated, wanted: int, step: int) -> Curated:
    """Drop whole groups in a seeded random order, if there are more than wanted."""
    groups = Groups.of(curated.table)
    prompt_ids_G = curated.table["prompt_id"].take(groups.starts_G)
    if len(prompt_ids_G) <= wanted:
        return curated
    order_G = np.argsort(hash_each(prompt_ids_G, seed=step))
    excess_G = np.zeros(len(prompt_ids_G), bool)
    excess_G[order_G[wanted:]] = True
    return drop_rows(curated, excess_G[groups.codes_N], "surplus_group")


def format_drop_counts(curated: Curated) -> str:
    """The reasons for which rows were dropped, and how many rows each."""
    counts = curated.decisions["reason"].value_counts().to_pylist()
    by_count = sorted(((c["counts"], c["values"]) for c in counts), reverse=True)
    return ", ".join(f"{reason} {count}" for count, reason in by_count) or NO_PROMPT_LEFT
