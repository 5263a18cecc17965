"""Arithmetic word problems with worked solutions: each is made from its index, without end.

No two splits share a problem, by construction: each has names of its own; a template with given
numbers belongs to one split, chosen by their hash; and some templates are in the test split only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import xxhash
import yaml

from ...operators import RejuiceError

# --- Texts ----------------------------------------------------------------------------


class Line(NamedTuple):
    sentence: str  # its text
    operation: str  # `LEFT OP RIGHT`, with numbers, letters and earlier results
    # whether the operation follows from a comparison, which can be taken the wrong way round: B has
    # 3 more than A
    compares: bool = False


class Template(NamedTuple):
    """A problem without its names and numbers; each of its lines is a step."""

    name: str
    question: str
    lines: tuple[Line, ...]


def read_texts(name: str) -> Any:
    text = Path(__file__).with_name(name).read_text("utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _template(name: str, question: str, lines: list[dict[str, Any]]) -> Template:
    return Template(name, question, tuple(Line(**line) for line in lines))


_TEXTS = read_texts("arithmetic.yaml")
RANGES: Mapping[str, Sequence[int]] = _TEXTS["ranges"]
"""Least and greatest value of each number, by its letter."""
NAMES: Mapping[str, Sequence[str]] = _TEXTS["names"]
"""Who appears in the problems of each split; nobody appears in two."""
WORDS: Mapping[str, Sequence[str]] = _TEXTS["words"]
"""What a slot for a thing is filled with."""
TEMPLATES = tuple(_template(**each) for each in _TEXTS["templates"])
"""Templates of all splits."""
HELD_OUT = tuple(_template(**each) for each in _TEXTS["held_out"])
"""Templates of the test split alone."""

# --- Random numbers for a template, such that each step gives a whole number ----------

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
    unit, given = rng.random, len(parsed.letters)
    while True:
        values = [least + int(unit() * count) for least, count in parsed.ranges]
        values += parsed.constants
        if _solve(values, parsed) and (
            parsed.held_out or split_of(parsed.template.name, values[:given]) == split
        ):
            return values


def calculate(left: int, operation: str, right: int) -> int:
    """A division is rounded down, and nothing is below 0."""
    if operation == "+":
        return left + right
    if operation == "-":
        return max(left - right, 0)
    return left * right if operation == "*" else left // max(right, 1)


def seeded(*key: object) -> random.Random:
    return random.Random(hashed("/".join(map(str, key))))


def hashed(text: str) -> int:
    return int(xxhash.xxh3_64_intdigest(text.encode()))


def pick(rng: random.Random, items: Sequence[_Item]) -> _Item:
    """One of the items. Python promises that `random()` stays the same, not that `choice` does."""
    return items[int(rng.random() * len(items))]


def split_of(template: str, numbers: Sequence[int]) -> Split:
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


# --- Problems -------------------------------------------------------------------------

_MOST_REPEATS = 1_000


class DemoOptions(NamedTuple):
    """What a generated dataset is asked for; the same gives the same rows."""

    prompts: int = 200  # problems or questions
    split: Split = "train"
    levels: Sequence[int] = (1, 2, 3)  # numbers of steps, where problems have them
    seed: int = 0
    responses: int = 8  # of each problem, where they are recorded


class SolutionStep(NamedTuple):
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


def check_asked(split: str, levels: Sequence[int]) -> None:
    if split not in SPLITS:
        raise RejuiceError(f"no split '{split}'", f"name one of {', '.join(SPLITS)}")
    if not levels or not set(levels) <= set(LEVELS):
        raise RejuiceError(f"levels {_listed(levels)}", f"name some of {_listed(LEVELS)}")


def problem(seed: int, split: Split, i: int, levels: Sequence[int] = LEVELS) -> Problem:
    """Problem `i` of a split, which depends on the arguments and on nothing else.

    Example:
        >>> problem(0, "train", 1, levels=(1,)).question
        'Ivy buys 3 eggs. Each one costs 18 dollars. How many dollars does Ivy pay?'
    """
    check_asked(split, levels)
    rng = seeded(seed, split, i)
    level = pick(rng, levels)
    parsed = pick(rng, PARSED_TEMPLATES[split, level])
    return _written(rng, parsed, split, sample_numbers(rng, parsed, split))


def problems(
    seed: int, split: Split, n: int, levels: Sequence[int] = (1, 2, 3)
) -> Iterator[Problem]:
    """The first `n` problems of a split with different questions; a repeated one is left out."""
    what = f"problems of levels {_listed(levels)}"
    return distinct(lambda i: problem(seed, split, i, levels), n, what, lambda made: made.question)


def distinct(
    make: Callable[[int], _Item | None], n: int, what: str, key: Callable[[_Item], str]
) -> Iterator[_Item]:
    """The first `n` of what is made, from 0 on, with different keys; None is left out."""
    seen = set[int]()
    repeats = i = 0
    while len(seen) < n:
        found = make(i)
        i += 1
        if found is not None and (text := hashed(key(found))) not in seen:
            repeats = 0
            seen.add(text)
            yield found
        elif (repeats := repeats + 1) == _MOST_REPEATS:
            raise RejuiceError(f"hardly more than {len(seen)} different {what}", "ask for fewer")


def parse_levels(text: str) -> tuple[int, ...]:
    """Levels as written on a command line, such as `1,3`."""
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
