"""Rows with trajectories that call a calculator."""

import pyarrow as pa

from rejuice.operators.agents.trajectory import POLICY, TOOL, Turn
from rejuice.operators.columns import MESSAGES, TURNS

CALL = '{"tool": "calculator", "arguments": {"expression": "8 * 46"}}'
ANSWER = '{"answer": "368"}'


def policy(text):
    return Turn(POLICY, text, (1, 2), (3, 4), (-0.5, -0.5), "stop")


def tool(observation="368", name="calculator", arguments='{"expression":"8 * 46"}'):
    return Turn(TOOL, tool=name, arguments=arguments, observation=observation, status="ok")


def trajectories(*turns, **columns):
    """A table of trajectories of one prompt, all of them correct."""
    n = len(turns)
    made = {
        "prompt_id": ["a"] * n,
        "prompt": pa.array([[{"role": "user", "content": "8 * 46?"}]] * n, MESSAGES),
        "response": ["368"] * n,
        "verdict": ["correct"] * n,
        "reward": [float(n - k) for k in range(n)],
        "turns": pa.array([None if each is None else [t._asdict() for t in each] for each in turns], TURNS),
        **columns,
    }  # fmt: skip
    return pa.table(made)
