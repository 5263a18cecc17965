"""Engines that sample responses from a policy, behind one small protocol.

    Prompt, Settings ──> Engine.sample ──> Group of Sample, or Failure, as they finish

`protocol.py` defines an engine; `policy_rollout_mapper` uses them.
"""

from .protocol import Engine, Failure, Group, Prompt, Sample, Settings

__all__ = ["Engine", "Failure", "Group", "Prompt", "Sample", "Settings"]
