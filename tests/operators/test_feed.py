"""Items are taken from an iterator only as they are wanted."""

import pytest

from rejuice.operators.feed import Feed


def test_none_stands_for_no_item_at_present():
    feed = Feed(["a", None, "b"])
    assert feed.take() == (0, "a")
    assert feed.take() is None
    assert feed.take() is None, "it is asked again once another one is finished"
    feed.finish()
    assert feed.take_up_to(5) == [(1, "b")]
    assert feed.exhausted


def test_none_without_an_item_under_way_is_an_error():
    with pytest.raises(ValueError, match=r"^items gave None while none was under way"):
        Feed([None]).take()
