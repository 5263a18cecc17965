"""Trajectories of an earlier run: nothing is sampled, and no tool is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import EngineError
from ..sampling.protocol import Failure, Prompt, Settings
from ..sampling.recording import FIX_EXACT, Recording, beginning
from .task import SeededTask
from .trajectory import Trajectory, TrajectoryGroup, turns_of

_EXACT = ("prompt_token_ids", "token_ids", "logprobs")


class RecordedTrajectories:
    """Returns the trajectories of a table with one row each, such as the export of a run.

    Args:
        path: of the recording. Columns `prompt`, `turns` and `response` are required; other columns
            that sampling writes are used if present.
        settings: with which it must have been sampled, as far as it says.
        exact: require token ids and log-probabilities of each turn of the policy.

    Raises:
        EngineError: there is no such file, or a column is missing or has another type.
    """

    def __init__(self, path: str, settings: Settings, *, exact: bool) -> None:
        self._path, self._settings, self._exact = path, settings, exact
        self._recording = Recording(path, ["turns", "response"], [], wants_exact=exact)

    def run(
        self, tasks: Iterable[SeededTask | None], n: int
    ) -> Iterator[tuple[int, TrajectoryGroup | Failure]]:
        """The recorded trajectories, as `AgentRunner.run`.

        Raises:
            EngineError: they were sampled with other settings, come from several policies, or lack
                what `exact` requires.
        """
        prompts = (each and Prompt(each.task.messages, each.seed) for each in tasks)
        settings = self._settings._replace(n=n)
        for (index, prompt), found in self._recording.rows_of(prompts, settings):
            yield index, found if isinstance(found, Failure) else self._group(prompt, found)

    def close(self) -> None:
        """There is nothing to release."""

    def _group(self, prompt: Prompt, rows: list[dict[str, Any]]) -> TrajectoryGroup:
        trajectories = tuple(map(_trajectory, rows))
        if self._exact:
            for each in trajectories:
                self._check_exact(each, prompt)
        origin = self._recording.origin(rows)
        policy = origin.policy or "recorded"
        return TrajectoryGroup(policy, origin.version or 0, origin.seed, trajectories)

    def _check_exact(self, trajectory: Trajectory, prompt: Prompt) -> None:
        for number, turn in enumerate(trajectory.actions, 1):
            where = f"turn {number} of a trajectory of {beginning(prompt)}"
            for name in _EXACT:
                if getattr(turn, name) is None:
                    raise EngineError(f"{self._path} lacks {name} of {where}", FIX_EXACT)
            tokens, logprobs = len(turn.token_ids or ()), len(turn.logprobs or ())
            if tokens != logprobs:
                found = f"{self._path} has {tokens} token_ids and {logprobs} logprobs of {where}"
                raise EngineError(found, FIX_EXACT)


def _trajectory(row: dict[str, Any]) -> Trajectory:
    end = "stop" if row["response"] is not None else "sampling_failed"
    return Trajectory(turns_of(row["turns"]), row["response"], row["finish_reason"] or end)
