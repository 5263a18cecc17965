"""Demonstrations depend on the seed alone; packing changes no loss."""

import random
from itertools import islice

import pytest

from rejuice.pipelines.demo.problems import NAMES, problem, seeded
from tools.embedded_policy import batches as module
from tools.embedded_policy.batches import Demonstration, batches, encode, pack
from tools.embedded_policy.model import build_model
from tools.embedded_policy.problems import (
    LEVELS,
    Curriculum,
    build_tokenizer,
    demonstrate,
    demonstrations,
    rename,
)
from tools.embedded_policy.sft import _loss

SMALL = Curriculum(steps=6, batch=4, window=3)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    return build_model(tokenizer, 0)


def some(seed, **change):
    return list(islice(demonstrations(seed, Curriculum(**change)), 40))


def test_demonstrations_depend_on_the_seed_alone():
    assert some(0) == some(0) != some(1)


def test_drills_end_with_the_first_phase():
    def drills(**change):
        return sum(shown.prompt == "Calculate." for shown in some(0, steps=4, batch=10, **change))

    assert drills(first_phase=1.0, drilled=1.0) == 40
    assert drills(first_phase=0.5, drilled=1.0) == 20
    assert drills(first_phase=0.0, drilled=1.0) == 0


@pytest.mark.slow
def test_two_ranks_share_all_demonstrations(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "pack", lambda rows: rows)
    shares = [list(batches(tokenizer, 0, SMALL, rank)) for rank in (0, 1)]
    assert [len(share) for share in shares] == [6, 6]
    assert all(len(rows) == 2 for share in shares for rows in share)
    shown = encode(tokenizer, list(islice(demonstrations(0, SMALL), 24)))
    assert sorted(row for share in shares for rows in share for row in rows) == sorted(shown)


def test_everybody_appears_and_no_problem_changes():
    seen = set()
    for i in range(500):
        posed = problem(0, "train", i, LEVELS)
        new = rename(posed, seeded("rename", i))
        assert (new.numbers, new.template, new.answer) == (
            posed.numbers,
            posed.template,
            posed.answer,
        )
        assert len(new.question.split()) == len(posed.question.split())
        seen |= {name for names in NAMES.values() for name in names if name in new.question}
    assert seen == {name for names in NAMES.values() for name in names}


@pytest.mark.slow
def test_responses_that_share_a_prompt_do_not_see_each_other(tokenizer, model):
    posed = problem(0, "train", 5, LEVELS)
    rows = encode(tokenizer, [demonstrate(posed, random.Random(0), 3, care=False)])
    prompt, *responses = rows[0]
    together = _loss(model, pack(rows)).item() * sum(map(len, responses))
    alone = sum(_loss(model, pack([[prompt, r]])).item() * len(r) for r in responses)
    assert together == pytest.approx(alone, rel=1e-5)


@pytest.mark.slow
def test_rows_of_different_length_do_not_change_each_other(tokenizer, model):
    shown = [Demonstration("Calculate.", ["1."]), some(0)[0]]
    rows = encode(tokenizer, shown)
    sizes = [sum(map(len, row[1:])) for row in rows]
    alone = sum(_loss(model, pack([row])).item() * n for row, n in zip(rows, sizes, strict=True))
    assert _loss(model, pack(rows)).item() * sum(sizes) == pytest.approx(alone, rel=1e-5)
