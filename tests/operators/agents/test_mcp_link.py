"""The connection to an MCP server, when whoever waits for it is cancelled."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from rejuice.operators.agents.tools.mcp import McpLink, McpLostError

pytest.importorskip("mcp")


async def cancelled(waiting):
    """Whether work that waits for something ends by its cancellation."""
    task = asyncio.ensure_future(waiting)
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    return task.cancelled()


def test_a_server_that_nobody_waits_for_any_more_is_ended():
    events = []

    @asynccontextmanager
    async def hangs():
        try:
            await asyncio.Event().wait()
            yield None
        finally:
            events.append("ended")

    async def main():
        assert await cancelled(McpLink(hangs, 60).ask(None, again=True))
        await asyncio.sleep(0)
        assert events == ["ended"]

    asyncio.run(main())


def test_waiting_for_the_end_of_a_server_can_be_cancelled():
    async def main():
        release = asyncio.Event()

        @asynccontextmanager
        async def ends_late():
            try:
                yield None
            finally:
                await release.wait()

        async def lost(_):
            raise McpLostError

        link = McpLink(ends_late, 60)
        assert await cancelled(link.ask(lost, again=False))
        release.set()

    asyncio.run(main())
