"""Work on many items at a time, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


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
