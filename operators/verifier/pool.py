"""The pool of processes that grade, and what they give.

A pair has a deadline in processor time, with a longer one by the wall: a worker that exceeds either
is replaced.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ..process_pool import SIZE, ForkingProcess, ProcessPool, WorkerProcess, python_path, receive
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
_NEARLY = 0.9  # The system counts processor time in ticks.
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

    def __init__(self, server: ForkingProcess) -> None:
        self._server, self._number, self.link = server, 0, server.fork()

    def prepare(self) -> None:
        try:
            (self._number,) = SIZE.unpack(receive(self.link))
        except (EOFError, OSError) as error:
            raise WorkerPoolError(f"cannot start a verifier process: {error}") from error
        self.is_ready = True

    def close(self) -> None:
        self.link.close()
        if self._number:
            self._server.end(self._number)
        self._number = 0


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
                with contextlib.suppress(OSError):  # One that was killed is replaced.
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
        *_, seconds = next(iter(process.left.values()))
        # The system ends it at the end of its processor time, which is that long by the wall, too.
        began = process.deadline - WALL_FACTOR * seconds
        if late or time.monotonic() - began > _NEARLY * seconds:
            return GradingOutcome("timeout", "over the deadline")
        return GradingOutcome("verifier_error", "the worker died")

    def close(self) -> None:
        super().close()
        if self._server is not None:
            self._server.close()

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
