"""The advantage of pass@k: by hand, and as the mean over all draws of k responses."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import RecipeError, build
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.pass_at_k_advantage_mapper import PassAtKAdvantageMapper

RIGHT, WRONG = "correct", "wrong_answer"


def change(*groups, **fields):
    rows = [(f"p{g}", verdict) for g, group in enumerate(groups) for verdict in group]
    table = pa.table(
        {
            "prompt_id": pa.array([row[0] for row in rows], pa.string()),
            "verdict": pa.array([row[1] for row in rows], pa.string()),
        }
    )
    return check_operator(PassAtKAdvantageMapper(**fields), table)


def test_by_hand():
    # One of 4 is right, k = 2: rho = 1 - 3/6 = 1/2, s = 1/2. Right: 1. Wrong: (1/2 - 2/3) / (1/2).
    found = change([RIGHT, WRONG, WRONG, WRONG], k=2).columns["advantage"].to_pylist()
    assert found == pytest.approx([1, *[-1 / 3] * 3], abs=1e-5)
    # Three of 4: any two have a right one. rho = 1 and s = 0, so nothing is left to learn.
    found = change([RIGHT, RIGHT, RIGHT, WRONG], k=2).columns["advantage"].to_pylist()
    assert found == pytest.approx([0] * 4, abs=1e-9)


@given(st.lists(st.booleans(), min_size=2, max_size=7), st.data())
def test_it_is_the_mean_over_all_draws_that_have_the_response(rights, data):
    k = data.draw(st.integers(1, len(rights)))
    verdicts = [RIGHT if right else WRONG for right in rights]
    found = change(verdicts, k=k).columns["advantage"].to_numpy()
    draws = list(combinations(range(len(rights)), k))
    rewards = {draw: float(any(rights[row] for row in draw)) for draw in draws}
    mean, deviation = np.mean(list(rewards.values())), np.std(list(rewards.values()))
    for row in range(len(rights)):
        own = [(rewards[draw] - mean) / (deviation + 1e-6) for draw in draws if row in draw]
        assert found[row] == pytest.approx(np.mean(own), abs=1e-9)


@pytest.mark.parametrize("verdict", [RIGHT, WRONG, "no_answer"])
def test_where_all_verdicts_are_one_the_advantage_is_0(verdict):
    assert change([verdict] * 5).columns["advantage"].to_pylist() == [0.0] * 5


def test_what_was_not_graded_is_not_counted():
    found = change([RIGHT, "timeout", WRONG, None, WRONG], [WRONG, RIGHT, WRONG], k=2)
    advantage = found.columns["advantage"].to_pylist()
    assert advantage[1] is advantage[3] is None
    assert sorted(advantage[:1] + advantage[2:3] + advantage[4:5]) == sorted(advantage[5:])
    assert found.reasons is None or found.reasons.null_count == 8


def test_groups_with_fewer_than_k_graded_responses_are_dropped():
    found = change([RIGHT, WRONG], [RIGHT], [RIGHT, WRONG, WRONG], k=3)
    reasons = ["too_few_graded"] * 2 + ["group_of_one"] + [None] * 3
    assert found.reasons.to_pylist() == reasons


def test_k_is_at_least_1():
    with pytest.raises(RecipeError, match="k"):
        build(PassAtKAdvantageMapper, {"k": 0})
