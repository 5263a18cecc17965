"""Arithmetic word problems with worked solutions, and questions about numbers and documents.

Each is made from its index, without end.

No two splits share a problem, by construction: each has names of its own; a template with given
numbers belongs to one split, chosen by their hash; and some templates are in the test split only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import xxhash
import yaml

from ...operators import RejuiceError

# --- Texts ----------------------------------------------------------------------------


Split = Literal["train", "validation", "test"]
Operation = Literal["+", "-", "*", "/"]


class Line(NamedTuple):
    """A line of a worked solution. Operands are numbers, letters of the question, or earlier
    results, such as `r1`."""

    sentence: str  # its text
    left: str
    operation: Operation
    right: str
    # whether the operation follows from a comparison, which can be taken the wrong way round: B has
    # 3 more than A
    compares: bool


class Template(NamedTuple):
    """A problem without its names and numbers; each of its lines is a step."""

    name: str
    question: str
    lines: tuple[Line, ...]
    letters: tuple[str, ...]  # its numbers, in the order of the question
    held_out: bool  # whether it is for the test alone


def read_texts(name: str) -> Any:
    text = Path(__file__).with_name(name).read_text("utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _templates(given: Any, *, held_out: bool) -> Iterator[Template]:
    for each in given:
        letters = tuple(_NUMBER.findall(each["question"]))
        lines = tuple(map(_line, each["lines"]))
        yield Template(each["name"], each["question"], lines, letters, held_out)


def _line(given: Any) -> Line:
    left, operation, right = given["operation"].split()
    return Line(given["sentence"], left, operation, right, given.get("compares", False))


_NUMBER = re.compile(r"\{([a-dkmvwy])\}")
_TEXTS = read_texts("arithmetic.yaml")
RANGES: Mapping[str, Sequence[int]] = _TEXTS["ranges"]
"""Least and greatest value of each number, by its letter."""
NAMES: Mapping[str, Sequence[str]] = _TEXTS["names"]
"""Who appears in the problems of each split; nobody appears in two."""
WORDS: Mapping[str, Sequence[str]] = _TEXTS["words"]
"""What a slot for a thing is filled with."""
TEMPLATES = tuple(_templates(_TEXTS["templates"], held_out=False))
"""Templates of all splits."""
HELD_OUT = tuple(_templates(_TEXTS["held_out"], held_out=True))
"""Templates of the test split alone."""

# --- Random numbers for a template, such that each step gives a whole number ----------

SPLITS: tuple[Split, ...] = get_args(Split)
"""All splits."""

LEVELS = (1, 2, 3, 4)
"""All levels: numbers of steps."""

_SHARES: tuple[Split, ...] = ("train", "train", "validation", "test")
_LARGEST = 500
_Item = TypeVar("_Item")


def sample_numbers(rng: random.Random, template: Template, split: Split) -> dict[str, int]:
    """Numbers that belong to the split, by letter, then the results, all whole."""
    unit, ranges = rng.random, {letter: RANGES[letter] for letter in template.letters}
    while True:
        values = {
            letter: least + int(unit() * (1 + greatest - least))
            for letter, (least, greatest) in ranges.items()
        }
        numbers = list(values.values())
        if _solve(values, template) and (
            template.held_out or split_of(template.name, numbers) == split
        ):
            return values


def _operands(line: Line, values: Mapping[str, int]) -> list[int]:
    return [int(name) if name.isdigit() else values[name] for name in (line.left, line.right)]


def _solve(values: dict[str, int], template: Template) -> bool:
    """Add the results; False where one is a fraction, or does not fit into its sentence."""
    for place, line in enumerate(template.lines, 1):
        left, right = _operands(line, values)
        result = calculate(left, line.operation, right)
        # From 2 on, so that every noun is a plural and no operand is trivial.
        if not 2 <= result <= _LARGEST or (line.operation == "/" and result * right != left):
            return False
        values[f"r{place}"] = result
    return True


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


_TEMPLATES = {
    (split, level): [
        each
        for each in (*TEMPLATES, *(HELD_OUT if split == "test" else ()))
        if len(each.lines) == level
    ]
    for split in SPLITS
    for level in LEVELS
}


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


def problem(seed: int, split: Split, i: int, levels: Sequence[int] = LEVELS) -> Problem:
    """Problem `i` of a split, which depends on the arguments and on nothing else.

    Example:
        >>> problem(0, "train", 1, levels=(1,)).question
        'Ivy buys 3 eggs. Each one costs 18 dollars. How many dollars does Ivy pay?'
    """
    rng = seeded(seed, split, i)
    level = pick(rng, levels)
    template = pick(rng, _TEMPLATES[split, level])
    return _written(rng, template, split, sample_numbers(rng, template, split))


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
        levels = tuple(map(int, text.split(",")))
    except ValueError:
        raise RejuiceError(f"levels are '{text}'", "write them like 1,2,3") from None
    if not set(levels) <= set(LEVELS):
        raise RejuiceError(f"levels are {_listed(levels)}", f"name some of {_listed(LEVELS)}")
    return levels


def _written(
    rng: random.Random, template: Template, split: Split, values: Mapping[str, int]
) -> Problem:
    people = list(NAMES[split])
    words = {slot: people.pop(int(rng.random() * len(people))) for slot in "ABC"}
    words.update((slot, pick(rng, choice)) for slot, choice in WORDS.items())
    numbers = {letter: values[letter] for letter in template.letters}
    steps = tuple(_steps(template, values, words))
    sentences = [step.sentence.format(step=step.equation) for step in steps]
    return Problem(
        question=template.question.format(**words, **numbers),
        answer="\n".join([*sentences, f"#### {steps[-1].result}"]),
        level=len(steps),
        steps=steps,
        template=template.name,
        numbers=tuple(numbers.values()),
    )


def _steps(
    template: Template, values: Mapping[str, int], words: Mapping[str, str]
) -> Iterator[SolutionStep]:
    for place, line in enumerate(template.lines, 1):
        left, right = _operands(line, values)
        first, second = (
            int(name[1:]) - 1 if name.startswith("r") else None for name in (line.left, line.right)
        )
        sentence = line.sentence.format(step="{step}", **words)
        result = values[f"r{place}"]
        yield SolutionStep(
            left, line.operation, right, result, (first, second), line.compares, sentence
        )


def _listed(levels: Sequence[int]) -> str:
    return ", ".join(map(str, levels))


# --- Questions ------------------------------------------------------------------------
# They are at the level of a language model of some hundred million parameters, which has no use for
# worded problems.

_SUMS = {2: (1, 20), 3: (1, 99), 4: (2, 99)}
"""Levels from 2 on: how many signs there are, and the largest number."""


class NumberQuestion(NamedTuple):
    """A question with its answer: a whole number from 0."""

    question: str  # such as `What is 23 + 45 - 6?`
    answer: str  # the number
    level: int  # 1 to 4


def number_question(seed: int, split: Split, i: int, levels: Sequence[int]) -> NumberQuestion:
    """Question `i` of a split, which depends on the arguments and on nothing else.

    Level 1 asks for the larger or smaller of two numbers up to 99, level 2 for a sum or
    difference of numbers up to 20, level 3 up to 99, and level 4 for two operations on numbers up
    to 99. No result on the way is below 0.

    Example:
        >>> number_question(0, "train", 1, levels=(4,)).question
        'What is 40 + 38 - 14?'
    """
    rng = seeded(seed, split, i)
    level = pick(rng, levels)
    while True:
        made = _comparison(rng) if level == 1 else _sum(rng, *_SUMS[level])
        if made and _split(made[0]) == split:
            return NumberQuestion(*made, level)


def _split(question: str) -> Split:
    """`3 + 4` and `4 + 3`, larger or smaller, are in the same."""
    numbers = sorted(map(int, re.findall(r"\d+", question)))
    return split_of("".join(sorted(set(question) & {"+", "-"})), numbers)


def _comparison(rng: random.Random) -> tuple[str, str]:
    word = pick(rng, ("larger", "smaller"))
    a, b = rng.sample(range(1, 100), 2)
    answer = max(a, b) if word == "larger" else min(a, b)
    return f"Which number is {word}, {a} or {b}?", str(answer)


def _sum(rng: random.Random, operations: int, most: int) -> tuple[str, str] | None:
    numbers = [1 + int(rng.random() * most) for _ in range(operations + 1)]
    text, result = str(numbers[0]), numbers[0]
    for number in numbers[1:]:
        sign = pick(rng, "+-")
        text += f" {sign} {number}"
        result += number if sign == "+" else -number
        if result < 0:
            return None
    return f"What is {text}?", str(result)


def number_questions(
    seed: int, split: Split, n: int, levels: Sequence[int] = (1, 2, 3)
) -> Iterator[NumberQuestion]:
    """The first `n` questions of a split that differ; no two splits share one.

    Nor do they share one with its numbers in another order.
    """
    made = partial(number_question, seed, split, levels=levels)
    return distinct(made, n, "questions of these levels", lambda each: each.question)


# --- Questions about documents --------------------------------------------------------
# For agents that search and calculate. Every task has documents of its own with numbers of its own,
# so nothing can be memorised: what a policy learns is when to search, for what, when to calculate
# and when to answer. No two splits share a question, because every question names somebody.

LookupKind = Literal["count", "price", "pair", "hops"]

KINDS: tuple[LookupKind, ...] = get_args(LookupKind)
"""What is asked: a number in one document; a price times a number; the sum or the difference of the
numbers in two documents; a price times a number, in the shop that another document names."""

# fmt: off
GOODS = ("chairs", "clocks", "drums", "hats", "lamps", "pillows", "shirts", "tables")
SHOPS = ("bazaar", "depot", "factory", "harbour", "mall", "market", "museum", "station")
# fmt: on

QUESTIONS = {
    "count": "How many {things} does {A} have?",
    "price": "How many dollars does {A} pay for {k} {goods} at the {shop}?",
    "sum": "How many {things} do {A} and {B} have together?",
    "difference": "How many more {things} does {A} have than {B}?",
    "hops": "How many dollars do {k} {goods} cost where {A} shops?",
}
"""The questions; those of the kind `pair` are `sum` and `difference`."""

DOCUMENTS = {
    "count": "{A} has {n} {things}.",
    "price": "The {shop} sells {goods} for {n} dollars.",
    "visit": "{A} shops at the {shop}.",
}
"""The sentences of documents, each of which is one."""

_COUNTS, _PRICES, _TIMES = range(10, 100), range(10, 61), range(2, 10)


class Lookup(NamedTuple):
    query: str  # words that only this document has all of
    document: str  # what the search gives


class LookupTask(NamedTuple):
    question: str  # the text
    answer: int  # the right answer, a whole number above 0
    documents: tuple[str, ...]  # all different, in no order
    kind: LookupKind  # what is asked
    # documents that the answer needs, in an order in which they can be found
    lookups: tuple[Lookup, ...]
    expression: str | None  # what is calculated of them, such as `8 * 46`; None where nothing is


def lookup_task(seed: int, split: Split, i: int) -> LookupTask:
    """Task `i` of a split, which depends on the arguments and on nothing else.

    Example:
        >>> lookup_task(0, "train", 4).question
        'How many marbles does Emma have?'
    """
    return make_task(seeded("lookup", seed, split, i), NAMES[split])


def lookup_tasks(seed: int, split: Split, n: int) -> Iterator[LookupTask]:
    """The first `n` tasks of a split that differ in question or answer, as prompts do."""
    made = partial(lookup_task, seed, split)
    return distinct(made, n, "look-up tasks", lambda task: f"{task.question} {task.answer}")


def make_task(rng: random.Random, people: Sequence[str]) -> LookupTask:
    world = _world(rng, people)
    kind = pick(rng, KINDS)
    question, words, queries, (left, operation, right) = _asked(rng, world, kind)
    return LookupTask(
        question=QUESTIONS[question].format(**words),
        answer=left if operation is None else calculate(left, operation, right),
        documents=tuple(_drawn(rng, list(world.documents.values()), len(world.documents))),
        kind=kind,
        lookups=tuple(Lookup(query, world.documents[query]) for query in queries),
        expression=None if operation is None else f"{left} {operation} {right}",
    )


class _World(NamedTuple):
    people: list[str]  # three
    thing: str  # what every one of them has
    good: str  # what every shop sells
    shops: list[str]  # three
    counts: dict[tuple[str, str], int]  # how many things somebody has
    prices: dict[tuple[str, str], int]  # what a good costs in a shop
    visited: dict[str, str]  # the shop where somebody buys
    documents: dict[str, str]  # each by the query that finds it


def _world(rng: random.Random, people: Sequence[str]) -> _World:
    """One of its six counts, and one of its six prices, is in no document."""
    chosen, shops = _drawn(rng, people, 3), _drawn(rng, SHOPS, 3)
    things, goods = _drawn(rng, WORDS["things"], 2), _drawn(rng, GOODS, 2)
    owned = [(who, what) for what in things for who in chosen][:-1]
    sold = [(shop, what) for what in goods for shop in shops][:-1]
    counts = dict(zip(owned, _drawn(rng, _COUNTS, len(owned)), strict=True))
    prices = dict(zip(sold, _drawn(rng, _PRICES, len(sold)), strict=True))
    visited = {who: pick(rng, shops) for who in chosen}
    count, price, visit = DOCUMENTS["count"], DOCUMENTS["price"], DOCUMENTS["visit"]
    documents = {
        **{f"{who} {what}": count.format(A=who, n=n, things=what)
           for (who, what), n in counts.items()},
        **{f"{shop} {what}": price.format(shop=shop, goods=what, n=n)
           for (shop, what), n in prices.items()},
        **{f"{who} shops": visit.format(A=who, shop=shop) for who, shop in visited.items()},
    }  # fmt: skip
    return _World(chosen, things[0], goods[0], shops, counts, prices, visited, documents)


def _asked(
    rng: random.Random, world: _World, kind: LookupKind
) -> tuple[str, dict[str, Any], list[str], tuple[int, str | None, int]]:
    """A question: its key in QUESTIONS, the words in it, what is looked up and calculated."""
    a, thing, good = world.people[0], world.thing, world.good
    if kind == "count":
        words: dict[str, Any] = {"A": a, "things": thing}
        return kind, words, [f"{a} {thing}"], (world.counts[a, thing], None, 0)
    if kind == "pair":
        question, operation = pick(rng, (("sum", "+"), ("difference", "-")))
        pair = world.people[:2]
        if question == "difference":  # Who has more comes first.
            pair.sort(key=lambda who: -world.counts[who, thing])
        a, b = pair
        both = (world.counts[a, thing], operation, world.counts[b, thing])
        return question, {"A": a, "B": b, "things": thing}, [f"{a} {thing}", f"{b} {thing}"], both
    shop = pick(rng, world.shops) if kind == "price" else world.visited[a]
    k = pick(rng, _TIMES)
    found = [f"{shop} {good}"] if kind == "price" else [f"{a} shops", f"{shop} {good}"]
    words = {"A": a, "k": k, "goods": good, "shop": shop}
    return kind, words, found, (k, "*", world.prices[shop, good])


def _drawn(rng: random.Random, items: Sequence[_Item], n: int) -> list[_Item]:
    rest = list(items)
    return [rest.pop(int(rng.random() * len(rest))) for _ in range(n)]
