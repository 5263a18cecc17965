"""A process pool that enforces deadlines: a worker that is late or dies is replaced.

The parent reads the clocks of its workers and kills, without signal handler, alarm or thread. So it
works the same from any thread, from an event loop, in a daemonic process and in a Ray worker.
Workers are started by command line, not by `multiprocessing`, so `__main__` may be a notebook,
standard input or a script without a guard.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeGuard

from .worker import Rule, receive, send

# --- Deadline -------------------------------------------------------------------------
# Deadlines of work in another process: by its processor time, with a longer one by the wall.
#
# On a busy machine a worker may wait for a processor for longer than its work takes. A deadline by
# the wall alone would then call an ordinary pair a timeout, and whether a response earns a reward
# would depend on the load.

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

STARTUP_SECONDS = 120.0  # importing sympy on a busy machine takes a while
SPARE_WORKERS = 32  # of the shared pool, for callers that would otherwise wait for one another
_GRACE = 5.0  # seconds that the rest of a reply may take, which was sent in one piece
_LEAST_WAIT = 0.001  # seconds between two looks at a clock
# The fork server imports only this package, under another name: the packages above it import numpy
# and pyarrow, which would double the time to the first answer.
_FORK_SERVER = """
import sys, types
package = types.ModuleType("_verifier")
package.__path__ = [sys.argv[1]]
sys.modules["_verifier"] = package
from _verifier.worker import main
main(int(sys.argv[2]))
"""


class GradingOutcome(NamedTuple):
    """The verdict on one pair, and the reason if it is a failure."""

    slug: Slug
    reason: str = ""


class _Worker(NamedTuple):
    pid: int
    link: socket.socket


class _Job(NamedTuple):
    worker: _Worker
    row: int
    deadline: Deadline


class WorkerPoolError(RuntimeError):
    """The pool cannot start its processes."""


class Pool:
    """Up to `size` workers, started when first needed. Thread-safe.

    Up to `spare` more are started for callers that would get none; they end after one pair.
    """

    def __init__(self, size: int, *, spare: int = 0, clocks: Clocks = CLOCKS) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least one worker, got {size}")
        self._size = size
        self._spare = spare
        self._clocks = clocks
        self._idle = list[_Worker]()
        self._started = 0
        self._waiting = 0
        self._free = threading.Condition()
        self._fork_server_lock = threading.Lock()
        self._fork_server: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._closed = False

    def grow(self, size: int) -> None:
        """Allow at least `size` workers."""
        with self._free:
            self._size = max(self._size, size)
            self._free.notify_all()

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
        outcomes: list[GradingOutcome | None] = [None] * len(pairs)
        jobs = dict[socket.socket, _Job]()
        remaining = iter(range(len(pairs)))
        unsent = next(remaining, None)
        try:
            while jobs or unsent is not None:
                while unsent is not None and len(jobs) < workers:
                    worker = self._take(block=not jobs)
                    if worker is None:
                        break
                    job = _Job(worker, unsent, Deadline(worker.pid, timeout, self._clocks))
                    unsent = next(remaining, None)
                    if self._submit(job, (*pairs[job.row], rule)):
                        jobs[worker.link] = job
                    else:
                        outcomes[job.row] = GradingOutcome("verifier_error", "the worker had died")
                for job, outcome in self._collect(jobs):
                    outcomes[job.row] = outcome
        finally:
            for job in jobs.values():  # work that an exception such as Ctrl-C has interrupted
                self._discard(job.worker)
        if not _complete(outcomes):
            raise AssertionError("a pair was left without an outcome")
        return outcomes

    def close(self) -> None:
        """End all processes. Idempotent."""
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            self._free.notify_all()
        for worker in idle:
            worker.link.close()
        with self._fork_server_lock:
            self._end_fork_server()

    def forget(self) -> None:
        """Drop the inherited sockets in a forked child; the processes are the parent's."""
        for worker in self._idle:
            worker.link.close()
        if self._fork_server:
            self._fork_server[1].close()
            self._fork_server[
                0
            ].returncode = 0  # not this process's child: its destructor must not wait
        self._idle, self._fork_server, self._closed = [], None, True

    # --- one job ----------------------------------------------------------------------

    def _submit(self, job: _Job, request: tuple[str, str, Rule]) -> bool:
        try:
            send(job.worker.link, request)
        except OSError:
            self._discard(job.worker)
            return False
        return True

    def _collect(self, jobs: dict[socket.socket, _Job]) -> Iterator[tuple[_Job, GradingOutcome]]:
        """Yield finished outcomes; if there are none, wait until there may be one."""
        if not jobs:
            return
        remaining = min(job.deadline.remaining() for job in jobs.values())
        wait = max(_LEAST_WAIT, remaining) if remaining > 0 else 0.0
        with selectors.DefaultSelector() as selector:
            for link in jobs:
                selector.register(link, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(wait)]
        for link, job in list(jobs.items()):
            if link in ready:
                yield job, self._finish(jobs.pop(link))
            elif job.deadline.remaining() <= 0:
                del jobs[link]
                self._discard(job.worker)
                yield job, GradingOutcome("timeout", "over the deadline")

    def _finish(self, job: _Job) -> GradingOutcome:
        try:
            job.worker.link.settimeout(_GRACE)
            slug, reason = receive(job.worker.link)
            job.worker.link.settimeout(None)
        except TimeoutError:
            self._discard(job.worker)
            return GradingOutcome("timeout", "over the deadline")
        except (EOFError, OSError):
            self._discard(job.worker)
            return GradingOutcome("verifier_error", "the worker died")
        if slug == "verifier_error":
            # The failure may have exhausted memory or stack, and a new worker is cheap.
            self._discard(job.worker)
        else:
            self._give_back(job.worker)
        return GradingOutcome(slug, reason)

    # --- workers ----------------------------------------------------------------------

    def _take(self, *, block: bool) -> _Worker | None:
        """Return an idle or a new worker; None if all are busy and `block` is false."""
        with self._free:
            while True:
                if self._closed:
                    raise WorkerPoolError("the pool is closed")
                if self._idle:
                    return self._idle.pop()
                if self._started < self._size + (self._spare if block else 0):
                    self._started += 1
                    break
                if not block:
                    return None
                self._waiting += 1
                self._free.wait()
                self._waiting -= 1
        try:
            return self._spawn()
        except BaseException:
            self._count_ended()
            raise

    def _give_back(self, worker: _Worker) -> None:
        with self._free:
            excess = self._closed or self._started > self._size
            if not excess:
                self._idle.append(worker)
                self._free.notify()
            waiting = self._waiting
        if excess:
            self._discard(worker)
        elif waiting:
            time.sleep(0)  # let a waiting thread take it before this one requests another

    def _discard(self, worker: _Worker) -> None:
        worker.link.close()
        try:
            with self._fork_server_lock:
                if self._fork_server:
                    self._fork_server[1].sendall(worker.pid.to_bytes(8, "big"))
        except OSError:
            # The fork server and its workers have ended; the next spawn starts another.
            with self._fork_server_lock:
                self._end_fork_server()
        self._count_ended()

    def _count_ended(self) -> None:
        with self._free:
            self._started -= 1
            self._free.notify()

    def _spawn(self) -> _Worker:
        with self._fork_server_lock:
            for attempt in range(2):  # a fork server that was killed is replaced once
                try:
                    return self._fork_from(self._fork_server or self._start_fork_server())
                except (EOFError, OSError) as error:
                    self._end_fork_server()
                    if attempt:
                        raise WorkerPoolError(
                            f"cannot start a verifier process: {error}"
                        ) from error
        raise AssertionError("unreachable")

    def _fork_from(self, fork_server: tuple[subprocess.Popen[bytes], socket.socket]) -> _Worker:
        control = fork_server[1]
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(control, [bytes(8)], [theirs.fileno()])
            answer = control.recv(8, socket.MSG_WAITALL)
            if len(answer) < 8:
                raise EOFError("the fork server ended")
        except BaseException:
            ours.close()
            raise
        return _Worker(int.from_bytes(answer, "big"), ours)

    def _start_fork_server(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _FORK_SERVER,
                    os.path.dirname(__file__),
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # The inherited stdout may be closed in a notebook or pipe; errors still show.
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _python_path()},
                cwd="/",  # `-c` adds it to the path: no file of the user may shadow a module
                start_new_session=True,  # the parent handles Ctrl-C in the terminal
            )
        self._fork_server = (process, ours)
        ours.settimeout(STARTUP_SECONDS)
        receive(ours)
        ours.settimeout(None)
        return self._fork_server

    def _end_fork_server(self) -> None:
        if self._fork_server:
            process, control = self._fork_server
            self._fork_server = None
            control.close()  # it then kills its workers and exits
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _python_path() -> str:
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path)


def _complete(outcomes: list[GradingOutcome | None]) -> TypeGuard[list[GradingOutcome]]:
    return None not in outcomes


# --- the shared pool ------------------------------------------------------------------

_shared: Pool | None = None
_shared_lock = threading.Lock()


def shared_pool(size: int) -> Pool:
    """Return the pool of this process, with at least `size` workers allowed."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Pool(size, spare=SPARE_WORKERS)
            atexit.register(close_shared_pool)
        _shared.grow(size)
        return _shared


def close_shared_pool() -> None:
    """End the shared pool; the next use starts another."""
    global _shared
    with _shared_lock:
        pool, _shared = _shared, None
    if pool:
        pool.close()


def _after_fork() -> None:
    """Drop the pool in a forked child: sharing the parent's workers would mix up replies."""
    global _shared, _shared_lock
    _shared_lock = threading.Lock()  # it may have been locked at the fork
    if _shared:
        with contextlib.suppress(OSError):
            _shared.forget()
    _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
