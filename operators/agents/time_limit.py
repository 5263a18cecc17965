"""The time that a trajectory may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TimeLimit:
    """Counts the seconds that tools, frozen models and the flow take.

    It stands still while the policy is sampled. How long that takes depends on the engine and on
    what else it samples, and the engine has limits of its own: a trajectory whose turns wait behind
    those of many others must not fail.

    Args:
        seconds: the whole time.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._over: Callable[[], None] | None = None
        self._stops = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, over: Callable[[], None]) -> None:
        """Let the time run.

        Args:
            over: called once, when it has run out.
        """
        self._over = over
        self._run()

    def stop(self) -> None:
        """Let nothing happen any more."""
        self._over = None
        self._halt()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While the context lasts, no time runs; a flow may sample several turns at once."""
        self._halt()
        self._stops += 1
        try:
            yield
        finally:
            self._stops -= 1
            self._run()

    def _run(self) -> None:
        if self._over is not None and not self._stops:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(self._left, 0.0), self._over)

    def _halt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._left = self._timer.when() - asyncio.get_running_loop().time()
            self._timer = None
