"""A process pool whose deadlines hold: a worker that is late or dies is replaced.

The parent owns the clock and kills; no signal handler, no alarm, no thread. So it works the
same from any thread, from an event loop, in a daemonic process and in a Ray worker.
Workers are launched by command line, never by `multiprocessing`, so `__main__` may be
a notebook, standard input or a script without a guard.
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
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

from .verdict import Slug
from .worker import Rule, receive, send

STARTUP_SECONDS = 120.0  # importing sympy on a busy machine takes a while
LEAST_SECONDS = 0.3  # a pair has these from a ready worker on, however long that took to start
SPARE_WORKERS = 32  # of the shared pool, for callers that would otherwise wait for each other
_GRACE = 0.2  # seconds that a reply already on its way may take
# The nursery runs this package alone, under a name of its own: the packages around it import
# numpy and pyarrow, which would double the time to the first answer.
_NURSERY = """
import sys, types
package = types.ModuleType("_verifier")
package.__path__ = [sys.argv[1]]
sys.modules["_verifier"] = package
from _verifier.worker import main
main(int(sys.argv[2]))
"""


class Outcome(NamedTuple):
    """The slug for one pair, and why where it is a failure."""

    slug: Slug
    reason: str = ""


class _Worker(NamedTuple):
    pid: int
    link: socket.socket


class _Job(NamedTuple):
    worker: _Worker
    row: int
    deadline: float


class WorkerPoolError(RuntimeError):
    """The pool cannot start its processes."""


class Pool:
    """Up to `size` workers, started when first needed. Safe to share between threads.

    Up to `spare` more are started for callers that would have none, and end after one pair.
    """

    def __init__(self, size: int, *, spare: int = 0) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least one worker, got {size}")
        self._size = size
        self._spare = spare
        self._idle = list[_Worker]()
        self._started = 0
        self._waiting = 0
        self._free = threading.Condition()
        self._nursery_lock = threading.Lock()
        self._nursery: tuple[subprocess.Popen[bytes], socket.socket] | None = None
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
    ) -> list[Outcome]:
        """Outcomes of (answer, reference) pairs, in order.

        `timeout` is the seconds each pair may take, the start of its worker included, but
        never less than `LEAST_SECONDS` (or `timeout`) of work; `workers` how many this call
        may use at a time; `rule` what compares a pair. With `math_verify`, the first of a pair
        is a whole response.

        Raises:
            WorkerPoolError: no process could be started.
        """
        outcomes: list[Outcome | None] = [None] * len(pairs)
        jobs = dict[socket.socket, _Job]()
        remaining = iter(range(len(pairs)))
        unsent = next(remaining, None)
        try:
            while jobs or unsent is not None:
                while unsent is not None and len(jobs) < workers:
                    asked = time.monotonic()
                    worker = self._take(block=not jobs)
                    if worker is None:
                        break
                    least = time.monotonic() + min(timeout, LEAST_SECONDS)
                    job = _Job(worker, unsent, max(asked + timeout, least))
                    unsent = next(remaining, None)
                    if self._submit(job, (*pairs[job.row], rule)):
                        jobs[worker.link] = job
                    else:
                        outcomes[job.row] = Outcome("verifier_error", "the worker had died")
                for job, outcome in self._collect(jobs):
                    outcomes[job.row] = outcome
        finally:
            for job in jobs.values():  # an exception, such as Ctrl-C, leaves work behind
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
        with self._nursery_lock:
            self._end_nursery()

    def forget(self) -> None:
        """Drop the inherited sockets in a forked child; the processes are the parent's."""
        for worker in self._idle:
            worker.link.close()
        if self._nursery:
            self._nursery[1].close()
            self._nursery[0].returncode = 0  # not our child: its destructor must not wait
        self._idle, self._nursery, self._closed = [], None, True

    # --- one job ----------------------------------------------------------------------

    def _submit(self, job: _Job, request: tuple[str, str, Rule]) -> bool:
        try:
            send(job.worker.link, request)
        except OSError:
            self._discard(job.worker)
            return False
        return True

    def _collect(self, jobs: dict[socket.socket, _Job]) -> Iterator[tuple[_Job, Outcome]]:
        """Outcomes that are due, waiting for at least one where there are jobs."""
        if not jobs:
            return
        wait = max(0.0, min(job.deadline for job in jobs.values()) - time.monotonic())
        with selectors.DefaultSelector() as selector:
            for link in jobs:
                selector.register(link, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(wait)]
        now = time.monotonic()
        for link, job in list(jobs.items()):
            if link in ready:
                yield job, self._finish(jobs.pop(link))
            elif now >= job.deadline:
                del jobs[link]
                self._discard(job.worker)
                yield job, Outcome("timeout", "over the deadline")

    def _finish(self, job: _Job) -> Outcome:
        try:
            job.worker.link.settimeout(max(_GRACE, job.deadline - time.monotonic()))
            slug, reason = receive(job.worker.link)
            job.worker.link.settimeout(None)
        except TimeoutError:
            self._discard(job.worker)
            return Outcome("timeout", "over the deadline")
        except (EOFError, OSError):
            self._discard(job.worker)
            return Outcome("verifier_error", "the worker died")
        if slug == "verifier_error":
            # What broke may have left it short of memory or stack: a fresh one is cheap.
            self._discard(job.worker)
        else:
            self._give_back(job.worker)
        return Outcome(slug, reason)

    # --- workers ----------------------------------------------------------------------

    def _take(self, *, block: bool) -> _Worker | None:
        """An idle or a new worker; None where all are busy and `block` is off."""
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
            self._forget_one()
            raise

    def _give_back(self, worker: _Worker) -> None:
        with self._free:
            surplus = self._closed or self._started > self._size
            if not surplus:
                self._idle.append(worker)
                self._free.notify()
            waiting = self._waiting
        if surplus:
            self._discard(worker)
        elif waiting:
            time.sleep(0)  # let a waiting thread have it before this one asks again

    def _discard(self, worker: _Worker) -> None:
        worker.link.close()
        try:
            with self._nursery_lock:
                if self._nursery:
                    self._nursery[1].sendall(worker.pid.to_bytes(8, "big"))
        except OSError:
            # The nursery is gone and its workers with it; the next spawn starts another.
            with self._nursery_lock:
                self._end_nursery()
        self._forget_one()

    def _forget_one(self) -> None:
        with self._free:
            self._started -= 1
            self._free.notify()

    def _spawn(self) -> _Worker:
        with self._nursery_lock:
            for attempt in range(2):  # a nursery that was killed is replaced once
                try:
                    return self._fork_from(self._nursery or self._start_nursery())
                except (EOFError, OSError) as error:
                    self._end_nursery()
                    if attempt:
                        raise WorkerPoolError(
                            f"cannot start a verifier process: {error}"
                        ) from error
        raise AssertionError("unreachable")

    def _fork_from(self, nursery: tuple[subprocess.Popen[bytes], socket.socket]) -> _Worker:
        control = nursery[1]
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(control, [bytes(8)], [theirs.fileno()])
            answer = control.recv(8, socket.MSG_WAITALL)
            if len(answer) < 8:
                raise EOFError("the nursery ended")
        except BaseException:
            ours.close()
            raise
        return _Worker(int.from_bytes(answer, "big"), ours)

    def _start_nursery(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _NURSERY, os.path.dirname(__file__), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # A notebook or a pipe may have closed what it inherits; errors still show.
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _python_path()},
                cwd="/",  # `-c` puts it on the path: nothing of the user's may shadow a module
                start_new_session=True,  # Ctrl-C in the terminal is the parent's to handle
            )
        self._nursery = (process, ours)
        ours.settimeout(STARTUP_SECONDS)
        receive(ours)
        ours.settimeout(None)
        return self._nursery

    def _end_nursery(self) -> None:
        if self._nursery:
            process, control = self._nursery
            self._nursery = None
            control.close()  # it sees the end, kills its workers and exits
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _python_path() -> str:
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path)


def _complete(outcomes: list[Outcome | None]) -> TypeGuard[list[Outcome]]:
    return None not in outcomes


# --- the shared pool ------------------------------------------------------------------

_shared: Pool | None = None
_shared_lock = threading.Lock()


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_pool(size: int) -> Pool:
    """The pool of this process, with room for at least `size` workers."""
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
    """A forked child has no workers: sharing the parent's would mix up their replies."""
    global _shared, _shared_lock
    _shared_lock = threading.Lock()  # it may have been held at the fork
    if _shared:
        with contextlib.suppress(OSError):
            _shared.forget()
    _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
