"""Items are worked on as they come."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from rejuice.operators.servers.concurrency import LoopThread, RefillRequest, work_on_demand


@pytest.fixture
def thread():
    thread = LoopThread("work of a test")
    yield thread
    thread.close()


def test_a_refill_is_answered_once_results_are_consumed_and_items_taken(thread):
    taken, consumed, answered = [], [], []

    def items():
        for number in range(6):
            taken.append(number)
            yield number

    @asynccontextmanager
    async def open_work(put):
        async def work(number):
            put(number)
            await asyncio.sleep(0)
            refill = RefillRequest()
            put(refill)
            await refill.wait()
            answered.append((number, number in consumed, len(taken)))

        yield work

    for result in work_on_demand(thread, items(), open_work, 1, 2):
        assert isinstance(result, int)
        consumed.append(result)
    # One is worked on, and another one waits.
    assert answered == [(k, True, min(k + 2, 6)) for k in range(6)]
