"""Groups that were sampled ahead, as files in the folder of the run until they are trained on.

A checkpoint of verl has the groups that were finished when it was saved. Those that were finished
later are here, so that a run that is resumed does not sample them again.

    RUN/ahead/000000123.json    a group, by the key of its prompt in TransferQueue
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from ...operators.agents.trajectory import Trajectory, TrajectoryGroup
from ...operators.sampling.protocol import Group, Sample
from ..run import AHEAD_FOLDER
from .trajectories import AnyGroup


class SampledGroups:
    def __init__(self, run: Path) -> None:
        self._folder = run / AHEAD_FOLDER
        self._folder.mkdir(exist_ok=True)

    def keep(self, uid: str, prompt_id: str, step: int, group: AnyGroup) -> None:
        """Write a group that was requested at a step, whole or not at all."""
        file = self._file(uid)
        temporary = file.with_suffix(".new")
        # Not synced: what a machine loses when it loses its power is sampled again.
        temporary.write_bytes(
            orjson.dumps({"prompt_id": prompt_id, "step": step, **_columns(group)})
        )
        temporary.replace(file)

    def find(self, uid: str, prompt_id: str) -> tuple[int, AnyGroup] | None:
        """A group, and the step at which it was requested; None: none is of this prompt."""
        try:
            found = orjson.loads(self._file(uid).read_bytes())
        except FileNotFoundError:
            return None
        if found["prompt_id"] != prompt_id:
            return None
        return found["step"], _group(found)

    def uids(self) -> list[str]:
        return [file.stem for file in self._folder.glob("*.json")]

    def forget(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._file(uid).unlink(missing_ok=True)

    def _file(self, uid: str) -> Path:
        return self._folder / f"{uid}.json"


def _columns(group: AnyGroup) -> dict[str, Any]:
    common = {"policy": group.policy, "version": group.version, "seed": group.seed}
    if isinstance(group, TrajectoryGroup):
        return {**common, "trajectories": [each.to_json().decode() for each in group.trajectories]}
    samples = [sample._asdict() for sample in group.samples]
    return {**common, "prompt_token_ids": group.prompt_token_ids, "samples": samples}


def _group(found: dict[str, Any]) -> AnyGroup:
    common = found["policy"], found["version"], found["seed"]
    if "trajectories" in found:
        return TrajectoryGroup(*common, tuple(map(Trajectory.from_json, found["trajectories"])))
    samples = tuple(_sample(each) for each in found["samples"])
    return Group(*common, _tuple(found["prompt_token_ids"]), samples)


def _sample(found: dict[str, Any]) -> Sample:
    lists = {name: _tuple(found[name]) for name in ("token_ids", "logprobs")}
    return Sample(**{**found, **lists})


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
