"""The demonstrator: right where it takes care, and otherwise wrong as often as it should be."""

import random
import re
from pathlib import Path
from statistics import mean

import pytest

from rejuice.operators.mapper.format_reward_mapper import is_tagged
from rejuice.pipelines.demo.problems import problem, seeded
from tools.embedded_policy.problems import (
    JUDGE_TEMPLATE,
    LEVELS,
    STYLES,
    UNTIDY,
    demonstrate,
    drill,
    judge,
    wrong_answer,
)

MARKS = [("<think>", "</think>"), ("<answer>", "</answer>")]


def test_with_care_everything_is_right_and_in_form():
    rng = seeded("care")
    for i in range(200):
        posed = problem(1, "train", i, LEVELS)
        for text in demonstrate(posed, rng, 2, care=True).responses:
            assert is_tagged(text, MARKS)
            assert text.endswith(f"<answer>{posed.reference}</answer>")
        judged = judge(posed, rng, 2, care=True)
        right = judged.prompt.endswith(f"answers {posed.reference}. Is that right?")
        assert all(t.endswith(f"\\boxed{{{'Yes' if right else 'No'}}}") for t in judged.responses)


def test_without_care_form_and_answers_are_as_reliable_as_declared():
    rng = seeded("shares")
    tidy, right = [], []
    for i in range(400):
        posed = problem(2, "train", i, LEVELS)
        for text in demonstrate(posed, rng, 4, care=False).responses:
            tidy.append(is_tagged(text, MARKS))
            right.append(re.findall(r"\d+", text)[-1] == str(posed.reference))
    assert mean(tidy) == pytest.approx(1 - UNTIDY, abs=0.02)
    assert mean(right) == pytest.approx(0.64, abs=0.04)


def test_it_is_asked_about_right_answers_half_of_the_time():
    rng = seeded("halves")
    requested = [(posed := problem(3, "train", i, LEVELS), judge(posed, rng, 1, care=False).prompt) for i in range(400)]  # fmt: skip
    right = [f"answers {posed.reference}. Is" in prompt for posed, prompt in requested]
    assert mean(right) == pytest.approx(0.5, abs=0.08)


def test_the_quickstart_asks_for_judgements_as_the_policy_knows_them():
    recipe = Path(__file__).parents[2] / "recipes" / "quickstart.yaml"
    assert f'template: "{JUDGE_TEMPLATE}"' in recipe.read_text("utf-8")


def test_a_wrong_answer_is_wrong():
    rng = seeded("wrong")
    for i in range(200):
        posed = problem(4, "train", i, LEVELS)
        assert wrong_answer(posed, rng) != posed.reference


def test_a_drill_is_the_steps_of_its_problems():
    posed = [problem(5, "train", i, LEVELS) for i in range(3)]
    (text,) = drill(posed).responses
    assert text == ", ".join(step.equation for each in posed for step in each.steps) + "."


def test_shares_add_up():
    assert sum(style.share for style in STYLES.values()) == pytest.approx(1)
    assert sum(style.careful for style in STYLES.values()) == pytest.approx(1)


def test_the_same_generator_gives_the_same_demonstrations():
    posed = problem(0, "train", 0, LEVELS)
    first, again, other = (demonstrate(posed, random.Random(s), 8, care=False) for s in (0, 0, 1))
    assert first == again != other
