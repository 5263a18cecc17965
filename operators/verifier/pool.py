"""The pool of processes that grade, and what they give.

A pair has a deadline in processor time, with a longer one by the wall: a worker that exceeds either
is replaced.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ..process_pool import ForkingProcess, ProcessPool, WorkerProcess, python_path, receive
from .worker import Rule

# --- The verdict of a verifier on one response ----------------------------------------

Slug = Literal["correct", "wrong_answer", "no_answer", "timeout", "verifier_error"]

# These two say nothing about the response: a reward based on them is missing, not 0.
FAILURES: frozenset[Slug] = frozenset({"timeout", "verifier_error"})


class Verdict(NamedTuple):
    """A verdict and the graded answer.

    `answer` is the span that was extracted from the response, None if there is none. A verdict is
    true only if it is `correct`, for filters of correct answers; a wrong answer and a failure are
    both false, and `verdict` distinguishes them.
    """

    verdict: Slug
    answer: str | None

    def __bool__(self) -> bool:
        return self.verdict == "correct"


# --- Pool -----------------------------------------------------------------------------

WALL_FACTOR = 10.0
"""Wall time that a pair may take, as a multiple of its processor time."""
_ENDS_S = 30.0  # that a process which was killed may take to end
_SPARE_WORKERS = 32  # of the shared pool, for callers that would otherwise wait for one another


class GradingOutcome(NamedTuple):
    """The verdict on one pair, and the reason if it is a failure."""

    slug: Slug
    reason: str = ""


class WorkerPoolError(RuntimeError):
    """The pool cannot start its processes."""


class VerifierProcess(WorkerProcess):
    """A fork of a process that has imported what grading needs."""

    is_ready = False
    attempts = 3
    exit_code: int | None = None  # minus the signal that has ended it

    def __init__(self, server: ForkingProcess) -> None:
        self.link, self._end = server.fork()

    def prepare(self) -> None:
        try:
            receive(self.link)
        except (EOFError, OSError) as error:
            raise WorkerPoolError(f"cannot start a verifier process: {error}") from error
        self.is_ready = True

    def close(self) -> None:
        if self.link.fileno() < 0:
            return
        self.link.close()
        with contextlib.suppress(EOFError, OSError), self._end() as link:  # All have ended.
            if self.is_ready:  # Else the server may still import.
                link.settimeout(_ENDS_S)
                self.exit_code = int(receive(link))


class Pool(ProcessPool[VerifierProcess, GradingOutcome]):
    """Workers that are forks of one process. Thread-safe."""

    def __init__(self, size: int, *, spare: int = 0) -> None:
        super().__init__("verifications", size, spare=spare)
        self._server: ForkingProcess | None = None

    def run(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        timeout: float,
        workers: int,
        rule: Rule = "equivalent",
    ) -> list[GradingOutcome]:
        """Outcomes of (answer, reference) pairs, in order.

        `timeout` is the number of seconds of processor time that a worker has for each pair, and
        a tenth of what it has by the wall; the start of processes is not in it. `workers` is how
        many this call may use at a time; `rule` is how to compare a pair. With `math_verify`, the
        first element of a pair is a whole response.
        """
        requests = [(*pair, rule, timeout) for pair in pairs]
        return self.ask(requests, seconds=WALL_FACTOR * timeout, workers=workers)

    def start(self) -> VerifierProcess:
        try:
            if self._server is not None:
                with contextlib.suppress(ConnectionError):  # One that was killed is replaced.
                    return VerifierProcess(self._server)
                self._server.close()
            self._server = ForkingProcess("verifier.worker", json.dumps(python_path()).encode())
            return VerifierProcess(self._server)
        except OSError as error:
            raise WorkerPoolError(f"cannot start a verifier process: {error}") from error

    def answer(self, process: VerifierProcess, *fields: Any) -> GradingOutcome:
        outcome = GradingOutcome(*fields)
        # The failure may have exhausted memory or stack, and a new worker is cheap.
        process.is_spent = outcome.slug == "verifier_error"
        return outcome

    def lost(self, process: VerifierProcess, *, late: bool) -> GradingOutcome:
        if late or process.exit_code == -signal.SIGPROF:  # At the end of its processor time.
            return GradingOutcome("timeout", "over the deadline")
        return GradingOutcome("verifier_error", "the worker died")

    def close(self) -> None:
        super().close()
        with self._free:
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def forget(self) -> None:
        super().forget()
        if self._server is not None:
            self._server.forget()
        self._server = None


_shared = Pool(1, spare=_SPARE_WORKERS)


def shared_pool(size: int) -> Pool:
    """The pool of this process, with at least `size` workers allowed."""
    _shared.grow(size)
    return _shared
