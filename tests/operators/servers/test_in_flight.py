"""Work that several callers wait for, in virtual time."""

import asyncio

from virtual_time import run_in_virtual_time

from rejuice.operators.servers.concurrency import InFlight


def test_a_caller_that_leaves_does_not_end_the_work_that_another_one_waits_for():
    async def main():
        in_flight, begun = InFlight(), []

        async def work():
            begun.append("work")
            await asyncio.sleep(10)
            return "result"

        leaving, staying = (asyncio.ensure_future(in_flight.result(b"key", work)) for _ in range(2))
        await asyncio.sleep(5)
        leaving.cancel()
        assert await staying == ("result", False)
        assert leaving.cancelled()
        assert begun == ["work"]

    run_in_virtual_time(main())


def test_work_that_nobody_waits_for_any_more_is_cancelled():
    async def main():
        in_flight, ended = InFlight(), []

        async def work():
            try:
                await asyncio.sleep(10)
            finally:
                ended.append(asyncio.get_running_loop().time() - begin)

        begin = asyncio.get_running_loop().time()
        callers = [asyncio.ensure_future(in_flight.result(b"key", work)) for _ in range(2)]
        for caller in callers:
            await asyncio.sleep(2)
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        await asyncio.sleep(1)
        assert [round(each) for each in ended] == [4]

    run_in_virtual_time(main())
