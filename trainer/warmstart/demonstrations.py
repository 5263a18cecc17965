"""Which demonstrations the policy `embedded` is trained on, and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...pipelines.demo.problems import NAMES, Problem, problem, seeded
from .batches import Demonstration
from .demonstrator import demonstrate, drill, judge
from .tokenizer import build_tokenizer

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

LEVELS = (1, 2)
"""Levels of the problems that the policy learns to solve."""


class Curriculum(NamedTuple):
    """Which demonstrations are drawn, and how many."""

    steps: int = 1400  # how many batches in all
    batch: int = 16  # demonstrations in a batch
    responses: int = 4  # responses to each prompt; the prompt is computed once for all of them
    # share of the steps, from the beginning, with drills and careful responses
    first_phase: float = 0.75
    drilled: float = 0.3  # share of drills in the first phase
    exercises: int = 5  # problems in a drill
    judged: float = 0.25  # share of the other demonstrations that judge an answer
    care: float = 0.5  # share of the other demonstrations that are careful, in the first phase
    window: int = 20  # batches drawn at a time and sorted by length, so that little is padded

    def tokenizer(self) -> Qwen2Tokenizer:
        """Its words are those of the problems and of the demonstrator."""
        return build_tokenizer()

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """As `demonstrations`."""
        return demonstrations(seed, self)


def demonstrations(seed: int, curriculum: Curriculum) -> Iterator[Demonstration]:
    """The demonstrator's responses to problems of the train split, with names of all splits.

    A held-out problem stays unseen, because its template never has its numbers here. Names of all
    splits are in the policy's vocabulary, so it is trained on them; they give no answer away.
    """
    i = 0
    while True:
        rng = seeded("teacher", seed, i)  # Another word would give other demonstrations.
        first_phase = i < curriculum.first_phase * curriculum.steps * curriculum.batch
        if first_phase and rng.random() < curriculum.drilled:
            first = curriculum.exercises * i
            numbers = range(first, first + curriculum.exercises)
            yield drill(problem(seed + 1, "train", number, LEVELS) for number in numbers)
        else:
            shown = rename(problem(seed, "train", i, LEVELS), rng)
            teach = judge if rng.random() < curriculum.judged else demonstrate
            care = first_phase and rng.random() < curriculum.care
            yield teach(shown, rng, curriculum.responses, care=care)
        i += 1


def rename(original: Problem, rng: random.Random) -> Problem:
    """The problem with other people in it, from any split."""
    everybody = [name for names in NAMES.values() for name in names]
    others = {
        name: everybody.pop(int(rng.random() * len(everybody)))
        for name in NAMES["train"]
        if name in original.question
    }
    return original._replace(
        question=_renamed(original.question, others),
        steps=tuple(
            step._replace(sentence=_renamed(step.sentence, others)) for step in original.steps
        ),
    )


def _renamed(text: str, others: dict[str, str]) -> str:
    # Word by word: a new name may be one of the old ones.
    return " ".join(
        next((word.replace(name, new) for name, new in others.items() if name in word), word)
        for word in text.split(" ")
    )
