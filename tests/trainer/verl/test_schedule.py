"""Which step trains on answers, and which on judgements."""

import pytest

from rejuice.pipelines.recipe.train import Train, Verification
from rejuice.trainer.run import plan_step


def train(schedule, steps=10, **verification):
    return Train(schedule=schedule, steps=steps, verification=Verification(**verification))


def trained(config):
    """Per step, A for answers and J for judgements."""
    found = []
    for step in range(1, config.steps + 1):
        now = plan_step(config, step)
        found.append("A" * now.answers + "J" * now.judgements)
    return " ".join(found)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("generate", "A A A A A A A A A A"),
        ("self_verify", "J J J J J J J J J J"),
        ("mixed", "AJ AJ AJ AJ AJ AJ AJ AJ AJ AJ"),
        ("verify_init", "J J J J A A A A A A"),
        ("verify_alter", "A A A A AJ A A A A AJ"),
    ],
)
def test_the_published_schedules(schedule, expected):
    assert trained(train(schedule)) == expected


def test_judgements_take_part_in_a_thousand_steps_as_often_as_published():
    first = [plan_step(train("verify_init", 1000), step).judgements for step in range(1, 1001)]
    assert first == [True] * 400 + [False] * 600
    assert (
        sum(plan_step(train("verify_alter", 1000), step).judgements for step in range(1, 1001))
        == 200
    )


@pytest.mark.parametrize(("steps", "share", "judged"), [(2, 0.01, 1), (2, 0.99, 1), (1, 0.5, 1)])
def test_verify_init_has_both_where_there_are_two_steps(steps, share, judged):
    config = train("verify_init", steps, init_share=share)
    assert sum(plan_step(config, step).judgements for step in range(1, steps + 1)) == judged


def test_answers_are_queued_for_the_next_judgements():
    """Also after the last: the run may be resumed with more steps."""
    config = train("verify_alter", 8, every=3)
    windows = [
        (plan_step(config, step).since, plan_step(config, step).queues) for step in range(1, 9)
    ]
    assert windows == [
        (1, True), (1, True), (1, True), (4, True), (4, True), (4, True), (7, True), (7, True)
    ]  # fmt: skip


@pytest.mark.parametrize("schedule", ["self_verify", "mixed"])
def test_the_others_judge_the_answers_of_the_step_itself(schedule):
    assert {plan_step(train(schedule), step).since - step for step in range(1, 11)} == {0}


def test_answers_that_are_never_judged_are_not_queued():
    assert not any(plan_step(train("generate"), step).queues for step in range(1, 11))
    assert [plan_step(train("verify_init"), step).queues for step in (4, 5)] == [True, False]
