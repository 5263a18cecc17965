"""Log the first failure of each kind in full; the audit log keeps only the reasons."""

from __future__ import annotations

from collections.abc import Callable


class FirstFailures:
    """Passes on the first message about each reason and ignores later ones.

    Args:
        log: called with the message.

    Example:
        >>> failures = FirstFailures(print)
        >>> for detail in ("no answer in 5 s", "no answer in 6 s"):
        ...     failures.report("timeout", f"a prompt failed with timeout: {detail}")
        a prompt failed with timeout: no answer in 5 s
    """

    def __init__(self, log: Callable[[str], object]) -> None:
        self._log = log
        self._reported = set[str]()

    def report(self, reason: str, message: str) -> None:
        """Log `message`, unless a failure for the same reason was reported before."""
        if reason not in self._reported:
            self._reported.add(reason)
            self._log(message)

    def clear(self) -> None:
        """Report every reason again from now on."""
        self._reported.clear()
