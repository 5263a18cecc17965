"""p-values of permutations: exact where all can be listed, and never too small by chance."""

from itertools import permutations, product

import numpy as np
import pytest

from rejuice.pipelines.analysis.reward_hacking import (
    DRAWS,
    EXCEEDANCES,
    StratifiedPairs,
    holm,
    ranks_within,
    sequential_p_value,
    sign_flips,
)


def p_value(codes, fixed, moved, seed=0):
    return StratifiedPairs.of(codes, fixed, moved).p_value(np.random.default_rng(seed))


def test_the_p_value_is_the_share_of_all_permutations_within_strata():
    rng = np.random.default_rng(1)
    codes = np.array([7, 7, 7, 2, 2, 2, 2])
    fixed, moved = rng.normal(size=7), rng.normal(size=7)
    one, two = np.flatnonzero(codes == 7), np.flatnonzero(codes == 2)
    sums = [
        fixed[one] @ moved[list(a)] + fixed[two] @ moved[list(b)]
        for a, b in product(permutations(one), permutations(two))
    ]
    exact = np.mean(np.array(sums) >= fixed @ moved - 1e-12)
    found = [p_value(codes, fixed, moved, seed) for seed in range(400)]
    # Each p is 10 / b with b negative binomial; the mean of (10 - 1) / (b - 1) is the exact share.
    estimates = [9 / (10 / p - 1) for p in found]
    assert np.mean(estimates) == pytest.approx(exact, rel=0.1)


def test_flipped_signs_have_the_share_of_all_signs():
    values = np.array([1.0, 2.0, -0.5, 0.7, 1.1])
    signs = np.array(list(product([-1, 1], repeat=5)))
    exact = np.mean(signs @ values >= values.sum() - 1e-12)
    draw = sign_flips(values, np.random.default_rng(0))
    assert np.mean(draw(20_000) >= values.sum() - 1e-12) == pytest.approx(exact, abs=0.01)


def test_rows_stay_in_their_stratum_and_equal_strata_are_left_out():
    codes = np.array([0, 1, 0, 1, 2, 2, 3, 3, 4])
    fixed = np.array([0.0, 1, 1, 0, 5, 5, 1, 2, 9])
    moved = np.array([1.0, 2, 3, 4, 1, 2, 7, 7, 9])
    pairs = StratifiedPairs.of(codes, fixed, moved)
    assert pairs.strata == 2
    assert pairs.rows_N.tolist() == [0, 2, 1, 3]
    assert pairs.fixed_N.tolist() == [-0.5, 0.5, 0.5, -0.5]
    assert pairs.moved_N.tolist() == [-1, 1, -1, 1]
    # Two of four orders give the sum of 1 or more that is in the first, and less in the second.
    assert set(pairs._draws(np.random.default_rng(0))(200).tolist()) == {-2.0, 0.0, 2.0}


def test_a_number_that_is_not_known_leaves_its_row_out():
    nan = np.nan
    pairs = StratifiedPairs.of(
        np.zeros(4, int), np.array([1, 2, nan, 4]), np.array([nan, 2.0, 3.0, 9.0])
    )
    assert pairs.rows_N.tolist() == [1, 3]
    nothing = StratifiedPairs.of(np.zeros(0, int), np.zeros(0), np.zeros(0))
    assert (nothing.strata, nothing.p_value(np.random.default_rng(0))) == (0, 1.0)
    assert np.isnan(nothing.correlation)


def counted(values):
    """A null that gives these values in order, and the batches in which it was asked for them."""
    batches = []

    def draw(draws):
        start = sum(batches)
        batches.append(draws)
        return np.asarray(values[start : start + draws], float)

    return draw, batches


def test_it_stops_at_the_tenth_that_is_as_great():
    values = np.zeros(DRAWS)
    values[::5] = 1.0  # The tenth is number 46.
    draw, batches = counted(values)
    assert sequential_p_value(1.0, draw, 1, 1.0) == EXCEEDANCES / 46
    assert sum(batches) < 100


def test_without_ten_it_is_the_share_with_the_observed_one():
    values = np.zeros(DRAWS)
    draw, batches = counted(values)
    assert sequential_p_value(1.0, draw, 1, 1.0) == 1 / (DRAWS + 1)
    assert sum(batches) == DRAWS
    values[:9] = 1.0
    assert sequential_p_value(1.0, counted(values)[0], 1, 1.0) == 10 / (DRAWS + 1)


def test_equal_up_to_rounding_is_equal():
    assert sequential_p_value(0.1 + 0.2, lambda draws: np.full(draws, 0.3), 1, 1.0) == 1.0


def test_the_batch_does_not_matter():
    rng = np.random.default_rng(3)
    pairs = StratifiedPairs.of(np.repeat(np.arange(30), 4), rng.random(120), rng.random(120))
    whole = pairs._draws(np.random.default_rng(0))(64)
    draw = pairs._draws(np.random.default_rng(0))
    parts = np.concatenate([draw(1), draw(31), draw(32)])
    assert whole == pytest.approx(parts, rel=1e-9)


def test_strata_of_different_sizes_are_all_permuted():
    rng = np.random.default_rng(4)
    codes = np.repeat(np.arange(60), rng.integers(2, 9, 60))
    fixed, moved = rng.random(len(codes)), rng.random(len(codes))
    sums = StratifiedPairs.of(codes, fixed, moved)._draws(np.random.default_rng(0))(4000)
    pairs = StratifiedPairs.of(codes, fixed, moved)
    sizes = np.bincount(pairs.codes_N)
    variance = sum(  # of a sum over a random permutation: sum fixed^2 sum moved^2 / (n - 1)
        (pairs.fixed_N[pairs.codes_N == s] ** 2).sum()
        * (pairs.moved_N[pairs.codes_N == s] ** 2).sum()
        / (sizes[s] - 1)
        for s in range(len(sizes))
    )
    assert sums.mean() == pytest.approx(0.0, abs=4 * np.sqrt(variance / 4000))
    assert sums.var() == pytest.approx(variance, rel=0.1)


def exceeds(p_values):
    """How far the share of p-values up to any a exceeds a: Kolmogorov's one-sided distance."""
    p = np.sort(p_values)
    return float((np.arange(1, len(p) + 1) / len(p) - p).max())


@pytest.mark.parametrize("kind", ["numbers", "ties", "nearly all equal"])
def test_p_values_are_not_too_small_without_an_effect(kind):
    runs, found = 400, []
    for seed in range(runs):
        rng = np.random.default_rng([5, seed])
        codes = np.repeat(np.arange(25), 6)
        share = {"ties": 0.5, "nearly all equal": 0.08}.get(kind)
        fixed, moved = rng.random((2, len(codes)))
        if share:
            fixed, moved = (each < share for each in (fixed, moved))
        found.append(p_value(codes, fixed, moved, seed))
    # Smirnov: P(distance > d) <= exp(-2 n d^2), here 0.1%.
    assert exceeds(found) < np.sqrt(-np.log(0.001) / (2 * runs))


def test_the_same_seed_gives_the_same_p_value():
    rng = np.random.default_rng(6)
    data = (np.repeat(np.arange(25), 6), rng.random(150), rng.random(150))
    assert p_value(*data, seed=1) == p_value(*data, seed=1)
    assert len({p_value(*data, seed=seed) for seed in range(5)}) > 1


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
