"""Training on responses that were collected before: a curated dataset instead of rollouts.

verl requests the prompts of a step as always; their stored responses are put into TransferQueue,
with stored log-probabilities and rewards. Held-out prompts are sampled from the policy itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.feather as feather
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.ray_utils import auto_await

from ...operators.groups import Groups
from ...operators.sampling.protocol import Group, Sample
from .trajectories import prompt_batch, put


class ReplayManager:
    """verl's agent loop manager, for stored groups."""

    def __init__(self, run: Path, live: Any) -> None:
        self._live = live
        table = feather.read_table(run / "prompts" / "replay.arrow")
        self._table, groups = table, Groups.of(table)
        names = table["prompt_id"].take(groups.starts_G).to_pylist()
        ends_G = groups.starts_G + groups.sizes_G
        self._rows = dict(zip(names, zip(groups.starts_G, ends_G, strict=True), strict=True))

    @classmethod
    @auto_await  # type: ignore[untyped-decorator]
    async def create(cls, config: Any, **clients: Any) -> ReplayManager:
        """The manager, by the signature with which verl creates one."""
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
        groups, rewards = [], list[Sequence[float]]()
        for slot in batch.slots:
            first, end = self._rows[slot.prompt_id]
            rows = self._table.slice(first, end - first).to_pylist()
            groups.append((slot, _group(rows)))
            rewards.append([row["reward"] for row in rows])
        put(groups, batch.partition, batch.step, rewards)


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
