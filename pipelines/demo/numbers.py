"""Random numbers for a template, such that each step gives a whole number."""

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
"""All splits."""

LEVELS = (1, 2, 3, 4)
"""All levels: numbers of steps."""

_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_SHARES: tuple[Split, ...] = ("train", "train", "validation", "test")
_LARGEST = 500
_NUMBER = re.compile(r"\{([a-dkmvwy])\}")
_Item = TypeVar("_Item")


class ParsedTemplate(NamedTuple):
    """A template, parsed once for sampling its numbers."""

    template: Template  # what it was made from
    held_out: bool  # whether it is for the test alone
    letters: tuple[str, ...]  # its numbers, in the order of the question
    # for each of them, the least value and how many values there are
    ranges: tuple[tuple[int, int], ...]
    constants: tuple[int, ...]  # the numbers written in its operations
    # left, operation, right; the operands are places in the list of the numbers, the constants and
    # the results so far
    operations: tuple[tuple[int, Operation, int], ...]


def sample_numbers(rng: random.Random, parsed: ParsedTemplate, split: Split) -> list[int]:
    """Numbers that belong to the split, then the constants, then the results, all whole."""
    unit, given = rng.random, len(parsed.letters)
    while True:
        values = [least + int(unit() * count) for least, count in parsed.ranges]
        values += parsed.constants
        if _solve(values, parsed) and (
            parsed.held_out or split_of(parsed.template.name, values[:given]) == split
        ):
            return values


def calculate(left: int, operation: str, right: int) -> int:
    """The result: a division is rounded down, and nothing is below 0."""
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


def _parsed(template: Template) -> ParsedTemplate:
    letters = tuple(_NUMBER.findall(template.question))
    operations = [line.operation.split() for line in template.lines]
    constants = [name for parts in operations for name in parts[::2] if name.isdigit()]
    results = [f"r{place}" for place in range(1, len(operations) + 1)]
    places = {name: place for place, name in enumerate([*letters, *constants, *results])}
    return ParsedTemplate(
        template,
        template in HELD_OUT,
        letters,
        tuple((RANGES[letter][0], 1 + RANGES[letter][1] - RANGES[letter][0]) for letter in letters),
        tuple(map(int, constants)),
        tuple((places[left], _operation(name), places[right]) for left, name, right in operations),
    )


def _operation(name: str) -> Operation:
    return next(known for known in _OPERATIONS if known == name)


def _solve(values: list[int], parsed: ParsedTemplate) -> bool:
    """Append the results; False where one is a fraction, or does not fit into its sentence."""
    for left, operation, right in parsed.operations:
        result = calculate(values[left], operation, values[right])
        # From 2 on, so that every noun is a plural and no operand is trivial.
        if not 2 <= result <= _LARGEST:
            return False
        if operation == "/" and result * values[right] != values[left]:
            return False
        values.append(result)
    return True


PARSED_TEMPLATES = {
    (split, level): [
        _parsed(template)
        for template in (*TEMPLATES, *(HELD_OUT if split == "test" else ()))
        if len(template.lines) == level
    ]
    for split in SPLITS
    for level in LEVELS
}
"""Templates by split and level."""
