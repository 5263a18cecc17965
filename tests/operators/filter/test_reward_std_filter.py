import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.filter.reward_std_filter import RewardStdFilter
from rejuice.operators.registry import build


def table(*groups, column="reward"):
    rows = [(f"p{i}", reward) for i, group in enumerate(groups) for reward in group]
    return pa.table(
        {
            "prompt_id": pa.array([prompt for prompt, _ in rows], pa.string()),
            column: pa.array([reward for _, reward in rows], pa.float64()),
        }
    )


def test_drops_groups_whose_rewards_are_equal():
    change = check_operator(RewardStdFilter(), table([1, 1, 1], [0, 1], [0, 0], [0.5]))
    assert change.reasons.to_pylist() == (
        ["no_reward_spread"] * 3 + [None] * 2 + ["no_reward_spread"] * 3
    )


@pytest.mark.parametrize("n", [3, 6, 7, 8, 16])
def test_equal_rewards_have_no_spread_whatever_their_rounding(n):
    # The plain mean of these is off by a rounding error, and so numpy.std is 1.4e-17 for n = 3.
    change = check_operator(RewardStdFilter(), table([0.1] * n, [0.1] * (n - 1) + [0.2]))
    assert change.reasons.to_pylist() == ["no_reward_spread"] * n + [None] * n


def test_min_is_a_population_deviation_and_exclusive():
    # Population: 0.5. Unbiased it would be 0.7071.
    assert RewardStdFilter(min=0.5).apply(table([0, 1])).reasons.null_count == 0
    assert RewardStdFilter(min=0.49).apply(table([0, 1])).reasons.null_count == 2


def test_missing_rewards_share_the_fate_of_their_group():
    nan, inf = float("nan"), float("inf")
    groups = table([None, 1, 1], [None, 0, 1], [None, nan], [inf, 1], [None, inf])
    change = check_operator(RewardStdFilter(), groups)
    assert change.reasons.to_pylist() == (
        ["no_reward_spread"] * 3
        + [None] * 3
        + ["no_reward"] * 2
        + ["no_reward_spread"] * 2
        + ["no_reward"] * 2
    )


def test_any_component_will_do():
    operator = RewardStdFilter(column="reward_accuracy")
    change = check_operator(operator, table([0, 1], [1, 1], column="reward_accuracy"))
    assert change.reasons.to_pylist() == [None] * 2 + ["no_reward_spread"] * 2


def test_wrong_fields_and_columns_are_errors():
    with pytest.raises(RecipeError, match=r"^field 'min' is -1; input should be greater"):
        build(RewardStdFilter, {"min": -1})
    words = pa.table({"prompt_id": ["a"], "reward": ["good"]})
    with pytest.raises(DataError, match=r"^column 'reward' is string, not numeric"):
        RewardStdFilter().apply(words)


@given(st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=6), max_size=6))
def test_it_drops_what_verl_drops(groups):
    # On small integers numpy.std is exactly 0 where the rewards are equal.
    reasons = RewardStdFilter().apply(table(*groups)).reasons.to_pylist()
    expected = [
        "no_reward_spread" if np.std(group) == 0 else None for group in groups for _ in group
    ]
    assert reasons == expected
