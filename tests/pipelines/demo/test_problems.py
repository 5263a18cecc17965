"""Problems: right by their own steps, shared by no two splits, each from its index alone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import RejuiceError
from rejuice.pipelines.demo.problems import (
    HELD_OUT,
    LEVELS,
    NAMES,
    RANGES,
    SPLITS,
    TEMPLATES,
    Problem,
    Split,
    parse_levels,
    problem,
    problems,
    split_of,
)

OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}
GOLDEN = (
    "Emma has 16 dollars and buys 3 apples for 2 dollars each. How many dollars are left?",
    "The apples cost 3 * 2 = 6 dollars.\nThere are 16 - 6 = 10 dollars left.\n#### 10",
)
any_problem = st.builds(
    problem, st.integers(0, 2**64), st.sampled_from(SPLITS), st.integers(0, 10**9)
)


@pytest.fixture(scope="module")
def by_split() -> dict[Split, list[Problem]]:
    return {split: [problem(0, split, i) for i in range(5_000)] for split in SPLITS}


def test_a_problem_stays_what_it_was():
    found = problem(0, "train", 4, levels=(2,))
    assert (found.question, found.answer) == GOLDEN
    assert problem(0, "train", 4, levels=(2,)) == found


@given(any_problem)
def test_the_solution_follows_from_the_numbers(found: Problem):
    results = list[int]()
    for step in found.steps:
        assert OPERATIONS[step.operation](step.left, step.right) == step.result >= 2
        assert step.operation != "/" or step.left % step.right == 0
        for operand, place in zip((step.left, step.right), step.uses, strict=True):
            assert (
                operand == results[place] if place is not None else operand in (*found.numbers, 2)
            )
        results.append(step.result)
    assert found.answer.endswith(f"\n#### {results[-1]}")
    assert (found.reference, found.level) == (results[-1], len(results))


@given(any_problem)
def test_every_line_of_the_solution_is_a_true_equation(found: Problem):
    *lines, _ = found.answer.split("\n")
    for line in lines:
        (equation,) = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", line)
        left, operation, right, result = equation
        assert OPERATIONS[operation](int(left), int(right)) == int(result)


@given(any_problem)
def test_the_question_names_the_numbers_and_nothing_is_left_to_fill_in(found: Problem):
    assert [int(text) for text in re.findall(r"\d+", found.question)] == list(found.numbers)
    assert not set("{}") & set(found.question + found.answer)


def test_every_step_counts():
    # A result that no later step uses would make a problem seem harder than it is.
    for template in (*TEMPLATES, *HELD_OUT):
        later = " ".join(f"{line.left} {line.right}" for line in template.lines)
        for place in range(1, len(template.lines)):
            assert f"r{place}" in later, template.name


@pytest.mark.slow
def test_splits_share_nothing(by_split: dict[Split, list[Problem]]):
    for one in SPLITS:
        for other in set(SPLITS) - {one}:
            for what in (lambda p: p.question, lambda p: (p.template, p.numbers)):
                assert set(map(what, by_split[one])).isdisjoint(map(what, by_split[other]))
            assert set(NAMES[one]).isdisjoint(NAMES[other])


@pytest.mark.slow
def test_splits_share_nothing_in_many_more():
    seen = dict[tuple[str, tuple[int, ...]] | str, Split]()
    for split in SPLITS:
        for i in range(20_000):
            found = problem(7, split, i)
            assert seen.setdefault((found.template, found.numbers), split) == split
            assert seen.setdefault(found.question, split) == split


@pytest.mark.slow
def test_only_the_test_has_the_held_out_templates(by_split: dict[Split, list[Problem]]):
    held_out = {template.name for template in HELD_OUT}
    common = {template.name for template in TEMPLATES}
    used = {split: {p.template for p in by_split[split]} for split in SPLITS}
    assert used == {"train": common, "validation": common, "test": common | held_out}
    assert len(common) >= 24


def test_shares_of_the_splits():
    places = [split_of("gift", (a, b)) for a in range(100) for b in range(100)]
    shares = [places.count(split) / len(places) for split in SPLITS]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.015)


@pytest.mark.slow
def test_easy_levels_have_numbers_to_20(by_split: dict[Split, list[Problem]]):
    easy = [n for p in by_split["train"] if p.level <= 2 for n in p.numbers]
    assert min(easy) == 2
    assert max(easy) == 20
    assert max(n for p in by_split["train"] for n in p.numbers) <= RANGES["y"][1]


@pytest.mark.slow
def test_the_vocabulary_is_small_and_plain(by_split: dict[Split, list[Problem]]):
    text = " ".join(f"{p.question} {p.answer}" for split in SPLITS for p in by_split[split])
    assert text.isascii()
    words = set(re.findall(r"[A-Za-z]+|\d|\S", text))
    assert 150 < len(words) < 350


@given(st.sets(st.sampled_from(LEVELS), min_size=1), st.integers(0, 10**6))
def test_levels_are_those_that_were_requested(levels: set[int], i: int):
    assert problem(1, "test", i, sorted(levels)).level in levels


def test_problems_are_different_and_a_longer_run_begins_like_a_shorter_one():
    many = list(problems(3, "train", 3_000, levels=(1,)))
    assert len({p.question for p in many}) == 3_000
    assert list(problems(3, "train", 300, levels=(1,))) == many[:300]
    first = [problem(3, "train", i, levels=(1,)) for i in range(20)]
    assert many[:20] == list(dict.fromkeys(first))[:20]


def test_seeds_differ():
    assert next(problems(0, "train", 1)) != next(problems(1, "train", 1))


def test_more_problems_than_there_are(monkeypatch):
    monkeypatch.setattr("rejuice.pipelines.demo.problems._MOST_REPEATS", 1)
    with pytest.raises(RejuiceError, match=r"hardly more than \d+ different problems of levels 1;"):
        list(problems(0, "train", 10**6, levels=(1,)))


def test_parse_levels():
    assert parse_levels("1,2, 4") == (1, 2, 4)
    with pytest.raises(RejuiceError, match="levels are '1-3'; write them like 1,2,3"):
        parse_levels("1-3")
    with pytest.raises(RejuiceError, match="levels are 1, 5; name some of 1, 2, 3, 4"):
        parse_levels("1,5")
