"""Work on many items at a time, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, TypeVar

from ..feed import ASK_AGAIN_S, Feed, Numbered
from .loop_thread import LoopThread

T = TypeVar("T")
R = TypeVar("R")


class RefillRequest:
    """What work puts among its results, and awaits, to have all the items that it can have.

    By then every result that was put before has been yielded and consumed, and all items that are
    taken in place of those that were finished before wait for a free worker.

    Args:
        put: where results are put.
    """

    def __init__(self, put: Callable[[RefillRequest], None]) -> None:
        self._put, self._answers = put, asyncio.Queue[None]()

    async def wait(self) -> None:
        """Ask for it, and wait until it is answered."""
        self._put(self)
        await self._answers.get()

    def answer(self, thread: LoopThread) -> None:
        """Answer it, from the thread that iterates."""
        thread.put(self._answers, [None])


OpenWork: TypeAlias = Callable[
    [Callable[[R | RefillRequest], None]],
    AbstractAsyncContextManager[Callable[[int, T], Awaitable[None]]],
]
"""Opens what the work needs: from where results are put, to the work on an item with its number."""


def capacity_for(size: int) -> int:
    """Items to take for so many at a time: those beyond them wait, so that a free slot is taken at
    once, even while the thread that iterates is busy with results."""
    return size + -(-size // 4)


def work_on_demand(
    thread: LoopThread,
    items: Iterable[T | None],
    open_work: OpenWork[R, T],
    size: int,
    capacity: int,
) -> Iterator[R]:
    """Yield the results of work in the loop of `thread`, on `size` items at a time, as they come.

    Args:
        thread: where the work is opened and done.
        items: taken in the thread that iterates, as `Feed` takes them.
        open_work: entered before the first item, and left at the end.
        size: most items that are worked on.
        capacity: most items that are taken and not finished, see `capacity_for`.

    Raises:
        asyncio.CancelledError: the loop was closed meanwhile.
    """
    feed, todo = Feed(items), asyncio.Queue[Numbered[T] | None]()
    unanswered = list[RefillRequest]()

    def refill() -> None:
        begins = not feed.exhausted
        taken = feed.take_up_to(capacity - feed.under_way)
        ends = [None] * size if begins and feed.exhausted else []  # One for each worker.
        if taken or ends:
            thread.put(todo, [*taken, *ends])
        while unanswered:
            unanswered.pop().answer(thread)

    async def work_on_all(put: Callable[[R | RefillRequest | None], None]) -> None:
        async with open_work(put) as work:

            async def worker(_: int) -> None:
                while (following := await todo.get()) is not None:
                    await work(*following)
                    put(None)  # The item is finished.

            await run_concurrently(worker, range(size), size)

    for result in thread.stream(work_on_all, refill, ASK_AGAIN_S):
        if result is None:
            feed.finish()
        elif isinstance(result, RefillRequest):
            unanswered.append(result)
        else:
            yield result


async def run_concurrently(
    work: Callable[[T], Awaitable[None]], items: Iterable[T], size: int
) -> None:
    """Do `work` on each of `items`, `size` at a time; the first error cancels the rest."""
    todo = iter(items)  # Shared: each worker takes the next item when it is free.

    async def worker() -> None:
        for item in todo:
            await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(size)]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
