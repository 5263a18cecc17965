"""Where groups are complete: verl's replay buffer, with the recipe between rollouts and update.

    verl                          here
    sample(step, "train", B) ──>  wait for groups, run the recipe's steps on those that are there
                             <──  keys of the rows that are left, with their rewards; figures

Named in `trainer.v1.sampler.custom_sampler`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ...operators.errors import DataError
from ...operators.groups import Groups, hash_each
from ..cut import ACCURACY, grading
from ..launch.failure import NO_PROMPT_LEFT
from ..run import TrainingRun
from .advantage import asked, register
from .books import Clock, StepBooks, figures
from .curation import Curated, Curation, at_progress, curate, threads, without
from .rollouts import Rollouts, read, write

_POLL_S = 0.02
_TOKENS = "response_token_ids"
_NO_ROLLOUTS = pa.schema([("prompt_id", pa.string()), ("reward", pa.float64())]).empty_table()


class RecipeBuffer(ReplayBuffer):  # type: ignore[misc]
    """Groups of a step, through the recipe.

    A row is dropped for a reason or it trains; what is dropped is booked beside the rollouts of
    the step and leaves TransferQueue. Groups of one never train: GRPO would take their raw reward
    for an advantage.
    """

    def __init__(self, *args: Any, sampler_kwargs: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, sampler_kwargs=sampler_kwargs, **kwargs)
        self.poll_interval = _POLL_S
        self._run = TrainingRun.open(Path(sampler_kwargs["run"]))
        self._sampler = self._run.sampler()
        self._pool = threads()
        register(asked(self._run.cut.after))
        self._books = StepBooks(self._run)
        self._clock = Clock()

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """The trajectories to train on, or to validate on, once their groups are complete."""
        if partition_id == "val":
            return self._validation(global_steps, batch_size)
        if self._run.config.replay:
            found: tuple[KVBatchMeta, dict[str, Any]] = super().sample(
                global_steps, partition_id, batch_size
            )
            return found
        return self._training(global_steps, batch_size)

    # ------------------------------------------------------------------ training

    def _training(self, step: int, groups_wanted: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        progress = self._run.progress(step)
        steps = at_progress(self._run.cut.after, progress)
        asked, refills, held = groups_wanted, 0, _Held(Curation(steps, self._pool))
        while True:
            self._gather(held, asked, "train")
            ended = time.perf_counter()
            with self._clock("close"):
                curated = _trainable(held.close())
            left = len(Groups.of(curated.table).starts_G)
            missing = groups_wanted - left
            if missing <= 0 or refills == self._run.config.refill:
                break
            # As many as will fill the batch at the rate at which groups were left.
            more = min(groups_wanted, -(-missing * asked // max(left, 1)))
            asked += self.refill_fn(more)
            refills += 1
        if not left:
            raise DataError(
                f"step {step}: no group is left to train on ({_why(curated)})",
                "look at the steps behind policy_rollout_mapper, or allow a refill",
            )
        if refills and missing > 0:
            print(f"step {step}: {left} of {groups_wanted} groups after {refills} refills")
        with self._clock("close"):
            curated = _surplus(curated, groups_wanted, step)
            rollouts = held.table()
            found = figures(curated, rollouts, self._run.cut.after)
        with self._clock("write"):
            keys = self._kept(held, curated)
        self._books.keep(step, rollouts, curated, self._run.step_recipe(step, steps))
        if step >= self._run.config.steps:
            self._books.wait()  # No later step would tell that they could not be written.
        found["rejuice/groups"] = min(left, groups_wanted)
        found["rejuice/refills"] = refills
        found["rejuice/failed_prompts"] = held.failed
        found["rejuice/repeated_prompts"] = held.repeated
        found["rejuice/progress"] = progress
        found["rejuice/seconds/after_sampling"] = time.perf_counter() - ended
        spent = {**self._clock.read(), "operators": sum(curated.seconds.values())}
        found.update({f"rejuice/seconds/{name}": value for name, value in spent.items()})
        tags = [held.tags[key] for key in keys]
        return KVBatchMeta(partition_id="train", keys=keys, tags=tags), found

    def _gather(self, held: _Held, asked: int, partition: str) -> None:
        """Wait until so many groups have ended; the recipe begins on those that have."""
        run = self._run
        while held.ended < asked:
            self._sync_metadata_from_transfer_queue()
            # A sampler that dies says of all its prompts that they failed, also of these.
            failed = self.failure_keys[partition] - held.uids
            fresh = self.finished_keys[partition] - held.uids
            if not failed and not fresh:
                held.curation.check()
                time.sleep(self.poll_interval)
                continue
            tags = {
                key: tag
                for key, tag in self.partitions[partition].items()
                if key.split("_")[0] in fresh
            }
            held.fail(len(failed))
            self._clear_groups(partition, failed)
            if fresh:
                with self._clock("read"):
                    rollouts = read(tags, partition, run.prompts(partition), *self._sampler)
                held.add(fresh, tags, rollouts)

    def _kept(self, held: _Held, curated: Curated) -> list[str]:
        """Write the rewards, let the other rows go; the keys that are left, in order."""
        table, keys = curated.table, held.keys(curated.table)
        reward_N = table["reward"].to_numpy()
        lengths_N = np.asarray(pc.list_value_length(table[_TOKENS]))
        write(keys, "train", reward_N, lengths_N)
        dropped = list(held.tags.keys() - set(keys))
        tq.kv_clear(partition_id="train", keys=[*held.uids, *dropped])
        return keys

    # ------------------------------------------------------------------ validation

    def _validation(self, step: int, groups: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        held = _Held(Curation(grading(self._run.cut.after), self._pool))
        self._gather(held, groups, "val")
        table = held.close().table
        if not table.num_rows:
            raise DataError(f"step {step}: every prompt of the validation failed")
        self._books.validate(step, table)
        # verl takes the mean, of which one nan would make another.
        table = table.filter(pc.is_finite(table[ACCURACY]).fill_null(False))
        if table.num_rows < len(held.tags):
            print(f"step {step}: {len(held.tags) - table.num_rows} responses have no accuracy")
        keys = held.keys(table)
        lengths_N = np.asarray(pc.list_value_length(table[_TOKENS]))
        write(keys, "val", table[ACCURACY].to_numpy(), lengths_N)
        tq.kv_clear(partition_id="val", keys=[*held.uids, *(held.tags.keys() - set(keys))])
        tags = [held.tags[key] for key in keys]
        return KVBatchMeta(partition_id="val", keys=keys, tags=tags), {}


class _Held:
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

    def close(self) -> Curated:
        """What became of all rollouts so far."""
        if not self._parts:
            return curate((), _NO_ROLLOUTS)
        return self.curation.close(self.table()["prompt_id"].unique())

    def keys(self, table: pa.Table) -> list[str]:
        """The trajectories that rows are.

        Raises:
            DataError: a row is none, or two rows are one.
        """
        ids = table["response_id"].to_pylist()
        if len(set(ids)) < len(ids) or not self._key_of.keys() >= set(ids):
            raise DataError(
                "a row is not one response of the policy, or not the only one that is",
                "leave out steps behind policy_rollout_mapper that copy or make rows",
            )
        return [self._key_of[each] for each in ids]

    def table(self) -> pa.Table:
        """All rollouts, in the order of the prompts: not of what ended first."""
        if not self._parts:
            return _NO_ROLLOUTS
        table = pa.concat_tables([part.table for part in self._parts])
        index_N = np.concatenate([part.index_N for part in self._parts])
        return table.take(np.argsort(index_N, kind="stable"))


def _trainable(curated: Curated) -> Curated:
    """Less rows that have no reward, or no token to give it to, and less groups of one."""
    if not curated.table.num_rows:
        return curated
    no_tokens_N = np.asarray(pc.equal(pc.list_value_length(curated.table[_TOKENS]), 0))
    curated = without(curated, no_tokens_N, "no_tokens")
    reward_N = curated.table["reward"].to_numpy(zero_copy_only=False).astype(float)
    curated = without(curated, ~np.isfinite(reward_N), "no_reward")
    groups = Groups.of(curated.table)
    return without(curated, (groups.sizes_G == 1)[groups.codes_N], "group_of_one")


def _surplus(curated: Curated, wanted: int, step: int) -> Curated:
    """Less whole groups, drawn by lot, where there are more than wanted."""
    groups = Groups.of(curated.table)
    prompt_ids_G = curated.table["prompt_id"].take(groups.starts_G)
    if len(prompt_ids_G) <= wanted:
        return curated
    lot_G = hash_each(prompt_ids_G, seed=step)
    last_G = np.zeros(len(prompt_ids_G), bool)
    last_G[np.argsort(lot_G)[wanted:]] = True
    return without(curated, last_G[groups.codes_N], "surplus_group")


def _why(curated: Curated) -> str:
    counts = curated.decisions["reason"].value_counts().to_pylist()
    told = sorted(((c["counts"], c["values"]) for c in counts), reverse=True)
    return ", ".join(f"{reason} {count}" for count, reason in told) or NO_PROMPT_LEFT
