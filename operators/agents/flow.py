"""What a flow is: how a policy works on a task, turn by turn.

    class Guess(Flow):
        \"""Ask until the policy says that it is done.\"""

        async def run(self, task: Task, play: Play) -> str | None:
            action = await play.act(task.messages)
            ...

A flow holds no state of a trajectory: everything is in local variables or in `play.memory`, so
nothing leaks from one task to the next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ..cache_key import part_version
from ..config import Named, deciding_fields
from ..sampling.tokenizer import Encode
from .play import Model, Play
from .trajectory import Budgets, Task


class Flow(Budgets, Named):
    """Base of all flows: the fields are what a recipe sets, budgets included."""

    noun: ClassVar[str] = "flow"
    code: ClassVar[str | None] = None
    """The version of the code that decides trajectories, as `Tool.code`."""

    @abstractmethod
    async def run(self, task: Task, play: Play) -> str | None:
        """Work on a task until there is an answer.

        Args:
            task: what to work on.
            play: calls the policy, frozen models and tools, and records every turn.

        Returns:
            The final answer; None: the policy gives none, which counts as a wrong answer.
        """

    def check(self, encode: Encode | None) -> None:
        """Check that the flow suits the policy, before anything is sampled.

        Args:
            encode: chat to token ids of the policy; None: the engine applies the chat template.

        Raises:
            EngineError: it does not.
        """

    def models(self) -> Mapping[str, Model]:
        """The frozen models that `play.ask` reaches, by role."""
        return {}

    def reads(self) -> tuple[str, ...]:
        """Columns of the dataset that the flow reads from `task.columns`."""
        return ()

    def cache_key_fields(self) -> Mapping[str, Any]:
        """What decides the trajectories, as JSON: by default the fields and the code's version."""
        return {**deciding_fields(self), "code": part_version(type(self))}
