r"""An imperfect planner for the look-up world, which the policy `embedded_flow` imitates.

It looks up what it does not know yet, calculates, and answers. In some of its turns it is careless:
it answers too early, searches for what nobody asked, or writes a call that no tool understands. The
policy learns to mix both; that carelessness does not pay is left to reinforcement learning.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from ...pipelines.demo.lookup import GOODS, SHOPS, LookupTask
from ...pipelines.demo.problems import NAMES, WORDS, pick

PEOPLE = tuple(name for names in NAMES.values() for name in names)
"""Who may appear in a task, in any split."""

_SEEN = "-> "
_NUMBER = re.compile(r"\d+")


class Carelessness(NamedTuple):
    """How often a careless turn is of which kind; as shares of any sum."""

    hasty: float = 0.45  # it answers with a number that it has just seen
    pointless: float = 0.3  # it searches for something else, or again
    malformed: float = 0.25  # no tool understands the call


def plan(task: LookupTask, prompt: str) -> str:
    """The right next action, which follows from what the policy reads in this turn."""
    seen = {line.removeprefix(_SEEN) for line in prompt.split("\n")}
    for lookup in task.lookups:
        if lookup.document not in seen:
            return f"search: {lookup.query}"
    if task.expression is not None and str(task.answer) not in seen:
        return f"calculate: {task.expression}"
    return f"answer: {task.answer}"


def slip(task: LookupTask, prompt: str, rng: random.Random, kinds: Carelessness) -> str:
    """A careless next action."""
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
