"""Which demonstrations the policy `embedded_flow` is trained on, and in which order.

They are trajectories of the planner through the flow and the tools that the policy will act with,
so that every prompt is one that it will see, to the byte.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...operators.agents.flows.react import React
from ...operators.agents.play import Limits
from ...operators.agents.runner import play_trajectory
from ...operators.agents.toolbox import Toolbox
from ...operators.agents.tools.calculator import Calculator
from ...operators.agents.tools.search import Search
from ...operators.agents.trajectory import Task
from ...operators.sampling.protocol import Group, Prompt, Sample
from ...operators.servers.concurrency import LoopThread
from ...pipelines.demo.lookup import DOCUMENTS, GOODS, QUESTIONS, SHOPS, LookupTask, make_task
from ...pipelines.demo.problems import WORDS, seeded
from .batches import Demonstration
from .planner import PEOPLE, PHRASES, Carelessness, plan, slip
from .tokenizer import tokenizer_of

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

FLOW = React(format="lines", max_turns=5)
"""The flow that the policy knows."""
TOOLS = (Search(documents="documents", k=1), Calculator())
"""The tools that the policy knows."""

_SLOT = re.compile(r"\{[A-Za-z]+\}")


class LookupCurriculum(NamedTuple):
    """Which turns are shown, and how many."""

    steps: int = 1400  # how many batches in all
    batch: int = 16  # turns in a batch
    responses: int = 4  # actions that are shown for a turn after the first phase
    # share of the steps, from the beginning, in which all actions that are shown are right, until
    # names and numbers are copied without mistakes
    first_phase: float = 0.75
    # share of careless turns that lead to those in the first phase and are not shown
    wandering: float = 0.2
    careless: float = 0.35  # share of careless actions after the first phase
    carelessness: Carelessness = Carelessness()  # of which kinds they are
    window: int = 20  # batches drawn at a time and sorted by length, so that little is padded

    def tokenizer(self) -> Qwen2Tokenizer:
        """Its words are those of the tasks, of the actions and of the observations."""
        return tokenizer_of(_texts(), tags=())

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """All turns of one trajectory after the other."""
        thread = LoopThread("planner")
        try:
            toolbox = thread.run(Toolbox.of(TOOLS))
            shown = 0
            while True:
                rng = seeded("planner", seed, shown)
                care = shown < self.first_phase * self.steps * self.batch
                planner = _Planner(make_task(rng, PEOPLE), rng, self, care)
                thread.run(planner.play(toolbox))
                yield from planner.shown
                shown += len(planner.shown)
        finally:
            thread.close()


class _Planner:
    """Plays one task as the policy would: a sampler of turns, which keeps what it has shown."""

    def __init__(
        self, task: LookupTask, rng: random.Random, curriculum: LookupCurriculum, care: bool
    ) -> None:
        self.shown: list[Demonstration] = []
        self._task, self._rng, self._care = task, rng, care
        self._curriculum = curriculum

    async def play(self, toolbox: Toolbox) -> None:
        """Play the task until there is an answer or no turn is left."""
        columns = {"documents": list(self._task.documents)}
        await play_trajectory(
            FLOW,
            Task("", (("user", self._task.question),), columns),
            sampler=self,
            encode=None,
            toolbox=toolbox,
            models={},
            limits=Limits(max_tokens=32, max_prompt_tokens=None),
            seed=0,
            index=0,
        )

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group:
        """The action of a turn."""
        ((_, text),) = prompt.messages
        if self._care:
            actions = [plan(self._task, text)]
            wanders = self._rng.random() < self._curriculum.wandering
            action = self._slip(text, answers=False) if wanders else actions[0]
        else:
            n = self._curriculum.responses
            actions = [self._action(text) for _ in range(n)]
            action = actions[0]
        self.shown.append(Demonstration(text, actions))
        return Group("planner", 0, prompt.seed, None, (Sample(action, None, None, "stop"),))

    def _action(self, text: str) -> str:
        careless = self._rng.random() < self._curriculum.careless
        return self._slip(text) if careless else plan(self._task, text)

    def _slip(self, text: str, *, answers: bool = True) -> str:
        kinds = self._curriculum.carelessness
        return slip(self._task, text, self._rng, kinds if answers else kinds._replace(hasty=0))


def _texts() -> Iterator[str]:
    """All words of the world, where they occur in a text."""
    yield from (f"{name} {name}" for name in PEOPLE)
    yield from (f" {word}" for words in (WORDS["things"], GOODS, SHOPS) for word in words)
    yield from (_SLOT.sub("0", text) for text in (*QUESTIONS.values(), *DOCUMENTS.values()))
    yield from PHRASES
