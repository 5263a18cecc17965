"""Made-up trajectories of agents."""

from __future__ import annotations

from collections.abc import Sequence

from rejuice.operators.agents.trajectory import FAILURES, POLICY, TOOL, Trajectory, Turn


def action(ids: Sequence[int], prompt: Sequence[int] = (5, 6, 7), text: str = "...") -> Turn:
    """A turn of the policy."""
    logprobs = tuple(-0.25 * (at + 1) for at in range(len(ids)))
    return Turn(POLICY, text, tuple(prompt), tuple(ids), logprobs, "stop", policy_version=0, seed=3)


def call(observation: str = "42", status: str = "ok") -> Turn:
    """A tool call."""
    return Turn(TOOL, tool="calculator", arguments="{}", observation=observation, status=status)


def trajectory(
    response: str | None, lengths: Sequence[int] = (2, 3), finish_reason: str = "stop"
) -> Trajectory:
    """One with actions of so many tokens, and a tool call after each but the last."""
    turns = list[Turn]()
    for at, length in enumerate(lengths):
        turns += [call()] if at else []
        turns.append(action(range(10 + at, 10 + at + length), (5, 6, 7 + at)))
    return Trajectory(tuple(turns), response, finish_reason)


def failed(lengths: Sequence[int] = (2,), finish_reason: str = "tool_failed") -> Trajectory:
    """One that ended by no fault of the policy."""
    assert finish_reason in FAILURES
    return trajectory(None, lengths, finish_reason)
