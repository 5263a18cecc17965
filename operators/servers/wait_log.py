"""Logs that a server is waited for: one line now and then, for all requests together."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from ..logs import logger

_log = logger(__name__)
_FIRST_S = 2.0
"""A shorter wait is not worth a line."""
_INTERVAL_S = 15.0


class WaitLog:
    """Logs what is waited for, how long already, and how long at most.

    Args:
        address: of the server.
        log: called with each line.
        clock: in seconds.

    Example:
        >>> waits = WaitLog("http://localhost:8000/v1", log=print, clock=lambda: 100.0)
        >>> for waited_s in (0.5, 45.0, 45.5):
        ...     waits.report("connection refused", waited_s, 600)
        waiting for http://localhost:8000/v1 (connection refused): 45 s of 600 s
    """

    def __init__(
        self,
        address: str,
        *,
        log: Callable[[str], object] = _log.warning,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._log, self._clock = address, log, clock
        self._logged = -inf

    def report(self, reason: str, waited_s: float, longest_s: float) -> None:
        """Log that the server is waited for, unless that was logged a moment ago.

        Args:
            reason: why, as the last attempt found out.
            waited_s: since the first attempt that failed.
            longest_s: when it is given up.
        """
        now = self._clock()
        if waited_s < _FIRST_S or now - self._logged < _INTERVAL_S:
            return
        self._logged = now
        self._log(f"waiting for {self._address} ({reason}): {waited_s:.0f} s of {longest_s:g} s")
