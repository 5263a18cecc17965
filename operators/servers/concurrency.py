"""Concurrent work in an event loop of its own thread, for code that iterates over the results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeAlias, TypeVar

from ..errors import EngineError
from ..workers import interrupts_deferred

T = TypeVar("T")
_CANCEL_SECONDS = 5.0


class LoopThread:
    """Runs coroutines for other threads until it is closed.

    >>> async def count(put):
    ...     for number in range(3):
    ...         put(number)
    >>> loop = LoopThread("counting")
    >>> list(loop.stream(count))
    [0, 1, 2]
    >>> loop.close()
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # Another thread may close it meanwhile.
            self._loop.call_soon_threadsafe(function)

    def stream(
        self,
        work: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]],
        before_wait: Callable[[], None] = lambda: None,
    ) -> Iterator[T]:
        """Yield what `work` passes to `put`, as it comes; then raise what `work` raises.

        Leaving the iteration early cancels the work and waits until it has ended. `before_wait` is
        called in the thread that iterates, each time before it waits.

        Raises:
            asyncio.CancelledError: the loop was closed meanwhile.
        """
        results: SimpleQueue[T | asyncio.Task[None]] = SimpleQueue()

        async def begin() -> asyncio.Task[None]:
            task = asyncio.ensure_future(work(results.put))
            task.add_done_callback(results.put)  # Always the last item of the queue.
            return task

        task = self.run(begin())
        try:
            while True:
                before_wait()
                result = results.get()
                if isinstance(result, asyncio.Task):
                    break
                with interrupts_deferred(lambda: not self._loop.is_closed()):
                    yield result
            result.result()
        except KeyboardInterrupt:  # What has come by now may be paid for: it is still yielded.
            self._loop.call_soon_threadsafe(task.cancel)
            while not (task.done() and results.empty()):
                if not isinstance(result := results.get(), asyncio.Task):
                    yield result
            raise
        finally:
            if not task.done():
                self._loop.call_soon_threadsafe(task.cancel)
                while not isinstance(results.get(), asyncio.Task):
                    pass

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:  # One that catches its cancellation does not keep the others.
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
        try:
            await self._loop.shutdown_default_executor()  # Its threads looked up host names.
        except RuntimeError as error:
            # An engine that was left open is closed by atexit. There Python 3.12 can start no
            # thread, not even the one that waits for these; but it has waited for them itself
            # before atexit (concurrent.futures.thread._python_exit).
            if "at interpreter shutdown" not in str(error):
                raise


# --- Work on many items at a time, in one event loop ----------------------------------

R = TypeVar("R")


class RefillRequest(asyncio.Event):
    """What work puts among its results, and waits for, to have all the items that it can have.

    By then every result that was put before has been yielded and consumed, and all items that are
    taken in place of those that were finished before wait for a free worker.
    """


OpenWork: TypeAlias = Callable[
    [Callable[[R | RefillRequest], None]],
    AbstractAsyncContextManager[Callable[[T], Awaitable[None]]],
]
"""Opens what the work needs: from where results are put, to the work on an item."""


def capacity_for(size: int) -> int:
    """Items to take for so many at a time: those beyond them wait, so that a free slot is taken at
    once, even while the thread that iterates is busy with results."""
    return size + -(-size // 4)


def work_on_demand(
    thread: LoopThread, items: Iterable[T], open_work: OpenWork[R, T], size: int, capacity: int
) -> Iterator[R]:
    """Yield the results of work in the loop of `thread`, on `size` items at a time, as they come.

    Raises:
        asyncio.CancelledError: the loop was closed meanwhile.
    """
    left, todo = iter(items), asyncio.Queue[T | None]()
    under_way, exhausted = 0, False
    unanswered = list[RefillRequest]()

    def refill() -> None:
        nonlocal under_way, exhausted
        free = 0 if exhausted else capacity - under_way
        if free:
            taken = list(islice(left, free))
            under_way, exhausted = under_way + len(taken), len(taken) < free
            ends = [None] * size if exhausted else []  # One for each worker.

            def give() -> None:
                for each in (*taken, *ends):
                    todo.put_nowait(each)

            thread.call(give)
        while unanswered:
            thread.call(unanswered.pop().set)

    async def work_on_all(put: Callable[[R | RefillRequest | None], None]) -> None:
        async with open_work(put) as work:

            async def worker(_: int) -> None:
                while (following := await todo.get()) is not None:
                    await work(following)
                    put(None)  # The item is finished.

            await run_concurrently(worker, range(size), size)

    for result in thread.stream(work_on_all, refill):
        if result is None:
            under_way -= 1
        elif isinstance(result, RefillRequest):
            unanswered.append(result)
        else:
            yield result


def results_of(
    thread: LoopThread,
    items: Iterable[T],
    opened: AbstractAsyncContextManager[Callable[[T], Awaitable[R]]],
    size: int,
    name: str,
) -> Iterator[tuple[int, R]]:
    """The result of each item with its index, as they come; `opened` gives the work on one.

    Raises:
        EngineError: the loop was closed meanwhile.
    """

    @asynccontextmanager
    async def open_work(
        put: Callable[[tuple[int, R] | RefillRequest], None],
    ) -> AsyncIterator[Callable[[tuple[int, T]], Awaitable[None]]]:
        async with opened as work:

            async def do(numbered: tuple[int, T]) -> None:
                index, item = numbered
                put((index, await work(item)))

            yield do

    try:
        yield from work_on_demand(thread, enumerate(items), open_work, size, capacity_for(size))
    except asyncio.CancelledError:
        raise EngineError(f"{name} was closed while it worked") from None


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


# --- Work that several callers wait for, done once ------------------------------------


class InFlight(Generic[T]):
    """Work by key, for one event loop. It is cancelled once no caller waits for it any more."""

    def __init__(self) -> None:
        self._tasks: dict[bytes, asyncio.Task[T]] = {}
        self._waiting = Counter[asyncio.Task[T]]()

    async def result(
        self, key: bytes, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[T, bool]:
        """The result of the work with that key, which begins unless it is in flight; and whether
        this call began it."""
        first = key not in self._tasks
        if first:
            self._tasks[key] = asyncio.ensure_future(work())
        task = self._tasks[key]
        self._waiting[task] += 1
        try:
            return await asyncio.shield(task), first
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                task.cancel()  # No effect if it is done.
                del self._waiting[task]
                if self._tasks.get(key) is task:
                    del self._tasks[key]

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
