"""When a request that fails is tried no more."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import RetryCallState
from tenacity.stop import stop_base

from .wire import AttemptError


class AttemptBudget(stop_base):
    """Stops once a request has used up its attempts; `RetryClass.cost` is how many each takes."""

    def __init__(self, attempts: int) -> None:
        self._left = self._attempts = attempts

    def __call__(self, retry_state: RetryCallState) -> bool:
        error = retry_state.outcome and retry_state.outcome.exception()
        if isinstance(error, AttemptError):
            self._left -= error.retry_class.cost(self._attempts)
        return self._left <= 0


class GiveUp(stop_base):
    """Stops where the next attempt would begin too late.

    Args:
        give_up_s: after the first attempt.
        clock: in seconds.
    """

    def __init__(self, give_up_s: float, clock: Callable[[], float]) -> None:
        self._give_up_s, self._clock = give_up_s, clock
        self._created = clock()
        self._began: float | None = None

    def begin(self) -> None:
        """Note the beginning of an attempt."""
        if self._began is None:
            self._began = self._clock()

    def __call__(self, retry_state: RetryCallState) -> bool:
        began = self._created if self._began is None else self._began
        return self._clock() - began + retry_state.upcoming_sleep >= self._give_up_s
