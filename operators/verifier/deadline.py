"""Deadlines of work in another process: by its processor time, with a longer one by the wall.

On a busy machine a worker may wait for a processor for longer than its work takes. A deadline by
the wall alone would then call an ordinary pair a timeout, and whether a response earns a reward
would depend on the load.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

WALL_FACTOR = 10.0
"""Wall time that a pair may take, as a multiple of its processor time."""


def processor_seconds(pid: int) -> float:
    """Processor time of a process so far, in seconds.

    The number of the clock is what clock_getcpuclockid(3) returns on Linux; Python has that
    function for threads only.

    Raises:
        OSError: there is no such process, or the system has no such clocks.
    """
    return time.clock_gettime(~pid << 3 | 2)


class Clocks(NamedTuple):
    """The clocks that deadlines read, in seconds. Tests pass others."""

    wall: Callable[[], float] = time.monotonic
    processor: Callable[[int], float] = processor_seconds


CLOCKS = Clocks()


class Deadline:
    """The end of the time that a process has for one piece of work, beginning now.

    It ends when the process has used `seconds` of processor time, or after `WALL_FACTOR` times as
    many by the wall, for a process that does not compute. Without a clock of the process, `seconds`
    are by the wall.
    """

    def __init__(self, pid: int, seconds: float, clocks: Clocks) -> None:
        self._pid, self._seconds, self._clocks = pid, seconds, clocks
        self._wall, self._processor = clocks.wall(), self._used()

    def _used(self) -> float | None:
        try:
            return self._clocks.processor(self._pid)
        except OSError:
            return None

    def remaining(self) -> float:
        """Seconds of the wall before which the time cannot be over; 0 or less once it is over.

        A process of one thread computes no faster than the wall clock runs.
        """
        elapsed = self._clocks.wall() - self._wall
        used = self._used() if self._processor is not None else None
        if used is None or self._processor is None:
            return self._seconds - elapsed
        by_wall = WALL_FACTOR * self._seconds - elapsed
        return min(self._seconds - (used - self._processor), by_wall)
