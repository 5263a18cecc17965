import pytest

from rejuice.operators.confidence import wilson_interval


@pytest.mark.parametrize(
    ("right", "n", "interval"),
    [
        (8, 10, (0.490, 0.943)),  # as in Wilson (1927)
        (0, 20, (0.0, 0.161)),  # 1.96^2 / (20 + 1.96^2)
        (20, 20, (0.839, 1.0)),
    ],
)
def test_wilson_intervals(right, n, interval):
    assert wilson_interval(right / n, n) == pytest.approx(interval, abs=5e-4)
    assert wilson_interval(1 - right / n, n) == pytest.approx((1 - interval[1], 1 - interval[0]), abs=5e-4)  # fmt: skip
