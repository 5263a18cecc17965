"""What a trajectory is about, and how much it may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from ..config import Config
from ..sampling.tokenizer import Messages


class Task(NamedTuple):
    """What a trajectory is about.

    Attributes:
        prompt_id: of the prompt.
        messages: the prompt, as (role, content) pairs.
        columns: of the dataset, those that tools and the flow read, by name. The reference is never
            among them.
    """

    prompt_id: str
    messages: Messages
    columns: Mapping[str, Any]

    @property
    def question(self) -> str:
        """Content of the last user message; empty if there is none."""
        contents = [content for role, content in self.messages if role == "user"]
        return contents[-1] if contents else ""


class SeededTask(NamedTuple):
    """A task, and the seed of its prompt."""

    task: Task
    seed: int


class Budgets(Config):
    """How much one trajectory may use."""

    max_turns: PositiveInt = 10
    """Most turns of the policy."""
    max_tool_calls: NonNegativeInt | None = None
    """Most tool calls. Null: no limit."""
    trajectory_tokens: PositiveInt | None = None
    """Most tokens that the policy may sample in all its turns. Null: no limit but `max_tokens` of
    each turn."""
    max_prompt_tokens: PositiveInt | None = None
    """Longest prompt of a turn; a longer one ends the trajectory, and nothing is cut off. Null: the
    policy's context, and in training `train.max_prompt_tokens`."""
    max_observation: int = Field(4096, ge=64)
    """Longest observation, in characters; what is beyond it is cut off, with a visible marker."""
    seconds: PositiveFloat = 600
    """Longest time that tools, frozen models and the flow may take in a trajectory, without the
    policy's own turns. Its reward is then missing, as a slow server is not the policy's fault."""
