"""The vocabulary of this package: what its files hand to one another.

TrajectoryKey         a row of TransferQueue: a trajectory, or one of its turns
Slot, PromptBatch     prompts on their way to the rollouts
Rollouts              finished trajectories as a table
StepPlan              what a training step trains on
QueuedAnswers         answers that are due to be judged
VerificationPrompts   the prompts made of them
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators.groups import Array
from ...operators.sampling.tokenizer import Messages

_TRAJECTORY = re.compile(r".*_\d+_\d+", re.DOTALL)


class TrajectoryKey(NamedTuple):
    """The key of a row of TransferQueue: `{uid}_{session}_{output}`.

    A response has one row. The trajectory of an agent has one for each turn of the policy, and is
    named by the key of the first.
    """

    uid: str  # key of the prompt; it may contain underscores
    session: int  # which of the prompt's trajectories, from 0
    output: int = 0  # which turn of the policy, from 0; 0 for single-turn responses

    @classmethod
    def parse(cls, key: str) -> TrajectoryKey:
        """The parts of a key.

        Raises:
            ValueError: it does not end in two numbers.
        """
        uid, session, output = key.rsplit("_", 2)
        return cls(uid, int(session), int(output))

    @classmethod
    def of_trajectories(cls, tags: Mapping[str, Any]) -> dict[TrajectoryKey, Any]:
        """Tags by parsed keys; keys of prompts, which are no trajectories, are left out."""
        return {cls.parse(key): tag for key, tag in tags.items() if _TRAJECTORY.fullmatch(key)}

    @property
    def first(self) -> TrajectoryKey:
        """The key of the trajectory: that of its first row."""
        return self._replace(output=0)

    def __str__(self) -> str:
        return f"{self.uid}_{self.session}_{self.output}"


class Slot(NamedTuple):
    """Where the responses to a prompt go."""

    uid: str  # the prompt's key in TransferQueue
    fields: dict[str, Any]  # of the prompt's row that verl reads again with each response

    @property
    def prompt_id(self) -> str:
        """The id of the prompt."""
        return str(self.fields["extra_info"]["prompt_id"])

    @property
    def split(self) -> str:
        """The files of the run that have the prompt; empty for verification prompts."""
        return str(self.fields["extra_info"].get("split", ""))


OwnSettings = dict[str, Any]
"""Sampling parameters by name, as far as they differ from the trainer's."""


class PromptBatch(NamedTuple):
    """Prompts as verl hands them to an agent loop manager."""

    slots: list[Slot]  # one for each prompt
    chats: list[Messages]  # their messages
    own: list[OwnSettings]  # the sampling parameters that each has of its own
    partition: str  # `train` or `val`
    step: int  # of training


class Rollouts(NamedTuple):
    """Trajectories, row by row."""

    keys: list[TrajectoryKey]  # of their first rows in TransferQueue
    index_N: Array  # int64, the row of each trajectory's prompt
    table: pa.Table  # the row contract up to sampling

    def take(self, rows: Array) -> Rollouts:
        """The trajectories at some rows."""
        keys = [self.keys[row] for row in rows.tolist()]
        return Rollouts(keys, self.index_N[rows], self.table.take(pa.array(rows)))


# --- Weights of turns ---

WEIGHT = "turn_weight"
"""Field of a row: the weight of each token of its action, float32[T]."""


def turn_weights(keys: Sequence[TrajectoryKey], lengths_R: Array, updates: int = 1) -> Array:
    """The weight of a token in each turn, float64[R].

    Over all rows of a step, the weights of all tokens sum to `updates`: each update divides by its
    own share of the rows, as verl's modes of aggregation do. That share is one of rows, so that the
    loss is exactly the paper's with one update a step; with more, updates get trajectories of other
    numbers of turns, and the sum of their weights varies about 1.

    Raises:
        ValueError: an action has no token, or a row is there twice.
    """
    if len(set(keys)) < len(keys) or not (lengths_R > 0).all():
        raise ValueError("each turn must be one row, with a token to train on")
    _, group_R = np.unique([key.uid for key in keys], return_inverse=True)
    _, first_T, trajectory_R, turns_T = np.unique(
        [str(key.first) for key in keys], return_index=True, return_inverse=True, return_counts=True
    )
    sizes_G = np.bincount(group_R[first_T])
    weights_R: Array = updates / (
        len(sizes_G) * sizes_G[group_R] * turns_T[trajectory_R] * lengths_R
    )
    return weights_R
