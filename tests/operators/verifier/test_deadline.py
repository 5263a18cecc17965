"""Deadlines by clocks that the tests advance; none of these waits for a real one."""

from __future__ import annotations

import os

import pytest

from rejuice.operators.verifier.pool import WALL_FACTOR, Clocks, Deadline, Pool, processor_seconds

ENDLESS = r"\int_0^{\infty} e^{-x^x}\sin(x^3)dx"
EASY = (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}")


class Clock:
    """Seconds that grow by `step` whenever they are read, up to `most`."""

    def __init__(self, step: float = 0.0, most: float = float("inf")) -> None:
        self.step, self.most, self.now = step, most, 0.0

    def __call__(self, pid: int = 0) -> float:
        self.now = min(self.now + self.step, self.most) if self.step else self.now
        return self.now


def test_a_process_that_waits_for_a_processor_keeps_its_time() -> None:
    wall, used = Clock(), Clock()
    deadline = Deadline(1, 5.0, Clocks(wall, used))
    wall.now, used.now = 30.0, 1.0
    assert deadline.remaining() == 4.0


def test_processor_time_ends_the_deadline() -> None:
    wall, used = Clock(), Clock()
    used.now = 100.0  # of earlier pairs
    deadline = Deadline(1, 5.0, Clocks(wall, used))
    assert deadline.remaining() == 5.0
    wall.now, used.now = 5.5, 105.0
    assert deadline.remaining() == 0.0


def test_a_process_that_does_not_compute_is_ended_by_the_wall() -> None:
    wall = Clock()
    deadline = Deadline(1, 5.0, Clocks(wall, Clock()))
    wall.now = 5.0 * WALL_FACTOR - 1
    assert deadline.remaining() == 1.0
    wall.now = 5.0 * WALL_FACTOR
    assert deadline.remaining() == 0.0


def test_without_a_clock_of_the_process_the_wall_decides() -> None:
    def missing(pid: int) -> float:
        raise OSError(22, "Invalid argument")

    wall = Clock()
    deadline = Deadline(1, 5.0, Clocks(wall, missing))
    wall.now = 2.0
    assert deadline.remaining() == 3.0


def test_the_clock_of_a_process_that_is_not_there() -> None:
    assert processor_seconds(os.getpid()) > 0
    with pytest.raises(OSError, match="Invalid argument"):
        processor_seconds(2**22 + 1)


@pytest.mark.alone
def test_under_load_an_ordinary_pair_is_no_timeout() -> None:
    # Five times its seconds by the wall, and no processor time.
    pool = Pool(1, clocks=Clocks(Clock(5.0, most=5.0), Clock()))
    try:
        assert pool.run([EASY], timeout=1, workers=1)[0].slug == "correct"
    finally:
        pool.close()


@pytest.mark.alone
@pytest.mark.parametrize("clocks", [(0.0, 2.0), (20.0, 0.0)], ids=["processor", "wall"])
def test_an_endless_pair_ends_by_either_clock(clocks: tuple[float, float]) -> None:
    wall, used = clocks
    pool = Pool(1, clocks=Clocks(Clock(wall), Clock(used)))
    try:
        outcomes = pool.run([(ENDLESS, "42")] * 2, timeout=1, workers=1)
        assert [outcome.slug for outcome in outcomes] == ["timeout"] * 2
    finally:
        pool.close()
