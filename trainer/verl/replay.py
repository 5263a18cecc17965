"""Training on responses that were collected before: a curated dataset instead of rollouts.

verl requests the prompts of a step as always; their stored responses are put into TransferQueue,
with stored log-probabilities and rewards. Held-out prompts are sampled from the policy itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.feather as feather
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.ray_utils import auto_await

from ...operators.agents.trajectory import Trajectory, TrajectoryGroup, turns_of
from ...operators.groups import Groups
from ...operators.sampling.protocol import Group, Sample
from ..run import TrainingRun
from .trajectories import Slot, prompt_batch, put, put_trajectories


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
        """Return the manager, by the signature with which verl creates one."""
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
            groups = [(slot, _group(rows)) for slot, rows in stored]
            put(groups, batch.partition, batch.step, rewards)

    def _stored(self, slot: Slot) -> list[dict[str, Any]]:
        """Return the rows of a prompt."""
        first, end = self._rows[slot.prompt_id]
        rows: list[dict[str, Any]] = self._table.slice(first, end - first).to_pylist()
        return rows


def _trajectories(rows: list[dict[str, Any]]) -> TrajectoryGroup:
    found = tuple(
        Trajectory(turns_of(row["turns"]), row["response"], row["finish_reason"]) for row in rows
    )
    first = rows[0]
    return TrajectoryGroup(first.get("policy") or "", first.get("policy_version") or 0, None, found)


def _group(rows: list[dict[str, Any]]) -> Group:
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
