"""Prompts near a pass rate come first, and some that nobody knows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.selector.difficulty_selector import DifficultySelector
from rejuice.operators.training_step import StepContext


def known(right, graded, age=None):
    age = pa.array(age or [9 if each else None for each in graded], pa.int64())
    return pa.table(
        {"history_discounted_right": right, "history_discounted_graded": graded, "history_age": age}
    )


def chosen(step, table):
    """The prompts in their order, and the change."""
    change = step.apply(table)
    return np.argsort(np.asarray(change.columns["choice_rank"])), change


def test_prompts_whose_pass_rate_is_near_the_target_come_first():
    table = known([0.0, 5000.0, 9000.0, 10000.0], [10000.0] * 4)
    order, change = chosen(DifficultySelector(target_pass_rate=0.5), table)
    assert order[0] == 1
    assert chosen(DifficultySelector(target_pass_rate=1.0), table)[0][0] == 3
    estimated = np.asarray(change.columns["estimated_pass_rate"])
    assert estimated == pytest.approx([1 / 10002, 5001 / 10002, 9001 / 10002, 10001 / 10002])
    drawn = np.asarray(change.columns["drawn_pass_rate"])
    assert np.abs(drawn - estimated).max() < 0.03


def test_draws_have_the_moments_of_the_posterior():
    table = known([3.0] * 20_000, [8.0] * 20_000)
    drawn = np.asarray(DifficultySelector().apply(table).columns["drawn_pass_rate"])
    a, b = 4, 6
    assert drawn.mean() == pytest.approx(a / (a + b), abs=0.005)
    assert drawn.var() == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), rel=0.05)


@given(
    graded=st.lists(st.sampled_from([0.0, 8.0]), min_size=1, max_size=60),
    explore=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]),
    first=st.integers(1, 60),
)
def test_of_any_number_of_prompts_the_share_to_explore_is_unknown(graded, explore, first):
    table = known([each / 2 for each in graded], graded)
    order, change = chosen(DifficultySelector(explore=explore), table)
    assert sorted(order.tolist()) == list(range(len(graded)))
    unknown = [graded[row] == 0 for row in order[:first]]
    # As long as neither kind has run out.
    if explore * first <= graded.count(0.0) and (1 - explore) * first <= graded.count(8.0):
        assert abs(sum(unknown) - explore * first) <= 1
    drawn = change.columns["drawn_pass_rate"]
    assert [each is None for each in drawn.to_pylist()] == [each == 0 for each in graded]


def test_a_choice_depends_on_the_seeds_the_step_and_the_history_alone():
    table, step = known([4.0] * 50, [8.0] * 50), DifficultySelector()
    contexts = [StepContext(n, 0.0, 8, seed, pa.table({})) for n, seed in ((1, 0), (2, 0), (1, 1))]
    orders = [tuple(chosen(step.at_step(each), table)[0]) for each in contexts]
    orders += [tuple(chosen(each, table)[0]) for each in (step, DifficultySelector(seed=1))]
    assert len(set(orders)) == 5
    assert tuple(chosen(step.at_step(contexts[0]), table)[0]) == orders[0]


def test_prompts_rest_after_a_visit():
    table = known([4.0, 4.0, 0.0, 8.0], [8.0, 8.0, 0.0, 8.0], [4, 5, None, 9])
    order, _ = chosen(DifficultySelector(explore=0.0), table)
    assert set(order[:2]) == {1, 3}
    assert order[2:].tolist() == [2, 0]
    resting = known([4.0] * 4, [8.0] * 4, [0, 2, 1, 3])
    assert chosen(DifficultySelector(), resting)[0].tolist() == [3, 1, 2, 0]
    assert set(chosen(DifficultySelector(explore=0.0, cooldown_steps=0), table)[0][:3]) == {0, 1, 3}


def test_with_keep_the_others_are_dropped_for_a_reason():
    _, change = chosen(DifficultySelector(keep=2), known([4.0] * 5, [8.0] * 5))
    assert sorted(change.reasons.to_pylist(), key=str) == [None, None, *["over_keep"] * 3]
    kept = np.asarray(change.columns["choice_rank"])[np.asarray(change.reasons.is_null())]
    assert sorted(kept) == [0, 1]


def test_a_row_is_explained():
    step = DifficultySelector()
    row = {
        "choice_rank": 3,
        "estimated_pass_rate": 0.35,
        "drawn_pass_rate": 0.4,
        "in_cooldown": False,
    }
    assert step.explain(row)["choice"] == (
        "pass rate estimated 0.350, drawn 0.400, target 0.5: rank 3"
    )
    unknown = {**row, "drawn_pass_rate": None}
    found = step.explain(unknown)["choice"]
    assert found == "never graded: among the 20% to explore, rank 3"
    assert step.explain({**row, "in_cooldown": True})["choice"] == "visited within 5 steps: rank 3"
