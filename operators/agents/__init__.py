"""Agents: a policy that answers in several turns and calls tools.

    from rejuice.operators.agents import Flow, Tool     # write a flow or a tool

`trajectory.py` says what a trajectory is, `flow.py` and `tool.py` what can be plugged in;
`agent_rollout_mapper` and training use them.
"""

from .flow import Flow
from .play import Action, Play
from .tool import Observation, Tool, ToolError
from .trajectory import Task

__all__ = ["Action", "Flow", "Observation", "Play", "Task", "Tool", "ToolError"]
