"""Which demonstrations the policy `embedded_flow` is trained on, and in which order.

They are trajectories of the planner through the flow and the tools that the policy will act with,
so that every prompt is one that it will see, to the byte.

The planner is imperfect: it looks up what it does not know yet, calculates, and answers, but in
some of its turns it is careless: it answers too early, searches for what nobody asked, or writes a
call that no tool understands. The policy learns to mix both; that carelessness does not pay is left
to reinforcement learning.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rejuice.operators.agents.flows.react import React
from rejuice.operators.agents.play import Play
from rejuice.operators.agents.runner import play_trajectory
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools.calculator import Calculator
from rejuice.operators.agents.tools.search import Search
from rejuice.operators.agents.trajectory import Task
from rejuice.operators.sampling.protocol import Group, Prompt, Sample
from rejuice.operators.servers.concurrency import LoopThread
from rejuice.pipelines.demo.problems import (
    DOCUMENTS,
    GOODS,
    NAMES,
    QUESTIONS,
    SHOPS,
    WORDS,
    LookupTask,
    make_task,
    pick,
    seeded,
)

from .batches import Demonstration
from .model import tokenizer_of

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

PEOPLE = tuple(name for names in NAMES.values() for name in names)
"""Who may appear in a task, in any split."""

FLOW = React(format="lines", max_turns=5)
"""The flow that the policy knows."""
TOOLS = (Search(documents="documents", k=1), Calculator())
"""The tools that the policy knows."""

_SLOT = re.compile(r"\{[A-Za-z]+\}")
_SEEN = "-> "
_NUMBER = re.compile(r"\d+")


class Carelessness(NamedTuple):
    """How often a careless turn is of which kind; as shares of any sum."""

    hasty: float = 0.45  # it answers with a number that it has just seen
    pointless: float = 0.3  # it searches for something else, or again
    malformed: float = 0.25  # no tool understands the call


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
        """Yield all turns of one trajectory after the other."""
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
        play = Play(
            Task("", (("user", self._task.question),), columns),
            FLOW,
            sampler=self,
            encode=None,
            toolbox=toolbox,
            models={},
            max_tokens=32,
            seed=0,
            index=0,
        )
        await play_trajectory(FLOW, play)

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group:
        """Return the action of a turn."""
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


# --- The planner ---


def plan(task: LookupTask, prompt: str) -> str:
    """Return the right next action, which follows from what the policy reads in this turn."""
    seen = {line.removeprefix(_SEEN) for line in prompt.split("\n")}
    for lookup in task.lookups:
        if lookup.document not in seen:
            return f"search: {lookup.query}"
    if task.expression is not None and str(task.answer) not in seen:
        return f"calculate: {task.expression}"
    return f"answer: {task.answer}"


def slip(task: LookupTask, prompt: str, rng: random.Random, kinds: Carelessness) -> str:
    """Return a careless next action."""
    place = rng.random() * sum(kinds)
    if place < kinds.hasty:
        return _hasty(task, prompt, rng)
    if place < kinds.hasty + kinds.pointless:
        return _pointless(task, prompt, rng)
    return _malformed(plan(task, prompt))


def _hasty(task: LookupTask, prompt: str, rng: random.Random) -> str:
    numbers = [number for number in _NUMBER.findall(prompt) if number != str(task.answer)]
    return f"answer: {numbers[-1] if numbers else 10 + int(rng.random() * 90)}"


def _pointless(task: LookupTask, prompt: str, rng: random.Random) -> str:
    name = pick(rng, [name for name in PEOPLE if name in task.question.split()])
    queries = [
        f"search: {name} shops",
        f"search: {name} {pick(rng, WORDS['things'])}",
        f"search: {pick(rng, SHOPS)} {pick(rng, GOODS)}",
    ]
    asked = [line for line in prompt.split("\n") if line.startswith("search: ")]
    return pick(rng, [*queries, *asked])


def _malformed(action: str) -> str:
    verb, _, rest = action.partition(": ")
    if verb == "calculate":
        return f"{verb}: {' '.join(rest.split()[:2])}"  # `8 *`
    return f"{'find' if verb == 'search' else 'result'}: {rest}"


PHRASES = (
    "search: 0\n-> 0\ncalculate: 0 + 0 - 0 * 0\nanswer: 0\nfind: 0\nresult: 0",
    "-> there is no tool 'find'; the tools are: search, calculator",
    "-> there is no tool 'result'; the tools are: search, calculator",
    "-> this is not an expression of numbers",
    "-> nothing was found",
    "system\nuser\nassistant\n",
)
"""Text of actions and observations, for the vocabulary."""


def _texts() -> Iterator[str]:
    """Yield all words of the world, where they occur in a text."""
    yield from (f"{name} {name}" for name in PEOPLE)
    yield from (f" {word}" for words in (WORDS["things"], GOODS, SHOPS) for word in words)
    yield from (_SLOT.sub("0", text) for text in (*QUESTIONS.values(), *DOCUMENTS.values()))
    yield from PHRASES
