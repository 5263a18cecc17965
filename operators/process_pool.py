"""A pool of processes that work for this one: one that is late or dies is replaced.

Processes are started by command line, not by `multiprocessing`, so `__main__` may be a notebook,
standard input or a script without a guard. Without signal handler, alarm or thread, a pool works
the same from any thread, from an event loop, in a daemonic process and in a Ray worker.

    parent                                 process
    ProcessPool.ask(requests)  ─ batch ─>  for rows in batches(link):
                               <─ reply ─      reply(link, number, *answer)    # once for each row
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Generic, NoReturn, Protocol, TypeVar
from weakref import WeakSet

from .workers import end_group, end_with_parent

STARTUP_SECONDS = 300.0
"""What the start of a process with its imports may take, on a busy machine."""
_GRACE_S = 5.0  # by which an asynchronous process that is blocked is found
_AT_ONCE_S = 1.0  # for the rest of a message that is there
_FORKS_END_S = 2.0  # that forks have to end by themselves
SERVER_ENDS_S = 4.0  # that their server has, which may also still import

# --- Messages -------------------------------------------------------------------------

SIZE = struct.Struct("!Q")


def send(link: socket.socket, body: bytes) -> None:
    """Send one message, preceded by its size."""
    link.sendall(SIZE.pack(len(body)) + body)


def receive(link: socket.socket) -> bytes:
    """Receive one message; an EOFError if the other side has closed the connection."""
    return _exactly(link, SIZE.unpack(_exactly(link, SIZE.size))[0])


def _exactly(link: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise EOFError("the other side closed the connection")
        parts += part
    return bytes(parts)


def batches(link: socket.socket) -> Iterator[list[tuple[int, Any]]]:
    """What a process is asked, in numbered rows, until the pool closes the connection."""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            yield pickle.loads(receive(link))


def reply(link: socket.socket, number: int, *answer: Any) -> None:
    """Answer one row. In JSON: nothing that a process says is run."""
    send(link, json.dumps([number, *answer]).encode())


# --- Processes ------------------------------------------------------------------------

# Unless it gets a path, it imports nothing of rejuice but the module that it runs: the packages
# above it, and what they import, would double the time until it is up.
_START = """
import sys
module, folder, descriptor, parent, *path = sys.argv[1:]
sys.path = path or [each for each in sys.path if each]  # No file of the user may shadow a module.
import importlib, types
if folder:
    package = module.rpartition(".")[0]
    for name, place in (("_rejuice", folder), (package, folder + "/" + package.split(".")[1])):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [place]
importlib.import_module(module).main(int(descriptor), int(parent))
"""


def python_path() -> list[str]:
    """Where this process finds modules; in its working directory, as a notebook does, at last."""
    # An editable installation has entries that are no paths.
    path = [os.path.abspath(each) if os.path.exists(each) else each for each in sys.path if each]
    if "" in sys.path:
        with contextlib.suppress(FileNotFoundError):  # It may be deleted.
            path.append(os.getcwd())
    return path


class WorkerProcess(ABC):
    """A process, and what it is asked by a pool, at the other end of `link`."""

    link: socket.socket
    is_ready = True
    """Whether it takes batches; if not, it sends a message once it does: see `prepare`."""
    is_async = False
    """Whether it answers a batch in any order, and ends by itself what is late."""
    is_spent = False
    """Whether it is to be replaced, after what it has just answered."""
    attempts = 1
    """How many in a row may fail to get ready until a call fails."""
    left: dict[int, Any]
    """The requests that it has not answered yet, by number."""
    deadline: float
    """When it is late, by the wall."""

    def prepare(self) -> None:
        """Read what it says once it is ready; raises whatever is wrong."""
        self.is_ready = True

    @abstractmethod
    def close(self) -> None:
        """End it, and what it has started. Idempotent."""

    def forget(self) -> None:
        """Leave it to the parent of this process, which is a fork."""
        self.link.close()


class CommandProcess(WorkerProcess):
    """One that runs `main` of a module of a package beside this one, in a session of its own.

    `main` of the module, such as `functions.process`, gets its end of `link`, as a file descriptor,
    and the number of this process; `setup` is the first message. `path` is where it finds modules,
    with all of rejuice; empty: where its Python does; None: there, and it has nothing of rejuice
    but the module and what that imports. `options` are those of `subprocess.Popen`.
    """

    def __init__(
        self,
        module: str,
        setup: bytes = b"",
        *,
        path: Sequence[str] | None = None,
        command: Sequence[str] = (sys.executable,),
        **options: Any,
    ) -> None:
        self.link, theirs = socket.socketpair()
        names = [f"{__package__}.{module}", ""]
        if path is None:
            names = [f"_rejuice.{module}", os.path.dirname(os.path.abspath(__file__))]
        words = [*names, str(theirs.fileno()), str(os.getpid()), *(path or ())]
        # Our output may be closed in a notebook, and responses may steer a terminal. Ctrl-C is for
        # this process; and it ends with the processes that it starts.
        usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with theirs:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [*command, "-c", _START, *words],
                **{**usual, "start_new_session": True, "pass_fds": [theirs.fileno()], **options},
            )
        self.link.settimeout(STARTUP_SECONDS)
        if setup:
            with contextlib.suppress(OSError):  # Whoever reads what it says finds that it ended.
                send(self.link, setup)

    def close(self) -> None:
        self.link.close()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def forget(self) -> None:
        self.link.close()
        self.process.returncode = 0  # Not this process's child: its destructor must not wait.


_ORDER = struct.Struct("!q")  # the number of a fork; minus that number: end it
_numbers = count(1)  # of forks; not those of processes, which another one may have later


class ForkingProcess(CommandProcess):
    """One whose forks work, each at a link of its own: see `serve_forks`."""

    def fork(self) -> tuple[socket.socket, Callable[[], socket.socket]]:
        """A new process: its link, and what kills it; a ConnectionError if the server has ended.

        That gives a link at which, in digits, its exit code comes, or minus the signal.
        """
        number = next(_numbers)
        return self._order(number), partial(self._order, -number)

    def _order(self, number: int) -> socket.socket:
        link, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self.link, [_ORDER.pack(number)], [theirs.fileno()])
            except OSError:
                link.close()
                raise
        return link

    def close(self) -> None:
        self.link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(SERVER_ENDS_S)
        super().close()


def serve_forks(control: socket.socket, serve: Callable[[socket.socket], None]) -> NoReturn:
    """Fork for each new number, with a socket that `serve` gets, and end forks by their numbers.

    They have what this process has imported. A fork ends with what it has started; once the parent
    has closed the connection, it has a moment to do so by itself. If this process is killed, the
    kernel ends its forks, also in the middle of C code, but not what they have started.
    """
    gc.freeze()
    server, forks = os.getpid(), dict[int, int]()
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, _ORDER.size, 1)
        if not descriptors:
            break
        (number,) = _ORDER.unpack(order)
        # The system may have no place for another; and whoever ends a fork need not wait.
        with socket.socket(fileno=descriptors[0]) as link, contextlib.suppress(OSError):
            if fork := forks.pop(-number, None):
                send(link, str(_end_fork(fork)).encode())
            elif number > 0:
                if not (fork := os.fork()):
                    control.close()
                    _be_fork(link, server, serve)
                forks[number] = fork
    left, late = set(forks.values()), time.monotonic() + _FORKS_END_S
    while left and time.monotonic() < late:
        left -= {each for each in left if os.waitpid(each, os.WNOHANG)[0]}
        time.sleep(0.01)
    for each in left:
        _end_fork(each)
    os._exit(0)


def _be_fork(link: socket.socket, server: int, serve: Callable[[socket.socket], None]) -> NoReturn:
    try:
        os.setsid()
        end_with_parent(server)
        serve(link)
    finally:
        end_group()
        os._exit(1)


def _end_fork(pid: int) -> int:
    # Nobody has waited for it yet, so no other process can have its number.
    for kill in (os.killpg, os.kill):  # It may not have made its group yet.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# --- The pool -------------------------------------------------------------------------

_P = TypeVar("_P", bound=WorkerProcess)
_Answer = TypeVar("_Answer")


class ProcessPool(ABC, Generic[_P, _Answer]):
    """Up to `size` processes, started when first needed. Thread-safe.

    After a fork of this process, the child has processes of its own. `spare` is how many more are
    started for callers that would get none; they end after one call.
    """

    def __init__(self, calls: str, size: int, *, spare: int = 0) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least one process, got {size}")
        self._calls, self.size, self._spare = calls, size, spare
        self._reset()
        end_with_process(self)

    def _reset(self) -> None:
        self._idle, self._busy = list[_P](), set[_P]()
        self._is_stopped = False
        self._free = threading.Condition()

    @abstractmethod
    def start(self) -> _P:
        """Start a process, without waiting until it is ready."""

    @abstractmethod
    def answer(self, process: _P, *fields: Any) -> _Answer:
        """What a process has replied to a row."""

    @abstractmethod
    def lost(self, process: _P, *, late: bool) -> _Answer:
        """The answer to the row at which a process was late, or has ended. It is closed."""

    def ask(
        self, requests: Sequence[Any], *, seconds: float, workers: int, most: int = 1
    ) -> list[_Answer]:
        """The answer to each request, which is pickled, in order; up to `most` in a message.

        A process has to give its next answer within so many seconds by the wall. An
        InterruptedError: another thread has called `stop`.
        """
        return _Work(self, requests, seconds, most).done(workers)

    def grow(self, size: int) -> None:
        """Allow at least `size` processes."""
        with self._free:
            self.size = max(self.size, size)
            self._free.notify_all()

    def take(self, *, block: bool = True) -> _P | None:
        """An idle or a new process; None: all are busy, and `block` is false."""
        with self._free:
            while True:
                self.raise_if_stopped()
                most = self.size + (self._spare if block else 0)
                if self._idle or len(self._busy) < most:
                    process = self._idle.pop() if self._idle else self.start()
                    self._busy.add(process)
                    return process
                if not block:
                    return None
                self._free.wait()

    def give_back(self, process: _P) -> None:
        with self._free:
            is_wanted = len(self._busy) + len(self._idle) <= self.size
            if is_wanted:
                self._busy.discard(process)
                self._idle.append(process)
                self._free.notify()
        if not is_wanted:
            self.discard(process)

    def discard(self, process: _P) -> None:
        with self._free:
            self._busy.discard(process)
            self._free.notify()
        process.close()

    def stop(self) -> None:
        """Let the calls of other threads, also later ones, end at once with an error."""
        with self._free:
            self._is_stopped = True
            for process in self._busy:  # They seem to have ended.
                process.link.shutdown(socket.SHUT_RDWR)
            self._free.notify_all()

    def raise_if_stopped(self) -> None:
        if self._is_stopped:
            raise InterruptedError(f"{self._calls} were stopped")

    def close(self) -> None:
        """End all processes that do nothing; the next use starts others."""
        with self._free:
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()

    def forget(self) -> None:
        """Drop the processes, which are those of the parent, in a fork."""
        for process in (*self._idle, *self._busy):
            process.forget()
        self._reset()


class _Work(Generic[_P, _Answer]):
    """The requests of one call, and the processes that answer them."""

    def __init__(
        self, pool: ProcessPool[_P, _Answer], requests: Sequence[Any], seconds: float, most: int
    ) -> None:
        rows = list(enumerate(requests))
        self._pool, self._seconds, self._count = pool, seconds, len(rows)
        self._todo = deque(rows[at : at + most] for at in range(0, len(rows), most))
        self._answers: dict[int, _Answer] = {}
        self._processes = list[_P]()
        self._failures = 0  # to get ready, in a row
        self._selector = selectors.DefaultSelector()

    def done(self, workers: int) -> list[_Answer]:
        with self._selector:
            try:
                while len(self._answers) < self._count:
                    self._hire(workers)
                    self._follow()
                for process in list(self._processes):  # Those that are not ready yet.
                    self._pool.give_back(self._released(process))
            except BaseException:  # Ctrl-C, too: they are in the middle of a row.
                for process in list(self._processes):
                    self._pool.discard(self._released(process))
                raise
            finally:
                self._pool.raise_if_stopped()
        return [self._answers[number] for number in range(self._count)]

    def _released(self, process: _P) -> _P:
        self._selector.unregister(process.link)
        self._processes.remove(process)
        return process

    def _hire(self, workers: int) -> None:
        """Get processes for batches that nobody works at."""
        while len(self._processes) < workers:
            if sum(not each.is_ready for each in self._processes) >= len(self._todo):
                return
            process = self._pool.take(block=not self._processes)
            if process is None:
                return
            process.deadline = time.monotonic() + STARTUP_SECONDS
            self._selector.register(process.link, selectors.EVENT_READ, process)
            self._processes.append(process)
            if process.is_ready:
                self._give(process)

    def _follow(self) -> None:
        """Wait for what processes say, and see which of them are late."""
        deadline = min((each.deadline for each in self._processes), default=0.0)
        found = self._selector.select(max(0.0, deadline - time.monotonic()))
        ready: set[_P] = {key.data for key, _ in found}
        now = time.monotonic()
        for process in list(self._processes):
            if process not in ready and process.deadline > now:
                continue
            if not process.is_ready:
                process.link.settimeout(_AT_ONCE_S)
                try:
                    process.prepare()
                except Exception:
                    self._failures += 1
                    if process not in ready or self._failures >= process.attempts:
                        raise
                    # The others may have the same cause, such as a server that was killed.
                    for each in [each for each in self._processes if not each.is_ready]:
                        self._pool.discard(self._released(each))
                    return
                self._failures = 0
                self._give(process)
            elif process in ready:
                self._read(process)
            else:
                self._lose(process, late=True)

    def _give(self, process: _P) -> None:
        """Give a process its next batch, or if there is none, back to the pool."""
        if not self._todo:
            self._pool.give_back(self._released(process))
            return
        rows = self._todo.popleft()
        process.left = dict(rows)
        process.link.settimeout(self._seconds)
        self._begin_row(process)
        body = pickle.dumps(rows)
        try:
            process.link.sendall(SIZE.pack(len(body)))
        except OSError:  # It had ended before, so no row has been begun.
            self._pool.discard(self._released(process))
            self._todo.appendleft(rows)
            return
        try:
            process.link.sendall(body)
        except OSError as error:
            self._lose(process, late=isinstance(error, TimeoutError))

    def _begin_row(self, process: _P) -> None:
        grace_s = _GRACE_S if process.is_async else 0.0
        process.deadline = time.monotonic() + self._seconds + grace_s

    def _read(self, process: _P) -> None:
        try:
            # A reply comes in one piece: its rest is not what takes the time.
            number, *fields = json.loads(receive(process.link))
        except (EOFError, OSError) as error:
            self._lose(process, late=isinstance(error, TimeoutError))
            return
        self._answers[number] = self._pool.answer(process, *fields)
        del process.left[number]
        if process.is_spent:
            self._pool.discard(self._released(process))
            self._todo.extendleft([row] for row in process.left.items())
        elif process.left:
            self._begin_row(process)
        else:
            self._give(process)

    def _lose(self, process: _P, *, late: bool) -> None:
        """Replace a process that is late, or has ended, at a row."""
        self._pool.discard(self._released(process))
        number, *others = process.left
        # Which row has blocked an asynchronous one is found when each is alone.
        if not (process.is_async and others):
            self._answers[number] = self._pool.lost(process, late=late)
            del process.left[number]
        self._todo.extendleft([row] for row in process.left.items())


# --- The end of this process, and its forks -------------------------------------------

_owners = WeakSet["_Owner"]()


class _Owner(Protocol):
    def close(self) -> None: ...
    def forget(self) -> None: ...


def end_with_process(owner: _Owner) -> None:
    """Close what has processes at the end of this one; a fork of this one forgets it."""
    _owners.add(owner)


def _close_all() -> None:
    for owner in list(_owners):
        owner.close()


def _after_fork() -> None:
    for owner in list(_owners):
        owner.forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
