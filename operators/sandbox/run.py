"""Runs Python programs that nobody has read, each in a confined process of its own.

    with Sandbox() as sandbox:
        sandbox.run("print(6 * 7)").stdout  # 42

A program has the standard library, its standard streams, and nothing else: no file, no network, no
other process or thread, no environment, bounded time, memory and output. `confine.py` says how.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Literal, NamedTuple

from ..errors import RecipeError
from ..process_pool import STARTUP_SECONDS, CommandProcess, end_with_process
from .confine import ARCHITECTURES
from .server import ENDED, FAILED, READY, REQUEST

# --- One program, from its start to its end -------------------------------------------

_KILL_SECONDS = 30.0  # that the fork server may take to kill a process and reap it
_READ = 1 << 16  # bytes of a message


class SandboxError(RuntimeError):
    """The sandbox itself has failed: nothing is known about the program."""


class SandboxLimits(NamedTuple):
    """What a program may use."""

    seconds: float = 5.0  # of wall time. Starting the process is not counted.
    memory: int = 512 << 20  # bytes of address space, beyond what Python itself has
    output: int = 1 << 16  # bytes of stdout, and as many of stderr


class Execution(NamedTuple):
    """How a program has ended, and what it has printed."""

    # `error`: an exception or another exit code than 0; the others name the limit that ended it. A
    # program can give itself any status, by its exit code or what it prints.
    status: Literal["ok", "error", "timeout", "memory", "output"]
    stdout: str  # UTF-8, with U+FFFD for what is not
    stderr: str  # likewise; at an exception, the end of the traceback
    # minus the signal where one ended it; None: it was late by the wall, or printed too much
    exit_code: int | None


class Stop:
    """Ends a program from another thread, also one that has not begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self.is_wanted = False

    def ends(self, link: socket.socket) -> None:
        """Take this as the link of the program to end."""
        with self._lock:
            self._link = link
        if self.is_wanted:
            self()

    def __call__(self) -> None:
        """End the program: what `Sandbox.run` gives then has no meaning."""
        with self._lock, contextlib.suppress(OSError):  # it has ended already
            self.is_wanted = True
            if self._link is not None:
                self._link.shutdown(socket.SHUT_WR)


def _received(link: socket.socket, seconds: float) -> bytes | None:
    """What a process, or the fork server, says of a program; empty: they have ended, None: late."""
    link.settimeout(seconds)
    try:
        return link.recv(_READ)
    except (TimeoutError, BlockingIOError):
        return None
    except ConnectionResetError:
        return b""


def _check_started(first: bytes | None) -> None:
    if first is None:
        raise SandboxError("the fork server does not answer")
    if not first:
        raise SandboxError("the fork server has ended before the program ran")
    if first != READY:
        reason = first.removeprefix(FAILED) if first.startswith(FAILED) else b"its process died"
        raise SandboxError(f"the program could not be confined: {reason.decode(errors='replace')}")


def _ended(
    link: socket.socket, printed: Sequence[int], limits: SandboxLimits, *, at_once: bool = False
) -> Execution:
    """End a program `at_once`, or wait for its end, and read what it has printed."""
    ended = _received(link, 0.0 if at_once else limits.seconds)
    is_late = ended is None
    if is_late:
        link.shutdown(socket.SHUT_WR)
        ended = _received(link, _KILL_SECONDS)
    if not ended:
        what = "does not answer" if ended is None else "has ended while the program ran"
        raise SandboxError(f"the fork server {what}")
    exit_code, processor_seconds = ENDED.unpack(ended)
    files = [os.pread(f, min(os.fstat(f).st_size, limits.output + 1), 0) for f in printed]
    stdout, stderr = (each[: limits.output].decode("utf-8", "replace") for each in files)
    if any(len(each) > limits.output for each in files):
        return Execution("output", stdout, stderr, None)
    if is_late and not at_once:
        return Execution("timeout", stdout, stderr, None)
    status: Literal["ok", "error", "timeout", "memory"] = "ok" if exit_code == 0 else "error"
    if exit_code == -signal.SIGXCPU:
        status = "timeout"
    elif exit_code == -signal.SIGKILL and not is_late:
        # Not by us: for its processor time, or because the machine has no memory left.
        status = "timeout" if processor_seconds > limits.seconds else "memory"
    elif exit_code and stderr.rstrip("\n").rpartition("\n")[2].startswith("MemoryError"):
        status = "memory"
    return Execution(status, stdout, stderr, exit_code)


# --- The fork server, as its caller sees it -------------------------------------------

# Sets of strings print in the same order again, and times are those of UTC.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "TZ": "UTC"}


@cache
def check_confinement() -> None:
    """Check, by trying it, that programs can be confined on this machine."""
    right = "run it on Linux 5.13 or newer with Landlock (`lsm=landlock,...`), on x86_64 or aarch64"
    found = "this machine cannot confine the Python programs of a policy"
    if sys.platform != "linux" or os.uname().machine not in ARCHITECTURES:
        raise RecipeError(f"{found}: it is {sys.platform} on {os.uname().machine}", right)
    try:
        with Sandbox() as sandbox:
            tried = sandbox.run(_TRY)
    except SandboxError as error:
        raise RecipeError(f"{found}: {error}", right) from error
    if (tried.status, tried.stdout) != ("ok", "confined"):
        raise RecipeError(f"{found}: a test program ended with '{tried.status}'", right)


# What a confined program cannot do, in few lines.
_TRY = """
import os, socket

for attempt in (lambda: os.open("/", os.O_RDONLY), os.fork, socket.socket):
    try:
        attempt()
    except PermissionError:
        continue
    raise SystemExit("not confined")
print(end="confined")
"""


# Nothing of the site, and text that does not depend on it.
_PYTHON = (sys.executable, "-s", "-S", "-X", "utf8")


class Sandbox:
    """A fork server, started when first needed, and the programs that run in its forks.

    Thread-safe. The fork server and all programs end with this process, however it ends; after a
    fork of this process, the child has a fork server of its own. At most `workers` programs run at
    the same time; further calls wait.
    """

    def __init__(self, *, workers: int = 1) -> None:
        self._workers = workers
        self._reset()
        end_with_process(self)

    def run(
        self,
        source: str,
        *,
        stdin: str = "",
        limits: SandboxLimits = SandboxLimits(),  # noqa: B008, it is immutable
        show_last: bool = False,
        stop: Stop | None = None,
    ) -> Execution:
        """Run a program, which reads `stdin`, and wait for its end; `stop` ends it early.

        With `show_last`, the value of the last statement is printed if it is an expression, as a
        notebook does. After a SandboxError, the next call starts the sandbox again.
        """
        stop = stop or Stop()
        with self._free, self._started(source, stdin, limits, stop, show_last=show_last) as ended:
            return ended()

    def run_connected(
        self, answering: str, asking: str, *, limits: SandboxLimits, asking_limits: SandboxLimits
    ) -> tuple[Execution, Execution]:
        """Run two programs whose standard inputs are the ends of one socket.

        The first is ended when the second has ended, which starts once the first has. They count as
        one of the `workers`, since one waits for the other.
        """
        ours, theirs = socket.socketpair()
        with self._free, ours, theirs, self._started(answering, theirs, limits, Stop()) as first:
            with self._started(asking, ours, asking_limits, Stop()) as second:
                asked = second()
            return first(at_once=True), asked

    @contextlib.contextmanager
    def _started(
        self,
        source: str,
        stdin: str | socket.socket,
        limits: SandboxLimits,
        stop: Stop,
        *,
        show_last: bool = False,
    ) -> Iterator[Callable[..., Execution]]:
        """While it lasts, a program runs, whose end the function waits for."""
        request = REQUEST.pack(limits.seconds, limits.memory, limits.output, show_last)
        with contextlib.ExitStack() as ours:
            link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.enter_context(link)
            stop.ends(link)
            try:
                printed = [_file(ours), _file(ours)]
                with contextlib.ExitStack() as handed_over, theirs:
                    files = [_sealed(source, handed_over), _input(stdin, handed_over), *printed]
                    self._send(request, [*files, theirs.fileno()])
                _check_started(_received(link, STARTUP_SECONDS))
                yield partial(_ended, link, printed, limits)
            except SandboxError:
                with self._lock:
                    if self._server and self._server.process.poll() is not None:
                        self._end()
                raise
            except OSError as error:  # such as too many open files in this process
                raise SandboxError(f"the program cannot be handed over: {error}") from error

    def close(self) -> None:
        """End the fork server and all programs. Idempotent; a later call starts it again."""
        with self._lock:
            self._end()

    @property
    def pid(self) -> int | None:
        return self._server.process.pid if self._server else None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _reset(self) -> None:
        self._free = threading.BoundedSemaphore(self._workers)
        self._lock = threading.Lock()
        self._server: CommandProcess | None = None

    def _send(self, request: bytes, descriptors: list[int]) -> None:
        """Hand a program to the fork server; one that has died is replaced once."""
        with self._lock:
            for attempt in range(2):
                try:
                    server = self._server or self._start()
                    socket.send_fds(server.link, [request], descriptors)
                    return
                except OSError as error:  # no program has run
                    self._end()
                    if attempt:
                        raise SandboxError(f"the fork server does not start: {error}") from error

    def _start(self) -> CommandProcess:
        # Where Python's own library is found by it, the path is needed; it is no secret.
        libraries = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
        env = {**_ENVIRONMENT, **libraries}
        self._server = CommandProcess("sandbox.server", command=_PYTHON, env=env, cwd="/")
        return self._server

    def _end(self) -> None:
        if self._server:
            self._server.close()
        self._server = None

    def forget(self) -> None:
        if self._server:
            self._server.forget()
        self._reset()


def _file(stack: contextlib.ExitStack) -> int:
    """An empty file in memory."""
    descriptor = os.memfd_create("text", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, descriptor)
    return descriptor


def _sealed(text: str, stack: contextlib.ExitStack) -> int:
    """A file in memory with this content, which nobody can change."""
    descriptor = _file(stack)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _input(stdin: str | socket.socket, stack: contextlib.ExitStack) -> int:
    """The file that a program reads; a socket is its own, so that its end is seen."""
    return _sealed(stdin, stack) if isinstance(stdin, str) else stack.enter_context(stdin).fileno()
