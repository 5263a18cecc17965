"""Work in flight that several callers wait for: what is the same is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class InFlight(Generic[T]):
    """Work by key, for one event loop. It is cancelled once no caller waits for it any more."""

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[T]] = {}

    async def result(
        self, key: bytes, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[T, bool]:
        """The result of the work with that key, which begins unless it is in flight.

        Returns:
            The result, and whether this call began the work.
        """
        flight = self._flights.get(key)
        first = flight is None
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(work()))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task), first
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                flight.task.cancel()  # No effect if it is done.
                if self._flights.get(key) is flight:
                    del self._flights[key]

    async def close(self) -> None:
        """Cancel all work, and wait until it has ended."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Flight(Generic[T]):
    """A task, and how many callers wait for it."""

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task, self.waiting = task, 0
