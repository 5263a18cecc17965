"""Items are worked on as they come, and further ones are looked for meanwhile."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from rejuice.operators import chunk_results as feed_module
from rejuice.operators.servers import concurrency
from rejuice.operators.servers.concurrency import LoopThread, RefillRequest, work_on_demand


@pytest.fixture
def thread():
    thread = LoopThread("work of a test")
    yield thread
    thread.close()


def test_an_item_that_is_found_later_does_not_wait_for_the_one_under_way(thread, monkeypatch):
    """The first one ends once the second one has begun."""
    for module in (feed_module, concurrency):
        monkeypatch.setattr(module, "ASK_AGAIN_S", 0.01)

    @asynccontextmanager
    async def open_work(put):
        second = asyncio.Event()

        async def work(number, item):
            if item == "second":
                second.set()
            await asyncio.wait_for(second.wait(), 10)
            put((number, item))

        yield work

    found = list(work_on_demand(thread, ["first", None, None, "second"], open_work, 2, 2))
    assert sorted(found) == [(0, "first"), (1, "second")]


def test_a_refill_is_answered_once_results_are_consumed_and_items_taken(thread):
    taken, consumed, answered = [], [], []

    def items():
        for number in range(6):
            taken.append(number)
            yield number

    @asynccontextmanager
    async def open_work(put):
        async def work(number, _):
            put(number)
            await asyncio.sleep(0)
            refill = RefillRequest(put)
            await refill.wait()
            answered.append((number, number in consumed, len(taken)))

        yield work

    for result in work_on_demand(thread, items(), open_work, 1, 2):
        assert isinstance(result, int)
        consumed.append(result)
    # One is worked on, and another one waits.
    assert answered == [(k, True, min(k + 2, 6)) for k in range(6)]
