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
from collections.abc import Mapping
from typing import Any, NamedTuple

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


class StepPlan(NamedTuple):
    """What a training step trains on."""

    answers: bool  # train on responses to the prompts of the dataset
    judgements: bool  # sample judgements of answers, and train on them
    since: int  # the first step whose queued answers are judged now
    queues: bool  # the answers of this step are queued, to be judged at this step or at a later one


class QueuedAnswers(NamedTuple):
    """Answers to be judged."""

    table: pa.Table  # rows of a prompt are adjacent; those of the newest step come first
    stale: int = 0  # how many answers were dropped because they are too old
    repeated: int = 0  # how many, because the prompt got the same one at a later step
    over: int = 0  # how many, because the queue is over its capacity
    # how many steps have kept none, such as those before a resume by another schedule
    lacking: int = 0


class VerificationPrompts(NamedTuple):
    """Prompts that ask the policy to judge answers."""

    prompts: pa.Table  # a row and a group each, with the step and the policy version of the answer
    decisions: pa.Table  # about those that were dropped
    figures: dict[str, float]  # how many answers and prompts there were, and of what age
