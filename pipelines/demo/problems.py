"""Arithmetic word problems with worked solutions: each is made from its index, without end.

No two splits share a problem, by construction: each has names of its own; a template with given
numbers belongs to one split, chosen by their hash; and some templates are in the test split only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...operators import RejuiceError
from .numbers import (
    LEVELS,
    PARSED_TEMPLATES,
    SPLITS,
    Operation,
    ParsedTemplate,
    Split,
    hashed,
    pick,
    sample_numbers,
    seeded,
)
from .templates import NAMES, WORDS

_MOST_REPEATS = 1_000


class SolutionStep(NamedTuple):
    """One operation of a solution."""

    left: int  # the left operand
    operation: Operation  # what is done
    right: int  # the right operand
    result: int  # what comes out
    # for each operand, the place (from 0) of the step it is the result of, or None
    uses: tuple[int | None, int | None]
    compares: bool  # whether it follows from a comparison, which can be taken the wrong way round
    sentence: str  # what a solution writes, with `{step}` where `3 + 4 = 7` goes

    @property
    def equation(self) -> str:
        """The operation written out, such as `3 + 4 = 7`."""
        return f"{self.left} {self.operation} {self.right} = {self.result}"


class Problem(NamedTuple):
    """A problem with its solution."""

    question: str  # the text
    answer: str  # the worked solution; its last line is `#### ` and the reference
    level: int  # how many steps it takes, 1 to 4
    steps: tuple[SolutionStep, ...]  # the same solution as data
    template: str  # name of the template it was made from
    numbers: tuple[int, ...]  # the numbers that were put in, in the order of the question

    @property
    def reference(self) -> int:
        """The right answer: a whole number above 1."""
        return self.steps[-1].result


def problem(seed: int, split: Split, i: int, levels: Sequence[int] = LEVELS) -> Problem:
    """Problem `i` of a split, which depends on the arguments and on nothing else.

    Raises:
        RejuiceError: there is no such split or level.

    Example:
        >>> problem(0, "train", 1, levels=(1,)).question
        'Ivy buys 3 eggs. Each one costs 18 dollars. How many dollars does Ivy pay?'
    """
    if split not in SPLITS:
        raise RejuiceError(f"no split '{split}'", f"name one of {', '.join(SPLITS)}")
    if not levels or not set(levels) <= set(LEVELS):
        raise RejuiceError(f"levels {_listed(levels)}", f"name some of {_listed(LEVELS)}")
    rng = seeded(seed, split, i)
    level = pick(rng, levels)
    parsed = pick(rng, PARSED_TEMPLATES[split, level])
    return _written(rng, parsed, split, sample_numbers(rng, parsed, split))


def problems(
    seed: int, split: Split, n: int, levels: Sequence[int] = (1, 2, 3)
) -> Iterator[Problem]:
    """The first `n` problems of a split with different questions; a repeated one is left out.

    Memory holds one hash of each problem.

    Raises:
        RejuiceError: these levels have fewer different problems.
    """
    seen = set[int]()
    repeats = i = 0
    while len(seen) < n:
        found = problem(seed, split, i, levels)
        key = hashed(found.question)
        repeats = repeats + 1 if key in seen else 0
        if repeats == _MOST_REPEATS:
            raise RejuiceError(
                f"hardly more than {len(seen)} different problems of levels {_listed(levels)}",
                "ask for fewer, or for more levels",
            )
        if not repeats:
            seen.add(key)
            yield found
        i += 1


def parse_levels(text: str) -> tuple[int, ...]:
    """Levels as written on a command line.

    Raises:
        RejuiceError: not numbers with commas between them.

    Example:
        >>> parse_levels("1,3")
        (1, 3)
    """
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise RejuiceError(f"levels are '{text}'", "write them like 1,2,3") from None


def _written(
    rng: random.Random, parsed: ParsedTemplate, split: Split, values: list[int]
) -> Problem:
    people = list(NAMES[split])
    words = {slot: people.pop(int(rng.random() * len(people))) for slot in "ABC"}
    words.update((slot, pick(rng, choice)) for slot, choice in WORDS.items())
    numbers = values[: len(parsed.letters)]
    steps = _steps(parsed, values, words)
    sentences = [step.sentence.format(step=step.equation) for step in steps]
    return Problem(
        question=parsed.template.question.format(
            **words, **dict(zip(parsed.letters, numbers, strict=True))
        ),
        answer="\n".join([*sentences, f"#### {values[-1]}"]),
        level=len(steps),
        steps=steps,
        template=parsed.template.name,
        numbers=tuple(numbers),
    )


def _steps(
    parsed: ParsedTemplate, values: list[int], words: dict[str, str]
) -> tuple[SolutionStep, ...]:
    first = len(parsed.letters) + len(parsed.constants)
    return tuple(
        SolutionStep(
            left=values[left],
            operation=operation,
            right=values[right],
            result=values[first + place],
            uses=(
                left - first if left >= first else None,
                right - first if right >= first else None,
            ),
            compares=line.compares,
            sentence=line.sentence.format(step="{step}", **words),
        )
        for place, (line, (left, operation, right)) in enumerate(
            zip(parsed.template.lines, parsed.operations, strict=True)
        )
    )


def _listed(levels: Sequence[int]) -> str:
    return ", ".join(map(str, levels)) or "none"
