"""Two processes that average vectors: the same bits on both sides, and no end without the other."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psutil
import pytest
import torch
from torch.distributed import HashStore

from rejuice.operators import RejuiceError
from tools.embedded_policy import data_parallel
from tools.embedded_policy.data_parallel import Link, partner

pytestmark = pytest.mark.slow


def test_the_average_of_two():
    # Longer than what a socket holds: if both sent first, neither would end.
    one, other = torch.arange(1e6), torch.full((1_000_000,), 3.0)
    mean = (one + other) / 2
    with partner(Link.average, other) as link:
        link.average(one)
    assert (one == mean).all()


def test_a_partner_that_dies_is_an_error():
    message = "^the second process of the warm start died; its own message is above$"
    with partner(len) as link, pytest.raises(RejuiceError, match=message):
        link.average(torch.zeros(1_000_000))


def test_the_partner_ends_with_the_block():
    before = set(psutil.Process().children())
    with partner(Link.average, torch.zeros(3)):
        (child,) = set(psutil.Process().children()) - before
        assert child.is_running()
    assert not child.is_running()


def test_a_rank_waits_for_gradients_longer_than_for_the_other_rank(monkeypatch):
    """The other one may be suspended; but one that never comes is missed at once."""
    monkeypatch.setattr(data_parallel, "_MEET", timedelta(seconds=1))
    store = HashStore()

    def late():
        link = Link(store, 1)
        time.sleep(2.5)
        link.average(torch.ones(3))

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(late)
        vector = torch.zeros(3)
        Link(store, 0).average(vector)
        other.result()
    assert vector.tolist() == [0.5] * 3
    with pytest.raises(RejuiceError, match="the second process of the warm start died"):
        Link(HashStore(), 0)
