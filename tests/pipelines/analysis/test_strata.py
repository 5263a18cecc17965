"""How a sample is drawn, and that its intervals cover the true rate."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.operators.confidence import wilson_interval
from rejuice.pipelines.analysis.audit import (
    DISAGREE,
    LEAST,
    RIGHT_STRATA,
    STRATA,
    WRONG_STRATA,
    Counted,
    allocate,
    draw,
    error_rate,
)
from rejuice.pipelines.analysis.verdicts import GradedRows

AUDITS = 500
POPULATIONS = {
    "GSM8K, few errors": ([200, 3, 2, 1370, 9, 8, 8], [0.01, 0.5, 0.2, 0.01, 0.5, 0.2, 0.1]),
    "hardly an error": ([200, 0, 0, 1400, 0, 0, 0], [0.005, 0, 0, 0.002, 0, 0, 0]),
    "none at all": ([800, 12, 5, 1180, 8, 20, 40], [0.0] * 7),
    "many errors": ([800, 12, 5, 1180, 8, 20, 40], [0.05, 0.8, 0.2, 0.1, 0.2, 0.3, 0.0]),
    "a large run": ([4000, 100, 50, 20000, 300, 200, 500], [0.02, 0.9, 0.1, 0.003, 0.1, 0.1, 0.05]),
}  # fmt: skip


def test_all_disagreements_and_ten_of_each_stratum():
    assert allocate([800, 10, 0, 1180, 0, 0, 10], 200) == [73, 10, 0, 107, 0, 0, 10]
    assert allocate([800, 400, 4, 1180, 200, 0, 0], 200) == [39, 67, 4, 57, 33, 0, 0]
    assert allocate([3, 0, 0, 4, 1, 0, 0], 200) == [3, 0, 0, 4, 1, 0, 0]
    with pytest.raises(DataError, match="--sample 5 is too few for 3 strata; give 24 or more"):
        allocate([800, 4, 0, 1180, 0, 0, 0], 5)


@given(st.lists(st.integers(0, 3000), min_size=7, max_size=7), st.integers(70, 600))
def test_a_sample_has_its_size_and_no_stratum_is_left_out(sizes, sample):
    drawn = allocate(sizes, sample)
    assert sum(drawn) == min(sample, sum(sizes))
    for size, n in zip(sizes, drawn, strict=True):
        assert min(size, LEAST) <= n <= size
    of = dict(zip(STRATA, zip(sizes, drawn, strict=True), strict=True))
    disagree, agree = (
        [sum(column) for column in zip(*(of[name] for name in names), strict=True)]
        for names in (DISAGREE, [name for name in STRATA if name not in DISAGREE])
    )
    if disagree[0] > disagree[1] and agree[0] > agree[1]:  # Neither is drawn whole.
        most = max(sample // 2, sum(min(of[name][0], LEAST) for name in DISAGREE))
        least = sum(min(of[name][0], LEAST) for name in STRATA if name not in DISAGREE)
        assert disagree[1] == min(most, sample - least)


def test_draws_are_seeded():
    n = 2_000
    table = pa.table({"set": ["a"] * n, "prompt_id": [str(at // 8) for at in range(n)]})
    graded = GradedRows(table, "", (), 0)
    strata_N = np.array([0] * 1_000 + [3] * 1_000)
    rows = draw(graded, strata_N, 100, 0)
    assert rows == draw(graded, strata_N, 100, 0) == sorted(set(rows))
    assert rows != draw(graded, strata_N, 100, 1)
    assert len(rows) == 100
    drawn = np.concatenate([draw(graded, strata_N, 100, seed) for seed in range(200)])
    often = np.bincount(drawn, minlength=n)  # Each row 10 times, in the mean.
    assert 8 < often.std() ** 2 < 11
    assert not draw(GradedRows(table.slice(0, 0), "", (), 0), strata_N[:0], 100, 0)


def test_one_stratum_is_wilson():
    found = error_rate({"no answer": Counted(1_000_000, 100, 20)})
    assert found.rate == 0.2
    assert found.interval == pytest.approx(wilson_interval(0.2, 100))


def test_by_hand():
    """Weights 0.9 and 0.1; q 2/52 and 9/12; variance 0.81 q(1-q)/50 + 0.01 q(1-q)/10."""
    found = error_rate({"a": Counted(900, 50, 1), "b": Counted(100, 10, 8)})
    assert found.rate == pytest.approx(0.9 * 0.02 + 0.1 * 0.8)
    q = 0.9 * 2 / 52 + 0.1 * 9 / 12
    variance = 0.81 * (2 / 52) * (50 / 52) / 50 + 0.01 * 0.75 * 0.25 / 10
    assert found.interval == pytest.approx(wilson_interval(0.098, q * (1 - q) / variance))


def test_a_stratum_without_a_label_may_have_any_rate():
    found = error_rate({"a": Counted(900, 50, 0), "b": Counted(100, 0, 0)})
    assert (found.rate, found.unlabelled) == (0, 100)
    assert found.interval.low == 0
    assert found.interval.high > 0.1
    nothing = error_rate({"a": Counted(900, 0, 0)})
    assert np.isnan(nothing.rate)
    assert nothing.interval == (0, 1)


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("strata", [STRATA, RIGHT_STRATA, WRONG_STRATA], ids=["all", "right", "wrong"])  # fmt: skip
def test_the_interval_covers_the_true_rate(name, strata):
    """In 93% of 500 audits or more, each of a run with errors of its own."""
    draws = np.random.default_rng(17)
    sizes, rates = POPULATIONS[name]
    n_h = allocate(sizes, 200)
    at = [STRATA.index(each) for each in strata]
    covered = 0
    for _ in range(AUDITS):
        errors = [int(draws.binomial(sizes[h], rates[h])) for h in at]
        truth = sum(errors) / sum(sizes[h] for h in at)
        found = {
            STRATA[h]: Counted(sizes[h], n_h[h], int(draws.hypergeometric(k, sizes[h] - k, n_h[h])))
            for h, k in zip(at, errors, strict=True)
            if sizes[h]
        }
        low, high = error_rate(found).interval
        covered += low <= truth + 1e-12 and truth <= high + 1e-12
    assert covered / AUDITS >= 0.93
