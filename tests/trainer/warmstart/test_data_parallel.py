"""Two processes that average vectors: the same bits on both sides, and no end without the other."""

import numpy as np
import psutil
import pytest

from rejuice.operators import RejuiceError
from rejuice.trainer.warmstart.data_parallel import Link, partner


def test_the_average_of_two():
    # Longer than what a socket holds: if both spoke first, neither would end.
    one, other = np.arange(1e6, dtype="f4"), np.full(1_000_000, 3, "f4")
    mean = (one + other) / 2
    with partner(Link.average, other) as link:
        link.average(one)
    assert (one == mean).all()


def test_a_partner_that_dies_is_an_error():
    said = "^the second process of the warm start died; what it said is above$"
    with partner(len) as link, pytest.raises(RejuiceError, match=said):
        link.average(np.zeros(1_000_000))


def test_the_partner_ends_with_the_block():
    before = set(psutil.Process().children())
    with partner(Link.average, np.zeros(3)):
        (child,) = set(psutil.Process().children()) - before
        assert child.is_running()
    assert not child.is_running()
