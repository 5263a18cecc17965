"""The line that says which steps give a row its credit."""

import pytest

from rejuice.operators.registry import build, find
from rejuice.pipelines.recipe.steps import adds_credit, credit_line, number_steps
from rejuice.pipelines.recipe.train import Train

SUM = {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}
GRPO = {"grpo_advantage_mapper": {}}
TURNS = {"turn_advantage_mapper": {"style": "returns", "outcome": "reward"}}
WEIGHT = {"loss_weight_mapper": {}}
ROLLOUT = {"policy_rollout_mapper": {"engine": "transformers", "model": "embedded", "n": 2}}
JUDGE = {"policy_rollout_mapper": {**ROLLOUT["policy_rollout_mapper"], "task": "verify"}}
ADDED = "in training, grpo_advantage_mapper is added"


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        ([SUM, GRPO], "The advantage is that of step 2 grpo_advantage_mapper."),
        ([SUM], f"No step writes the advantage: {ADDED}."),
        (
            [WEIGHT, SUM, GRPO],
            "The advantage is that of step 3 grpo_advantage_mapper, loss_weight that of step 1 "
            "loss_weight_mapper.",
        ),
        ([TURNS], "The advantage is that of step 1 turn_advantage_mapper."),
        (
            [TURNS, SUM, GRPO],
            "The advantage is that of step 1 turn_advantage_mapper, and elsewhere that of step 3 "
            "grpo_advantage_mapper.",
        ),
        (
            [ROLLOUT, SUM, JUDGE, SUM, GRPO],
            f"No step writes the advantage of answers: {ADDED}. The advantage of judgements is "
            "that of step 5 grpo_advantage_mapper.",
        ),
        ([WEIGHT], ""),
    ],
)
def test_it_names_the_steps(steps, line):
    assert credit_line(_numbered(steps), Train()) == line
    assert (credit_line(_numbered(steps), None) == line) == (ADDED not in line)


def test_a_replay_takes_what_is_stored():
    line = credit_line(_numbered([SUM]), Train(replay="stored.parquet"))
    assert line == (
        "No step writes the advantage: in training, the stored one is taken, or if there is none, "
        "grpo_advantage_mapper is added."
    )


def test_answers_that_do_not_train_have_no_line():
    steps = _numbered([ROLLOUT, SUM, JUDGE, SUM, GRPO])
    train = Train(schedule="self_verify")
    assert credit_line(steps, train) == (
        "The advantage of judgements is that of step 5 grpo_advantage_mapper."
    )
    assert not adds_credit(steps, train)
    assert adds_credit(steps, Train(schedule="mixed"))


def _numbered(steps):
    return number_steps([build(find(n, {}), f) for each in steps for n, f in each.items()])
