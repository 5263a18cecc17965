"""p-values of permutations within strata, and Holm's correction of many of them."""

from itertools import permutations, product

import numpy as np
import pytest

from rejuice.pipelines.analysis.reward_hacking import StratifiedPairs, holm, ranks_within


def p_value(codes, fixed, moved):
    return StratifiedPairs.of(codes, fixed, moved).p_value()


def test_mean_and_variance_are_those_of_all_permutations_within_strata():
    rng = np.random.default_rng(1)
    codes = np.array([7, 7, 7, 2, 2, 2, 2])
    fixed, moved = rng.normal(size=7), rng.normal(size=7)
    pairs = StratifiedPairs.of(codes, fixed, moved)
    one, two = np.flatnonzero(pairs.codes_N == 1), np.flatnonzero(pairs.codes_N == 0)
    sums = np.array([
        pairs.fixed_N[one] @ pairs.moved_N[list(a)] + pairs.fixed_N[two] @ pairs.moved_N[list(b)]
        for a, b in product(permutations(one), permutations(two))
    ])  # fmt: skip
    assert sums.mean() == pytest.approx(0.0, abs=1e-12)
    z = pairs.fixed_N @ pairs.moved_N / sums.std()
    draws = np.random.default_rng(0).normal(size=200_000)
    assert pairs.p_value() == pytest.approx(np.mean(draws >= z), abs=0.005)


def test_rows_stay_in_their_stratum_and_equal_strata_are_left_out():
    codes = np.array([0, 1, 0, 1, 2, 2, 3, 3, 4])
    fixed = np.array([0.0, 1, 1, 0, 5, 5, 1, 2, 9])
    moved = np.array([1.0, 2, 3, 4, 1, 2, 7, 7, 9])
    pairs = StratifiedPairs.of(codes, fixed, moved)
    assert set(pairs.codes_N.tolist()) == {0, 1}
    assert pairs.rows_N.tolist() == [0, 2, 1, 3]
    assert pairs.fixed_N.tolist() == [-0.5, 0.5, 0.5, -0.5]
    assert pairs.moved_N.tolist() == [-1, 1, -1, 1]
    assert pairs.p_value() == 0.5  # They cancel.


def test_a_number_that_is_not_known_leaves_its_row_out():
    nan = np.nan
    pairs = StratifiedPairs.of(
        np.zeros(4, int), np.array([1, 2, nan, 4]), np.array([nan, 2.0, 3.0, 9.0])
    )
    assert pairs.rows_N.tolist() == [1, 3]
    nothing = StratifiedPairs.of(np.zeros(0, int), np.zeros(0), np.zeros(0))
    assert (len(nothing.codes_N), nothing.p_value()) == (0, 1.0)
    assert np.isnan(nothing.correlation)


@pytest.mark.parametrize("kind", ["numbers", "ties", "nearly all equal"])
def test_p_values_are_not_too_small_without_an_effect(kind):
    runs, found = 1000, []
    for seed in range(runs):
        rng = np.random.default_rng([5, seed])
        codes = np.repeat(np.arange(25), 6)
        share = {"ties": 0.5, "nearly all equal": 0.08}.get(kind)
        fixed, moved = rng.random((2, len(codes)))
        if share:
            fixed, moved = (each < share for each in (fixed, moved))
        found.append(p_value(codes, fixed, moved))
    for rate in (0.01, 0.05, 0.2):
        if kind != "nearly all equal":  # Too few strata have any spread for a test.
            most = rate + 3.3 * np.sqrt(rate * (1 - rate) / runs)
            assert np.mean(np.array(found) <= rate) <= most, rate


def test_holm_rejects_from_the_least_until_one_stands():
    # Holm 1979: 0.01 <= 0.05/4, 0.015 <= 0.05/3, 0.03 > 0.05/2; what comes after stands, too.
    assert holm([0.03, 0.01, 0.04, 0.015], 0.05) == [False, True, False, True]
    assert holm([], 0.05) == []
    assert holm([0.0001] * 100, 0.01) == [True] * 100


def test_holm_has_the_stated_family_wise_rate():
    rng = np.random.default_rng(7)
    runs = 4000
    false = sum(any(holm(rng.random(10).tolist(), 0.05)) for _ in range(runs))
    assert false / runs == pytest.approx(0.05, abs=3.3 * np.sqrt(0.05 * 0.95 / runs))


def test_ranks_are_average_ranks_within_strata():
    codes = np.array([1, 0, 1, 0, 1])
    values = np.array([5.0, 2.0, 5.0, 1.0, 3.0])
    assert ranks_within(codes, values) == pytest.approx([2.5 / 4, 2 / 3, 2.5 / 4, 1 / 3, 1 / 4])
