"""The deadlines of a pair: of the processor, and by the wall."""

from __future__ import annotations

import signal
import threading
import time

import psutil
import pytest

from rejuice.operators.verifier.pool import WALL_FACTOR, GradingOutcome, Pool

pytestmark = pytest.mark.alone
ENDLESS = r"\int_0^{\infty} e^{-x^x}\sin(x^3)dx"
EASY = (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}")


@pytest.fixture
def pool():
    pool = Pool(1)
    assert pool.run([EASY], timeout=30, workers=1)[0].slug == "correct"
    yield pool
    pool.close()


def worker_of(pool: Pool) -> psutil.Process:
    assert pool._server is not None
    (worker,) = psutil.Process(pool._server.process.pid).children()
    return worker


def test_a_worker_that_waits_for_a_processor_keeps_its_time(pool: Pool) -> None:
    timeout = 0.2
    worker = worker_of(pool)
    worker.suspend()
    threading.Timer(2 * timeout, worker.resume).start()
    begun = time.monotonic()
    assert pool.run([EASY], timeout=timeout, workers=1)[0].slug == "correct"
    assert time.monotonic() - begun > timeout


def test_a_worker_that_does_not_compute_is_ended_by_the_wall(pool: Pool) -> None:
    worker_of(pool).suspend()
    outcomes = pool.run([EASY, EASY], timeout=1 / WALL_FACTOR, workers=1)
    assert [outcome.slug for outcome in outcomes] == ["timeout", "correct"]


def test_the_processor_time_of_earlier_pairs_does_not_count(pool: Pool) -> None:
    worker = worker_of(pool)
    used = sum(worker.cpu_times()[:2])
    while sum(worker.cpu_times()[:2]) - used < 0.3:
        assert {each.slug for each in pool.run([EASY] * 99, timeout=0.25, workers=1)} == {"correct"}
    assert worker_of(pool) == worker


def test_an_endless_pair_is_ended_by_the_system(pool: Pool) -> None:
    # It needs nobody who looks at a clock: no wall time is up by then.
    worker = worker_of(pool)
    outcomes = pool.run([(ENDLESS, "42"), EASY], timeout=0.5, workers=1)
    assert outcomes == [GradingOutcome("timeout", "over the deadline"), GradingOutcome("correct")]
    assert worker_of(pool) != worker


@pytest.mark.parametrize("timeout", [0.1, 30])
def test_a_worker_that_crashes_is_an_error_however_long_it_took(pool: Pool, timeout) -> None:
    worker = worker_of(pool)
    worker.suspend()
    threading.Timer(0.3, worker.send_signal, (signal.SIGKILL,)).start()
    assert pool.run([EASY], timeout=timeout, workers=1)[0].slug == "verifier_error"
