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
        give_up_s: after it was created.
        clock: in seconds.
    """

    def __init__(self, give_up_s: float, clock: Callable[[], float]) -> None:
        self._give_up_s, self._clock = give_up_s, clock
        self._began = clock()

    def left_s(self) -> float:
        """Seconds until no attempt may begin any more."""
        return self._began + self._give_up_s - self._clock()

    def excuse(self, waited_s: float) -> None:
        """Leave seconds of waiting out of account."""
        self._began += waited_s

    def __call__(self, retry_state: RetryCallState) -> bool:
        return retry_state.upcoming_sleep >= self.left_s()
