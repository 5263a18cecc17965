"""The groups of a step that have ended so far, and what of them can train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators.errors import DataError
from ...operators.groups import Groups, hash_each
from .curation import Curated, Curation, curate, drop_rows
from .failures import NO_PROMPT_LEFT
from .rollouts import Rollouts

TOKENS = "response_token_ids"
_NO_ROLLOUTS = pa.schema(
    [("prompt_id", pa.string()), ("reward", pa.float64()), (TOKENS, pa.list_(pa.int32()))]
).empty_table()


class Held:
    """The groups of a step that have ended so far."""

    def __init__(self, curation: Curation) -> None:
        self.curation = curation
        self.uids: set[str] = set()
        self.tags: dict[str, dict[str, Any]] = {}
        self._key_of: dict[str, str] = {}
        self.ended = self.failed = self.repeated = 0
        self._uid_of: dict[int, str] = {}
        self._parts: list[Rollouts] = []

    def fail(self, prompts: int) -> None:
        """Count prompts that have no responses."""
        self.failed += prompts
        self.ended += prompts

    def add(self, uids: set[str], tags: dict[str, dict[str, Any]], rollouts: Rollouts) -> None:
        """Begin on groups; a prompt that is here already is left out.

        A refill may reach the end of the dataset and begin it anew. The samples of a prompt at a
        step are what its seed makes them: a second group would be the first one again.
        """
        self.uids.update(uids)
        self.ended += len(uids)
        self.tags.update(tags)
        uid_N = [key.rsplit("_", 2)[0] for key in rollouts.keys]
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
        """All rollouts so far, in the order of the prompts, and what became of them."""
        if not self._parts:
            return _NO_ROLLOUTS, curate((), _NO_ROLLOUTS)
        table = pa.concat_tables([part.table for part in self._parts])
        index_N = np.concatenate([part.index_N for part in self._parts])
        rollouts = table.take(np.argsort(index_N, kind="stable"))  # Not of what ended first.
        return rollouts, self.curation.close(rollouts["prompt_id"].unique())

    def keys(self, table: pa.Table) -> list[str]:
        """The trajectories that rows are.

        Raises:
            DataError: a row is none, or two rows are one.
        """
        ids = table["response_id"].to_pylist()
        if len(set(ids)) < len(ids) or not self._key_of.keys() >= set(ids):
            raise DataError(
                "a row is not one response of the policy, or not the only one that is",
                "leave out steps that copy or make rows behind a policy_rollout_mapper",
            )
        return [self._key_of[each] for each in ids]


def number_of_groups(table: pa.Table) -> int:
    """How many prompts the rows are of."""
    return len(Groups.of(table).starts_G)


def trainable(curated: Curated) -> Curated:
    """Less rows that have no reward, or no token to give it to, and less groups of one."""
    if not curated.table.num_rows:
        return curated
    no_tokens_N = np.asarray(pc.equal(pc.list_value_length(curated.table[TOKENS]), 0))
    curated = drop_rows(curated, no_tokens_N, "no_tokens")
    reward_N = curated.table["reward"].to_numpy(zero_copy_only=False).astype(float)
    curated = drop_rows(curated, ~np.isfinite(reward_N), "no_reward")
    groups = Groups.of(curated.table)
    return drop_rows(curated, (groups.sizes_G == 1)[groups.codes_N], "group_of_one")


def surplus(curated: Curated, wanted: int, step: int) -> Curated:
    """Less whole groups, drawn by lot, where there are more than wanted."""
    groups = Groups.of(curated.table)
    prompt_ids_G = curated.table["prompt_id"].take(groups.starts_G)
    if len(prompt_ids_G) <= wanted:
        return curated
    lot_G = hash_each(prompt_ids_G, seed=step)
    last_G = np.zeros(len(prompt_ids_G), bool)
    last_G[np.argsort(lot_G)[wanted:]] = True
    return drop_rows(curated, last_G[groups.codes_N], "surplus_group")


def why(curated: Curated) -> str:
    """The reasons for which rows are gone, and how many rows each."""
    counts = curated.decisions["reason"].value_counts().to_pylist()
    told = sorted(((c["counts"], c["values"]) for c in counts), reverse=True)
    return ", ".join(f"{reason} {count}" for count, reason in told) or NO_PROMPT_LEFT
