"""Engines that sample responses from a policy, behind one small protocol.

    Prompt, Settings ──> Engine.sample ──> Group of Sample, or Failure, as they finish

`protocol.py` says what an engine is; `policy_rollout_mapper` is who uses them.
"""

from .protocol import Engine, Failure, Group, Prompt, Sample, Settings

__all__ = ["Engine", "Failure", "Group", "Prompt", "Sample", "Settings"]
