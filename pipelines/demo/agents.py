"""Simulated agents: trajectories on arithmetic problems, with the real flow and calculator.

Only the policy is simulated: what it writes in its turns is scripted, and differs in care.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from ...operators.agents.flows.react import React
from ...operators.agents.play import Play
from ...operators.agents.runner import play_trajectory
from ...operators.agents.tool import ToolError
from ...operators.agents.toolbox import Toolbox
from ...operators.agents.tools.calculator import Calculator
from ...operators.agents.trajectory import Task, Trajectory, columns_of
from ...operators.columns import ROW_CONTRACT, content_ids
from ...operators.sampling import Group, Prompt, Sample
from .problems import DemoOptions, Problem, SolutionStep, pick, problems, seeded
from .solvers import worked

POLICY = "simulated"
MAX_TURNS = 6
_SLIPS = {"careful": 0.0, "brief": 0.1, "hasty": 0.4, "clumsy": 0.05, "lost": 0.0, "unlucky": 0.0}
"""How often each agent gets a step wrong."""
_DRAWN = ("careful", "careful", "brief", "brief", "hasty", "hasty", "clumsy", "clumsy", "lost")
_BATCH = 200


def trajectories(options: DemoOptions) -> Iterator[dict[str, Any]]:
    """One row per trajectory, as `agent_rollout_mapper` exports them, without token ids.

    One trajectory in fifty ends because its calculator is out of order.
    """
    made = problems(options.seed, options.split, options.prompts, options.levels)
    while batch := list(islice(made, _BATCH)):
        yield from asyncio.run(_rows(batch, options)).to_pylist()


async def _rows(batch: Sequence[Problem], options: DemoOptions) -> pa.Table:
    pairs = [(problem, k) for problem in batch for k in range(options.responses)]
    found = [await _trajectory(problem, options.seed, k) for problem, k in pairs]
    parts = (
        (problem.question, str(k), each.response)
        for (problem, k), each in zip(pairs, found, strict=True)
    )
    chats = [[{"role": "user", "content": problem.question}] for problem, _ in pairs]
    own = {
        "prompt": pa.array(chats, ROW_CONTRACT["prompt"]),
        "response_id": content_ids(parts),
        "policy": pa.array([POLICY] * len(found), pa.string()),
    }
    return pa.table({**columns_of(found), **own})


async def _trajectory(problem: Problem, seed: int, k: int) -> Trajectory:
    (calculator,) = await Calculator().functions()
    agent = pick(seeded(seed, k, "agent", problem.question), _DRAWN)
    if seeded(seed, k, "luck", problem.question).random() < 0.02:
        agent, calculator = "unlucky", calculator._replace(call=_out_of_order)
    flow = React(format="lines", max_turns=MAX_TURNS)
    play = Play(
        Task("", (("user", problem.question),), {}),
        flow,
        sampler=_Scripted(list(_actions(problem, agent, seed, k))),
        encode=None,
        toolbox=Toolbox([calculator]),
        models={},
        max_tokens=64,
        seed=seed,
        index=k,
    )
    return await play_trajectory(flow, play)


class _Scripted:
    """A policy that writes one line after the other, and the last one again and again."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group:
        line = self._lines.pop(0) if len(self._lines) > 1 else self._lines[0]
        return Group(POLICY, 0, None, None, (Sample(line, None, None, "stop"),))


async def _out_of_order(given: Any, task: Any) -> Any:
    raise ToolError("the calculator is out of order")


def _actions(problem: Problem, agent: str, seed: int, k: int) -> Iterator[str]:
    rng = seeded(seed, k, agent, problem.question)
    steps = worked(problem, rng, slips=_SLIPS[agent])
    if agent == "lost":
        yield f"calculate: {_expression(steps[0])}"
        return
    if agent == "clumsy":
        yield pick(rng, ("I need to think about this.", f"calculate: {steps[0].left} plus some"))
    if agent != "hasty":
        yield from (f"calculate: {_expression(step)}" for step in steps)
    shown = steps if agent == "careful" else steps[-1:]
    opening = pick(rng, ("", "Step by step: ", "Worked out: ", "In short, "))
    reasons = "; ".join(step.equation for step in shown)
    yield f"answer: {opening}{reasons}. The answer is {steps[-1].result}"


def _expression(step: SolutionStep) -> str:
    return step.equation.partition(" = ")[0]
