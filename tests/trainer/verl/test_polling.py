import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.trainer.verl.curation import poll_interval


def listings(wait_s, listing_s=0.001):
    """When keys are listed until a group that ends after `wait_s` is seen."""
    times = [0.0]
    while times[-1] < wait_s:
        times.append(times[-1] + listing_s + poll_interval(times[-1], listing_s))
    return times


def test_a_step_of_ten_minutes_lists_a_thousand_times_not_thirty_thousand():
    assert len(listings(600)) <= 1000
    assert len(listings(2)) <= 101


@given(st.floats(0, 3600))
def test_the_last_group_is_seen_soon_after_it_ended(wait_s):
    delay = listings(wait_s)[-1] - wait_s
    assert delay <= max(0.022, min(1.002, 0.0102 * wait_s + 0.001))


@pytest.mark.parametrize(("waited_s", "listing_s", "interval"), [
    (0, 0, 0.02), (2, 0, 0.02), (30, 0, 0.3), (100, 0, 1), (9999, 0, 1), (0, 0.5, 5), (60, 0.05, 0.6),
])  # fmt: skip
def test_intervals(waited_s, listing_s, interval):
    assert poll_interval(waited_s, listing_s) == pytest.approx(interval)
