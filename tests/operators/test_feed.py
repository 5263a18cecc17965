"""Items are taken from an iterator only as they are wanted."""

import pytest

from rejuice.operators import chunk_results as module
from rejuice.operators.chunk_results import ASK_AGAIN_S, Feed


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time in seconds, which a test may set."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_none_stands_for_no_item_at_present():
    feed = Feed(["a", None, "b"])
    assert feed.take() == (0, "a")
    assert feed.take() is None
    assert feed.take() is None, "it is asked again once another one is finished"
    feed.finish()
    assert feed.take_up_to(5) == [(1, "b")]
    assert feed.exhausted


def test_it_is_asked_again_after_a_while(clock):
    """It may have looked for an item only for a while; the one under way may take hours."""
    feed = Feed(["a", None, "b"])
    assert feed.take_up_to(5) == [(0, "a")]
    clock[0] = 0.9 * ASK_AGAIN_S
    assert feed.take() is None
    clock[0] = ASK_AGAIN_S
    assert feed.take() == (1, "b")


def test_none_without_an_item_under_way_is_an_error():
    with pytest.raises(ValueError, match=r"^items gave None while none was under way"):
        Feed([None]).take()
