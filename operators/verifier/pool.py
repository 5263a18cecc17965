"""The pool of processes that grade, and what they give.

A pair has a deadline in processor time, with a longer one by the wall: a worker that exceeds either
is replaced.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ..process_pool import SIZE, CommandProcess, ProcessPool, WorkerProcess, python_path, receive
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
_SPARE_WORKERS = 32  # of the shared pool, for callers that would otherwise wait for one another


class GradingOutcome(NamedTuple):
    """The verdict on one pair, and the reason if it is a failure."""

    slug: Slug
    reason: str = ""


class WorkerPoolError(RuntimeError):
    """The pool cannot start its processes."""


class _VerifierServer(CommandProcess):
    """Forks workers, and ends them. Thread-safe.

    Raises:
        EOFError, OSError: it does not start.
    """

    def __init__(self) -> None:
        super().__init__("verifier.worker", json.dumps(python_path()).encode())
        self._lock = threading.Lock()
        receive(self.link)  # It is ready.

    def order(self, worker: int = 0, descriptors: Sequence[int] = ()) -> int:
        """The number of a new worker at the socket of this descriptor, or how one has ended.

        Raises:
            EOFError, OSError: it has ended, and its workers.
        """
        with self._lock:
            try:
                if descriptors:
                    socket.send_fds(self.link, [SIZE.pack(worker)], descriptors)
                else:
                    self.link.sendall(SIZE.pack(worker))
                return int(receive(self.link))
            except BaseException:  # Its answer would be taken for the next one.
                self.close()
                raise


class VerifierProcess(WorkerProcess):
    """A worker.

    Raises:
        EOFError, OSError: the fork server has ended.
    """

    def __init__(self, server: _VerifierServer) -> None:
        self._server = server
        self.exit_code: int | None = None
        self.link, theirs = socket.socketpair()
        with theirs:
            self._number = server.order(descriptors=[theirs.fileno()])

    def close(self) -> None:
        self.link.close()
        if self.exit_code is None:
            with contextlib.suppress(EOFError, OSError):
                self.exit_code = self._server.order(self._number)


class Pool(ProcessPool[VerifierProcess, GradingOutcome]):
    """Workers that are forks of one process. Thread-safe."""

    def __init__(self, size: int, *, spare: int = 0) -> None:
        super().__init__("verifications", size, spare=spare)
        self._server: _VerifierServer | None = None

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

        Raises:
            WorkerPoolError: no process could be started.
        """
        requests = [(*pair, rule, timeout) for pair in pairs]
        return self.ask(requests, seconds=WALL_FACTOR * timeout, workers=workers)

    def start(self) -> VerifierProcess:
        if self._server is not None:
            with contextlib.suppress(EOFError, OSError):  # One that was killed is replaced.
                return VerifierProcess(self._server)
        try:
            self._server = _VerifierServer()
            return VerifierProcess(self._server)
        except (EOFError, OSError) as error:
            raise WorkerPoolError(f"cannot start a verifier process: {error}") from error

    def answer(self, process: VerifierProcess, *fields: Any) -> GradingOutcome:
        outcome = GradingOutcome(*fields)
        # The failure may have exhausted memory or stack, and a new worker is cheap.
        process.is_spent = outcome.slug == "verifier_error"
        return outcome

    def lost(self, process: VerifierProcess, *, late: bool) -> GradingOutcome:
        if late or process.exit_code == -signal.SIGPROF:
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
