import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError, Scope
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.registry import build


def table(*groups):
    rows = [(f"p{i}", reward) for i, group in enumerate(groups) for reward in group]
    return pa.table(
        {
            "prompt_id": pa.array([prompt for prompt, _ in rows], pa.string()),
            "reward": pa.array([reward for _, reward in rows], pa.float64()),
        }
    )


def advantages(*groups, **fields):
    change = check_operator(GrpoAdvantageMapper(**fields), table(*groups))
    return change.columns["advantage"].to_pylist()


def test_verls_numbers():
    # mean 0.5, unbiased std sqrt(1/3) = 0.5773503: 0.5 / 0.5773513 = 0.8660239.
    got = advantages([1, 0, 0, 1], [1, 1])
    assert got == pytest.approx([0.866024, -0.866024, -0.866024, 0.866024, 0, 0], abs=1e-6)
    assert got[4:] == [0.0, 0.0]


def test_one_right_of_eight():
    # mean 0.125, unbiased variance (0.875**2 + 7 * 0.125**2) / 7 = 0.125.
    std = math.sqrt(0.125)
    expected = [0.875 / (std + 1e-6)] + [-0.125 / (std + 1e-6)] * 7
    assert advantages([1, 0, 0, 0, 0, 0, 0, 0]) == pytest.approx(expected, abs=1e-12)
    assert expected[0] == pytest.approx(2.474867, abs=1e-6)


def test_without_the_deviation():
    assert advantages([1, 0, 0, 1], normalise="none") == [0.5, -0.5, -0.5, 0.5]


def test_leave_one_out_is_the_distance_from_the_mean_of_the_others():
    # Of [3, 0, 0] the others' means are 0, 1.5, 1.5.
    assert advantages([3, 0, 0], [1, 0], normalise="leave_one_out") == [3, -1.5, -1.5, 1, -1]


def test_maxrl_divides_by_the_mean():
    # One right of four: m = 1/4, so (1 - 1/4) / (1/4) = 3 and -1. Three right of four: 1/3 and -1.
    # Algorithm 1 of arXiv 2602.02710; without a right response it has no gradient.
    got = advantages([1, 0, 0, 0], [1, 1, 1, 0], [0, 0], [1, 1], normalise="mean")
    assert got[:8] == pytest.approx([3, -1, -1, -1, 1 / 3, 1 / 3, 1 / 3, -1], abs=2e-5)
    assert got[8:] == [0.0] * 4


def test_maxrl_averages_the_gradient_over_the_right_responses():
    # Theorem 2 there: the mean of A grad log p over the group is that over its right responses,
    # minus the mean over all, which is a control variate.
    scores_N = np.array([0.3, -1.2, 0.7, 2.0, -0.4])
    reward_N = np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    found_N = np.array(advantages(reward_N.tolist(), [1, 0], normalise="mean")[:5])
    expected = scores_N[reward_N == 1].mean() - scores_N.mean()
    assert (found_N * scores_N).mean() == pytest.approx(expected, abs=1e-5)


def test_maxrl_of_rewards_below_zero_is_an_error():
    message = r"^the reward of response 1 of prompt 'p1' is -0.5, below 0, and normalise mean "
    with pytest.raises(DataError, match=message):
        GrpoAdvantageMapper(normalise="mean").apply(table([1, 0], [1, -0.5]))


def test_the_deviation_of_the_batch():
    # Distances 0.5, -0.5 and 1.5, -1.5: their squares sum to 5, and 5 / 3 is their variance.
    std = math.sqrt(5 / 3) + 1e-6
    expected = [0.5 / std, -0.5 / std, 1.5 / std, -1.5 / std]
    got = advantages([1, 0], [3, 0], [None, 2], [7, 7], normalise="batch_std")
    # The two of the last group count as well, the single one does not.
    std = math.sqrt(5 / 5) + 1e-6
    assert got == pytest.approx([0.5 / std, -0.5 / std, 1.5 / std, -1.5 / std, None, None, 0, 0])
    assert advantages([1, 0], [3, 0], normalise="batch_std") == pytest.approx(expected)
    assert advantages([1, 0], [3, 0], normalise="batch_std", std_floor=2)[2] == (
        pytest.approx(1.5 / (2 + 1e-6))
    )


def test_the_deviation_of_the_batch_needs_all_rows():
    assert GrpoAdvantageMapper(normalise="batch_std").scope is Scope.DATASET
    assert GrpoAdvantageMapper().scope is GrpoAdvantageMapper.scope is Scope.GROUP


def test_a_clip_bounds_advantages_on_both_sides():
    std = math.sqrt(0.125)
    got = advantages([1, 0, 0, 0, 0, 0, 0, 0], clip=2)
    assert got[0] == 2.0
    assert got[1] == pytest.approx(-0.125 / std, abs=1e-5)
    assert advantages([0, 1, 1, 1, 1, 1, 1, 1], clip=2)[0] == -2.0
    assert advantages([1, None, 0], clip=0.5) == [0.5, None, -0.5]


ALL = ["std", "none", "leave_one_out", "mean", "batch_std"]


@pytest.mark.parametrize("normalise", ALL)
@pytest.mark.parametrize("reward", [0.1, 0.3, 0.7, 1e9 / 3])
def test_equal_rewards_have_no_advantage_at_all(normalise, reward):
    for n in (2, 3, 6, 7, 16):
        assert advantages([reward] * n, [0, 1], normalise=normalise)[:n] == [0.0] * n


def test_a_floor_keeps_a_bonus_small():
    # All right, and a bonus of 0.01 for one: without a floor its advantage is 1.5.
    group = [1.01, 1.0, 1.0, 1.0]
    assert advantages(group)[0] == pytest.approx(1.499700, abs=1e-6)
    assert advantages(group, std_floor=0.5)[0] == pytest.approx(0.0075 / 0.500001, abs=1e-9)
    # A deviation above the floor is used as it is.
    assert advantages([1, 0, 0, 1], std_floor=0.5) == advantages([1, 0, 0, 1])


def test_epsilon():
    assert advantages([1, -1], epsilon=1.0)[0] == pytest.approx(1 / (math.sqrt(2) + 1))


def test_a_group_of_one_is_dropped():
    change = check_operator(GrpoAdvantageMapper(), table([1], [0, 1], [None, 1], [None, None]))
    assert change.reasons.to_pylist() == (
        ["group_of_one"] + [None] * 2 + ["group_of_one"] * 2 + ["no_reward"] * 2
    )
    assert change.columns["advantage"].is_null().to_pylist() == (
        [True, False, False, True, True, True, True]
    )


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("normalise", ALL)
def test_a_missing_reward_is_not_in_the_statistics(missing, normalise):
    full = advantages([1, 0, 0, 1], normalise=normalise)
    holed = advantages([1, 0, missing, 0, 1], normalise=normalise)
    assert holed == [*full[:2], None, *full[2:]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"std_floor": 0.1, "normalise": "none"},
            r"^std_floor has no effect with normalise none$",
        ),
        (
            {"std_floor": 0.1, "normalise": "mean"},
            r"^std_floor has no effect with normalise mean$",
        ),
        ({"clip": 0}, r"^field 'clip' is 0; input should be greater than 0$"),
        ({"epsilon": 0}, r"^field 'epsilon' is 0; input should be greater than 0$"),
        (
            {"normalise": "max"},
            r"^field 'normalise' is 'max'; input should be 'std', 'none', 'leave_one_out', 'mean' "
            r"or 'batch_std'$",
        ),
    ],
)
def test_wrong_fields_are_errors(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(GrpoAdvantageMapper, fields)


def test_rewards_that_are_no_numbers_are_an_error():
    words = pa.table({"prompt_id": ["a"], "reward": ["good"]})
    with pytest.raises(DataError, match=r"^column 'reward' is string, not numeric"):
        GrpoAdvantageMapper().apply(words)


# Rewards in steps of 1/64, so that shifts and powers of two are exact.
rewards = st.integers(-640, 640).map(lambda i: i / 64)
groups_of_rewards = st.lists(st.lists(rewards, min_size=2, max_size=8), min_size=1, max_size=5)
kinds = st.sampled_from(["std", "none", "leave_one_out", "batch_std"])


def of(groups, **fields):
    change = GrpoAdvantageMapper(**fields).apply(table(*groups))
    return np.asarray(change.columns["advantage"])


@pytest.mark.slow
@given(groups_of_rewards, kinds)
def test_advantages_of_a_group_sum_to_zero(groups, normalise):
    advantage, at = of(groups, normalise=normalise), 0
    for group in groups:
        assert abs(advantage[at : at + len(group)].sum()) < 1e-9
        at += len(group)


@pytest.mark.slow
@given(groups_of_rewards, kinds, st.integers(-1000, 1000))
def test_a_shift_of_the_rewards_changes_nothing(groups, normalise, shift):
    shifted = [[reward + shift for reward in group] for group in groups]
    np.testing.assert_allclose(
        of(shifted, normalise=normalise), of(groups, normalise=normalise), atol=1e-6
    )


@pytest.mark.slow
@given(groups_of_rewards, st.sampled_from([0.25, 2.0, 1024.0]))
def test_scale_changes_nothing_with_std_and_scales_without(groups, scale):
    scaled = [[reward * scale for reward in group] for group in groups]
    tiny = 1e-12
    np.testing.assert_allclose(of(scaled, epsilon=tiny), of(groups, epsilon=tiny), atol=1e-6)
    np.testing.assert_array_equal(
        of(scaled, normalise="none"), np.multiply(of(groups, normalise="none"), scale)
    )


@given(st.lists(rewards, min_size=2, max_size=8), kinds, st.randoms())
@settings(max_examples=50)
def test_a_permutation_of_a_group_permutes_its_advantages(group, normalise, random):
    order = list(range(len(group)))
    random.shuffle(order)
    np.testing.assert_allclose(
        of([[group[i] for i in order]], normalise=normalise),
        of([group], normalise=normalise)[order],
        atol=1e-9,
    )


@pytest.mark.slow
@given(groups_of_rewards)
def test_it_agrees_with_a_loop_over_groups(groups):
    plain = [
        (reward - np.mean(group)) / (np.std(group, ddof=1) + 1e-6)
        for group in groups
        for reward in group
    ]
    np.testing.assert_allclose(of(groups), plain, atol=1e-9)
