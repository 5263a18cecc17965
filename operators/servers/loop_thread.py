"""An event loop in its own thread, so that synchronous code can iterate over async work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
_TOO_LATE = "can't create new thread at interpreter shutdown"


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
        """The result of `work`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def put(self, queue: asyncio.Queue[T], items: Iterable[T]) -> None:
        """Put items into a queue without bounds that only coroutines of this loop read.

        Once the loop is closed nobody reads it, and nothing happens.
        """
        try:
            self._loop.call_soon_threadsafe(_put_all, queue, list(items))
        except RuntimeError:
            if not self._loop.is_closed():  # Not looked up before: another thread may close it.
                raise

    def stream(
        self,
        work: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]],
        before_wait: Callable[[], None] = lambda: None,
        longest_wait_s: float | None = None,
    ) -> Iterator[T]:
        """Yield what `work` passes to `put`, as it comes; then raise what `work` raises.

        Leaving the iteration early cancels the work and waits until it has ended.

        Args:
            work: runs in the loop.
            before_wait: called in the thread that iterates, each time before it waits for
                something to yield.
            longest_wait_s: how long it waits before `before_wait` is called again; None: for ever.

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
                try:
                    result = results.get(timeout=longest_wait_s)
                except Empty:
                    continue
                if isinstance(result, asyncio.Task):
                    break
                yield result
            result.result()
        finally:
            if not task.done():
                self._loop.call_soon_threadsafe(task.cancel)
                while not isinstance(results.get(), asyncio.Task):
                    pass

    def close(self) -> None:
        """Cancel running work and end the thread. Closing twice is no error."""
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
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._loop.shutdown_default_executor()  # Its threads looked up host names.
        except RuntimeError as error:
            # An engine that was left open is closed by atexit. There Python 3.12 can start no
            # thread, not even the one that waits for these; but it has waited for them itself
            # before atexit (concurrent.futures.thread._python_exit).
            if str(error) != _TOO_LATE:
                raise


def _put_all(queue: asyncio.Queue[T], items: Sequence[T]) -> None:
    for item in items:
        queue.put_nowait(item)
