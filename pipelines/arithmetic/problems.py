"""Worded arithmetic problems with worked solutions, as many as are wanted, each from its index.

No two splits share a problem, by construction: each has names of its own; a template with given
numbers belongs to one split, chosen by their hash; and some templates are for the test alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

import xxhash

from ...operators import RejuiceError
from .templates import HELD_OUT, NAMES, RANGES, TEMPLATES, WORDS, Template

Split = Literal["train", "validation", "test"]
Operation = Literal["+", "-", "*", "/"]

LEVELS = (1, 2, 3, 4)
"""The levels there are: numbers of steps."""

_SPLITS: tuple[Split, ...] = get_args(Split)
_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_SHARES: tuple[Split, ...] = ("train", "train", "validation", "test")
_LARGEST = 500
_MANY = 1_000
_NUMBER = re.compile(r"\{([a-dkmvwy])\}")
_Item = TypeVar("_Item")


class Step(NamedTuple):
    """One operation of a solution.

    Attributes:
        left: the left operand.
        operation: what is done.
        right: the right operand.
        result: what comes out.
        uses: for each operand, the place (from 0) of the step it is the result of, or None.
        compares: whether it follows from a comparison, which can be taken the wrong way round.
        says: a sentence, with `{step}` where `3 + 4 = 7` goes.
    """

    left: int
    operation: Operation
    right: int
    result: int
    uses: tuple[int | None, int | None]
    compares: bool
    says: str

    @property
    def equation(self) -> str:
        """The operation written out, such as `3 + 4 = 7`."""
        return f"{self.left} {self.operation} {self.right} = {self.result}"


class Problem(NamedTuple):
    """A problem with its solution.

    Attributes:
        question: the text.
        answer: the worked solution; its last line is `#### ` and the reference.
        level: how many steps it takes, 1 to 4.
        steps: the same solution as data.
        template: name of the template it was made from.
        numbers: the numbers that were put in, in the order of the question.
    """

    question: str
    answer: str
    level: int
    steps: tuple[Step, ...]
    template: str
    numbers: tuple[int, ...]

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
    if split not in _SPLITS:
        raise RejuiceError(f"no split '{split}'", f"name one of {', '.join(_SPLITS)}")
    if not levels or not set(levels) <= set(LEVELS):
        raise RejuiceError(f"levels {_listed(levels)}", f"name some of {_listed(LEVELS)}")
    rng = seeded(seed, split, i)
    level = pick(rng, levels)
    plan = pick(rng, _PLANS[split, level])
    return _written(rng, plan, split, _values(rng, plan, split))


def problems(
    seed: int, split: Split, n: int, levels: Sequence[int] = (1, 2, 3)
) -> Iterator[Problem]:
    """The first `n` problems of a split with different questions; a repeated one is left out.

    Kept of a problem: one hash.

    Raises:
        RejuiceError: there are not so many different problems of these levels.
    """
    seen = set[int]()
    repeats = i = 0
    while len(seen) < n:
        found = problem(seed, split, i, levels)
        key = hashed(found.question)
        repeats = repeats + 1 if key in seen else 0
        if repeats == _MANY:
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


def calculate(left: int, operation: str, right: int) -> int:
    """The result, rounded down where a division leaves a rest and never below 0."""
    if operation == "+":
        return left + right
    if operation == "-":
        return max(left - right, 0)
    return left * right if operation == "*" else left // max(right, 1)


def seeded(*key: object) -> random.Random:
    """A generator that depends on `key` alone."""
    return random.Random(hashed("/".join(map(str, key))))


def hashed(text: str) -> int:
    """A 64-bit hash that is the same everywhere."""
    return int(xxhash.xxh3_64_intdigest(text.encode()))


def pick(rng: random.Random, items: Sequence[_Item]) -> _Item:
    """One of the items. Python promises that `random()` stays the same, not that `choice` does."""
    return items[int(rng.random() * len(items))]


def split_of(template: str, numbers: Sequence[int]) -> Split:
    """The only split in which a template may have these numbers."""
    return _SHARES[hashed(f"{template}{tuple(numbers)}") % len(_SHARES)]


class _Plan(NamedTuple):
    """A template made ready for drawing numbers.

    Attributes:
        template: what it was made from.
        held_out: whether it is for the test alone.
        letters: its numbers, in the order of the question.
        ranges: for each of them, the least value and how many values there are.
        constants: the numbers written in its operations.
        operations: left, operation, right; the operands are places in the list of the numbers,
            the constants and the results so far.
    """

    template: Template
    held_out: bool
    letters: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]
    constants: tuple[int, ...]
    operations: tuple[tuple[int, Operation, int], ...]


def _listed(levels: Sequence[int]) -> str:
    return ", ".join(map(str, levels)) or "none"


def _plan(template: Template) -> _Plan:
    letters = tuple(_NUMBER.findall(template.question))
    operations = [line.operation.split() for line in template.lines]
    constants = [name for parts in operations for name in parts[::2] if name.isdigit()]
    results = [f"r{place}" for place in range(1, len(operations) + 1)]
    places = {name: place for place, name in enumerate([*letters, *constants, *results])}
    return _Plan(
        template,
        template in HELD_OUT,
        letters,
        tuple((RANGES[letter][0], 1 + RANGES[letter][1] - RANGES[letter][0]) for letter in letters),
        tuple(map(int, constants)),
        tuple((places[left], _operation(name), places[right]) for left, name, right in operations),
    )


def _operation(name: str) -> Operation:
    return next(known for known in _OPERATIONS if known == name)


def _values(rng: random.Random, plan: _Plan, split: Split) -> list[int]:
    """Numbers that belong to the split, the constants, and the results, which all come out even."""
    draw, ranges, given = rng.random, plan.ranges, len(plan.letters)
    while True:
        values = [least + int(draw() * count) for least, count in ranges]
        values += plan.constants
        if _solve(values, plan) and (
            plan.held_out or split_of(plan.template.name, values[:given]) == split
        ):
            return values


def _solve(values: list[int], plan: _Plan) -> bool:
    """Append the results; False where one is a fraction, or does not fit into its sentence."""
    for left, operation, right in plan.operations:
        result = calculate(values[left], operation, values[right])
        # From 2 on, so that every noun is a plural and no operand is trivial.
        if not 2 <= result <= _LARGEST:
            return False
        if operation == "/" and result * values[right] != values[left]:
            return False
        values.append(result)
    return True


def _written(rng: random.Random, plan: _Plan, split: Split, values: list[int]) -> Problem:
    people = list(NAMES[split])
    words = {slot: people.pop(int(rng.random() * len(people))) for slot in "ABC"}
    words.update((slot, pick(rng, choice)) for slot, choice in WORDS.items())
    numbers = values[: len(plan.letters)]
    steps = _steps(plan, values, words)
    sentences = [step.says.format(step=step.equation) for step in steps]
    return Problem(
        question=plan.template.question.format(
            **words, **dict(zip(plan.letters, numbers, strict=True))
        ),
        answer="\n".join([*sentences, f"#### {values[-1]}"]),
        level=len(steps),
        steps=steps,
        template=plan.template.name,
        numbers=tuple(numbers),
    )


def _steps(plan: _Plan, values: list[int], words: dict[str, str]) -> tuple[Step, ...]:
    first = len(plan.letters) + len(plan.constants)
    return tuple(
        Step(
            left=values[left],
            operation=operation,
            right=values[right],
            result=values[first + place],
            uses=(
                left - first if left >= first else None,
                right - first if right >= first else None,
            ),
            compares=line.compares,
            says=line.says.format(step="{step}", **words),
        )
        for place, (line, (left, operation, right)) in enumerate(
            zip(plan.template.lines, plan.operations, strict=True)
        )
    )


_PLANS = {
    (split, level): [
        _plan(template)
        for template in (*TEMPLATES, *(HELD_OUT if split == "test" else ()))
        if len(template.lines) == level
    ]
    for split in _SPLITS
    for level in LEVELS
}
