"""Numbers for a template: drawn at random, but such that every step comes out even."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

import xxhash

from .templates import HELD_OUT, RANGES, TEMPLATES, Template

Split = Literal["train", "validation", "test"]
Operation = Literal["+", "-", "*", "/"]

SPLITS: tuple[Split, ...] = get_args(Split)
"""The splits there are."""

LEVELS = (1, 2, 3, 4)
"""The levels there are: numbers of steps."""

_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_SHARES: tuple[Split, ...] = ("train", "train", "validation", "test")
_LARGEST = 500
_NUMBER = re.compile(r"\{([a-dkmvwy])\}")
_Item = TypeVar("_Item")


class Plan(NamedTuple):
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


def draw(rng: random.Random, plan: Plan, split: Split) -> list[int]:
    """Numbers that belong to the split, the constants, and the results, which all come out even."""
    unit, given = rng.random, len(plan.letters)
    while True:
        values = [least + int(unit() * count) for least, count in plan.ranges]
        values += plan.constants
        if _solve(values, plan) and (
            plan.held_out or split_of(plan.template.name, values[:given]) == split
        ):
            return values


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


def _plan(template: Template) -> Plan:
    letters = tuple(_NUMBER.findall(template.question))
    operations = [line.operation.split() for line in template.lines]
    constants = [name for parts in operations for name in parts[::2] if name.isdigit()]
    results = [f"r{place}" for place in range(1, len(operations) + 1)]
    places = {name: place for place, name in enumerate([*letters, *constants, *results])}
    return Plan(
        template,
        template in HELD_OUT,
        letters,
        tuple((RANGES[letter][0], 1 + RANGES[letter][1] - RANGES[letter][0]) for letter in letters),
        tuple(map(int, constants)),
        tuple((places[left], _operation(name), places[right]) for left, name, right in operations),
    )


def _operation(name: str) -> Operation:
    return next(known for known in _OPERATIONS if known == name)


def _solve(values: list[int], plan: Plan) -> bool:
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


PLANS = {
    (split, level): [
        _plan(template)
        for template in (*TEMPLATES, *(HELD_OUT if split == "test" else ()))
        if len(template.lines) == level
    ]
    for split in SPLITS
    for level in LEVELS
}
"""Templates by split and level."""
