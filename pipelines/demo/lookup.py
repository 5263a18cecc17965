"""Questions about a handful of documents, for agents that search and calculate.

Every task has documents of its own with numbers of its own, so nothing can be memorised: what a
policy learns is when to search, for what, when to calculate and when to answer. No two splits share
a question, because every question names somebody and each split has names of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from .problems import LEVELS, NAMES, WORDS, Split, calculate, check_asked, distinct, pick, seeded

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
_Item = TypeVar("_Item")


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
    check_asked(split, LEVELS)
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
