"""Prompts that are sampled ahead of the step that trains on them.

    requests    1 2 3 4 | 5 6 7 8 | 9 10 11 12 | ...      prompts_per_step at a time
    step 1 trains on 1 to 4 while 5 to 12 are sampled, if max_age is 2

The key of a prompt in TransferQueue is the number of its request in the run, so that the keys are
in the order of the requests, and those of a run that is resumed go on where they were.

While a step updates the policy, the groups of the next one enter the recipe as they finish.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import transfer_queue as tq
from tensordict import NonTensorStack

from ...operators.columns import BoolArray, flat, numbers
from ...operators.filter.policy_age_filter import TOO_OLD
from ...operators.importance import POLICY_AGE
from ...pipelines.analysis.figures import few_sources
from .. import saved
from ..run import TrainingRun
from .advantage import TrajectoryKey
from .curation import Curated, poll_interval
from .figures import Clock
from .groups import PendingGroups
from .sampled import SampledGroups
from .trajectories import Polled, plain
from .verl_trainer import VerlTrainer


class Ahead:
    """The requests of a run that samples ahead, which get numbers."""

    def __init__(self, run: TrainingRun, trainer: VerlTrainer) -> None:
        self._run, self._config = run, run.config
        self._next: int | None = None
        self._taken: dict[str, int] = {}  # by key, the step that has trained on the prompt
        self._sampled = SampledGroups(run.folder) if run.config.profile == "cpu" else None
        trainer.name_requests(self._name)
        trainer.stop_requests(run.config.max_age)
        trainer.update_sampler_every(run.config.sync_every)

    def _name(self, requests: Any) -> None:
        if self._next is None:
            self._next = self._resumed()
        own = range(self._next, self._next + len(requests))
        self._next = own.stop
        requests["uid"] = NonTensorStack(*(f"{number:09d}" for number in own))

    def _resumed(self) -> int:
        """Clean up what was trained on before a resume; the number of the next request."""
        polled = Polled.of("train")
        there = polled.status
        # A checkpoint has the rows, without their prompts, that its step trained on.
        trained = [key for key in polled.rows if key.rsplit("_", 2)[0] not in there]
        if trained:
            tq.kv_clear(partition_id="train", keys=trained)
        last = max(map(int, there), default=-1)
        if self._sampled is not None:
            stored = self._sampled.uids()
            self._sampled.forget(u for u in stored if int(u) <= last and u not in there)
        return last + 1

    def begin(self, step: int) -> None:
        """Remove files of groups that were trained on, and that no resume would need again."""
        # A run without checkpoints begins anew.
        safe = saved.last(self._run.folder) if self._config.save_every else step
        done = [uid for uid, taken in self._taken.items() if safe is not None and taken <= safe]
        if self._sampled is not None:
            self._sampled.forget(done)
        for uid in done:
            del self._taken[uid]

    def take(self, step: int, uids: Collection[str], too_old: str | None) -> None:
        """Note the prompts that a step has taken, and print what of them it drops for its age."""
        self._taken.update(dict.fromkeys(uids, step))
        if too_old:
            print(f"step {step}: {too_old}")

    def turn(self, under_way: set[str], ended: set[str], wanted: int) -> set[str]:
        """The prompts that a step may take now or waits for; none: there are no others."""
        if self._config.wait_for_slow:
            return set(sorted(under_way | ended)[:wanted])
        return set(sorted(ended)[:wanted]) or under_way


class NextGroups:
    """The groups of the next step, which are read as they finish, while the policy is updated."""

    def __init__(self, step: int, groups: PendingGroups, wanted: int, ahead: Ahead) -> None:
        self.step, self._groups, self._wanted, self._ahead = step, groups, wanted, ahead
        self._clock, self._stop, self._error = Clock(), Event(), list[Exception]()
        # Not waited for, if there is no next step.
        self._thread = Thread(target=self._read, name="rejuice-next-groups", daemon=True)
        self._thread.start()

    def take(self, clock: Clock) -> PendingGroups:
        """Read no more of them, and return them; what it has taken is added to the clock."""
        self.stop()
        if self._error:
            raise self._error[0]
        clock.add(self._clock)
        return self._groups

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        began = time.perf_counter()
        try:
            while self._groups.ended < self._wanted and not self._stop.is_set():
                listed = time.perf_counter()
                polled = Polled.of("train")
                now = time.perf_counter()
                if not self._add(polled):
                    self._stop.wait(poll_interval(now - began, now - listed))
        except Exception as error:  # Of any type: it is raised where the groups are taken.
            self._error.append(error)

    def _add(self, polled: Polled) -> bool:
        """Add groups that are finished, and whole; whether there were any.

        Others, such as those that have failed, are left to the step itself.
        """
        left = polled.status.keys() - self._groups.uids
        turn = self._ahead.turn(left, set(), self._wanted - self._groups.ended)
        of_rows = TrajectoryKey.of_trajectories(polled.rows)
        finished = turn & polled.prompts("finished")
        finished -= {key.uid for key, tag in of_rows.items() if not tag}
        if not finished:
            return False
        with self._clock("read"):
            self._groups.add(finished, {k: tag for k, tag in of_rows.items() if k.uid in finished})
        return True


def rows_of_prompts(keys: Collection[str] | None = None) -> list[int]:
    """Which prompts of the dataset some requests are of; None: all that no step has taken."""
    keys = list(Polled.of("train").status if keys is None else keys)
    if not keys:
        return []
    data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["extra_info"])
    return [int(plain(each)["index"]) for each in data["extra_info"]]


def age_figures(rollouts: pa.Table, curated: Curated) -> dict[str, float]:
    """The ages of what a step has sampled and trains on, and what was too old, by source.

    There are none where all responses are by the current policy.
    """
    if POLICY_AGE not in rollouts.column_names or not rollouts.num_rows:
        return {}
    age_N = numbers(rollouts, POLICY_AGE)
    found = {"policy_age/mean": float(age_N.mean()), "policy_age/max": float(age_N.max())}
    if curated.table.num_rows:
        found["policy_age/trained"] = float(numbers(curated.table, POLICY_AGE).mean())
    old_N = _too_old(rollouts, curated)
    for name, is_own in few_sources(rollouts).items():
        own_N = np.asarray(is_own)
        found[f"source/{name}/policy_age"] = float(age_N[own_N].mean())
        found[f"source/{name}/{TOO_OLD}"] = float(old_N[own_N].mean())
    return found


def too_old_line(rollouts: pa.Table, curated: Curated) -> str | None:
    """What a step drops for its age, and how long these responses are; None: nothing."""
    old_N = _too_old(rollouts, curated)
    if not old_N.any():
        return None
    line = f"{old_N.sum():,} of {len(old_N):,} responses were {TOO_OLD}"
    lengths_N = np.asarray(pc.fill_null(pc.list_value_length(rollouts["response_token_ids"]), 0))
    if old_N.all():
        return line
    old, others = lengths_N[old_N].mean(), lengths_N[~old_N].mean()
    return f"{line}; they have {old:,.0f} tokens on average, the others {others:,.0f}"


def _too_old(rollouts: pa.Table, curated: Curated) -> BoolArray:
    is_old = pc.equal(curated.decisions["reason"], TOO_OLD)
    old = curated.decisions.filter(is_old)["row_id"]
    return np.asarray(pc.is_in(rollouts["response_id"], value_set=flat(old)))
