"""The look-up world: right answers, documents that searches find, splits that share nothing."""

import asyncio
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import RejuiceError
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools.calculator import Calculator
from rejuice.operators.agents.tools.search import Search
from rejuice.pipelines.demo.problems import KINDS, NAMES, SPLITS, lookup_task, lookup_tasks

seeds = st.integers(0, 2**32)
splits = st.sampled_from(SPLITS)
places = st.integers(0, 10**9)

HAS = re.compile(r"(\w+) has (\d+) (\w+)\.")
SELLS = re.compile(r"The (\w+) sells (\w+) for (\d+) dollars\.")
SHOPS_AT = re.compile(r"(\w+) shops at the (\w+)\.")


def read(documents):
    """What the documents say, read with no code of the world's."""
    counts, prices, visited = {}, {}, {}
    for text in documents:
        if found := HAS.fullmatch(text):
            counts[found[1], found[3]] = int(found[2])
        elif found := SELLS.fullmatch(text):
            prices[found[1], found[2]] = int(found[3])
        else:
            found = SHOPS_AT.fullmatch(text)
            visited[found[1]] = found[2]
    return counts, prices, visited


def solved(question, documents):
    """The answer, worked out from the question and all documents alone."""
    counts, prices, visited = read(documents)
    if found := re.fullmatch(r"How many (\w+) does (\w+) have\?", question):
        return counts[found[2], found[1]]
    if found := re.fullmatch(r"How many more (\w+) does (\w+) have than (\w+)\?", question):
        return counts[found[2], found[1]] - counts[found[3], found[1]]
    if found := re.fullmatch(r"How many (\w+) do (\w+) and (\w+) have together\?", question):
        return counts[found[2], found[1]] + counts[found[3], found[1]]
    if found := re.fullmatch(r"How many dollars do (\d) (\w+) cost where (\w+) shops\?", question):
        return int(found[1]) * prices[visited[found[3]], found[2]]
    found = re.fullmatch(r"How many dollars does \w+ pay for (\d) (\w+) at the (\w+)\?", question)
    return int(found[1]) * prices[found[3], found[2]]


def test_a_task_stays_what_it_was():
    task = lookup_task(0, "train", 3)
    assert task.question == "How many dollars do 9 tables cost where Olga shops?"
    assert (task.answer, task.kind, task.expression) == (459, "hops", "9 * 51")
    assert task.lookups == (
        ("Olga shops", "Olga shops at the depot."),
        ("depot tables", "The depot sells tables for 51 dollars."),
    )


@given(seeds, splits, places)
def test_the_answer_is_right(seed, split, i):
    task = lookup_task(seed, split, i)
    assert task.answer == solved(task.question, task.documents) > 0


@given(seeds, splits, places)
def test_documents_are_thirteen_and_say_thirteen_things(seed, split, i):
    documents = lookup_task(seed, split, i).documents
    counts, prices, visited = read(documents)
    assert (len(counts), len(prices), len(visited)) == (5, 5, 3)
    assert len(documents) == len(set(documents)) == 13
    assert len(set(counts.values())) == len(set(prices.values())) == 5


@given(seeds, splits, places)
def test_a_task_depends_on_its_index_alone(seed, split, i):
    assert lookup_task(seed, split, i) == lookup_task(seed, split, i)
    assert lookup_task(seed, split, i) != lookup_task(seed, split, i + 1)


def test_tools_find_and_calculate_what_the_solution_says():
    """The perfect planner succeeds in all tasks, through the tools that the policy has."""

    async def play(tasks):
        toolbox = await Toolbox.of([Search(documents="documents", k=1), Calculator()])
        for task in tasks:
            columns = {"documents": list(task.documents)}
            for query, document in task.lookups:
                found = await toolbox.call("search", toolbox.arguments_of("search", query), columns)
                assert found == (document, "ok")
            if task.expression is None:
                assert f" {task.answer} " in task.lookups[-1].document
            else:
                found = await toolbox.call(
                    "calculator", toolbox.arguments_of("calculator", task.expression), columns
                )
                assert found == (str(task.answer), "ok")

    asyncio.run(play([lookup_task(3, split, i) for split in SPLITS for i in range(100)]))


@pytest.mark.slow
def test_searches_find_the_right_document_in_many_tasks():
    async def misses(tasks):
        toolbox = await Toolbox.of([Search(documents="documents", k=1)])
        return [
            lookup
            for task in tasks
            for lookup in task.lookups
            if (
                await toolbox.call(
                    "search",
                    toolbox.arguments_of("search", lookup.query),
                    {"documents": list(task.documents)},
                )
            )
            != (lookup.document, "ok")
        ]

    assert asyncio.run(misses(lookup_task(5, "train", i) for i in range(3000))) == []


def test_every_kind_is_asked_and_takes_two_to_four_turns():
    tasks = [lookup_task(0, "train", i) for i in range(400)]
    kinds = Counter(task.kind for task in tasks)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) > 60
    turns = {(t.kind, len(t.lookups) + (t.expression is not None) + 1) for t in tasks}
    assert turns == {("count", 2), ("price", 3), ("pair", 4), ("hops", 4)}


def test_splits_share_no_question():
    asked = {split: {task.question for task in lookup_tasks(0, split, 300)} for split in SPLITS}
    everybody = {split: set(NAMES[split]) for split in SPLITS}
    for split, questions in asked.items():
        others = set().union(*(everybody[other] for other in SPLITS if other != split))
        for question in questions:
            words = set(re.findall(r"\w+", question))
            assert words & everybody[split]
            assert not words & others


def test_tasks_of_a_file_differ_in_question_or_answer():
    many = list(lookup_tasks(1, "validation", 2_000))
    assert len({(task.question, task.answer) for task in many}) == 2_000
    assert list(lookup_tasks(1, "validation", 50)) == many[:50]


def test_more_tasks_than_there_are(monkeypatch):
    monkeypatch.setattr("rejuice.pipelines.demo.problems._TIMES", range(2, 3))
    monkeypatch.setattr("rejuice.pipelines.demo.problems._COUNTS", range(10, 15))
    monkeypatch.setattr("rejuice.pipelines.demo.problems._PRICES", range(10, 15))
    monkeypatch.setattr("rejuice.pipelines.demo.problems._MOST_REPEATS", 20)
    monkeypatch.setitem(NAMES, "test", NAMES["test"][:3])
    with pytest.raises(RejuiceError, match=r"^hardly more than \d+ different look-up tasks; ask for fewer$"):  # fmt: skip
        list(lookup_tasks(0, "test", 100_000))
