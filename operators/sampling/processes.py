"""An engine in separate processes, such as one single-threaded process per core."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from .._version import __version__
from ..errors import EngineError, RejuiceError
from .protocol import Engine, Failure, Group, Prompt, Settings
from .token_count import listening, token_listener

# Started by command line, not by `multiprocessing`, so that `__main__` may be a notebook. The
# process sends its version before it imports modules that another version may not have.
_START = f"""
import sys
sys.path[:] = sys.argv[3:] or sys.path
from multiprocessing.connection import Connection
from rejuice.operators import __version__
link = Connection(int(sys.argv[1]))
link.send(__version__)
from {__name__} import main
main(link)
"""
_PARENT_POLL_S = 0.5  # seconds between checks that the parent is alive
_EXIT_TIMEOUT_S = 5.0  # seconds that a failed process may take to exit
_REPORT_S = 1.0  # seconds between two reports of sampled tokens
_LOG_TAIL_BYTES = 8192  # bytes of a dead process's output that are shown, at most
DEFAULT_ENVIRONMENT = {
    # Threads that spin while they wait slow down those that work.
    "OMP_WAIT_POLICY": "PASSIVE",
    # By default, glibc asks the kernel for each large tensor anew, which clears every page of it:
    # with the vocabulary of a language model, that takes longer than the arithmetic on it.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    # Nobody sees them.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""Variables of a sampling process that are not set otherwise."""


class _Process(NamedTuple):
    child: subprocess.Popen[bytes]
    link: Connection
    log_file: IO[bytes]  # so that its output does not disturb our progress bar


class _SampledTokens(NamedTuple):
    """What a process sends while its groups are under way: tokens since it last did."""

    number: int


class TokenReports:
    """Adds up sampled tokens, and sends their number about once a second.

    Args:
        send: called with the message.
    """

    def __init__(self, send: Callable[[_SampledTokens], object]) -> None:
        self._send, self._number, self._last = send, 0, 0.0

    def __call__(self, tokens: int) -> None:
        """Add tokens that have been sampled."""
        self._number += tokens
        if self._number and time.monotonic() - self._last >= _REPORT_S:
            self._send(_SampledTokens(self._number))
            self._number, self._last = 0, time.monotonic()


class EngineProcesses:
    """Distributes prompts among `workers` processes, each with the engine that `build` returns.

    The processes end with this process, however it ends, and when the iteration over `sample` is
    left early; the next call starts them again. One call at a time.

    Their output goes to a log file of their own; its end is shown if a process dies unexpectedly.

    Args:
        build: makes the engine; it is sent to the process, so it must be picklable.
        workers: how many processes.
        threads: number of threads in each; None: its libraries choose.
        python: interpreter of another environment, with the same version of rejuice and what the
            engine needs; None: the current one, with the same `sys.path`.
        launcher: command that does what the current interpreter does; None: the interpreter itself.
        environment: further environment variables for the processes.

    Raises:
        EngineError: a process does not start or has another version of rejuice, or `build` raised
            it.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        workers: int = 1,
        threads: int | None = 1,
        python: str | None = None,
        launcher: Sequence[str] | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._build, self._workers, self._python = build, workers, python
        self._launcher = launcher or (sys.executable,)
        omp = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        self._environment = {**omp, **environment}
        self._weights: tuple[str, int] | None = None
        self._processes = list[_Process]()
        self._start()

    def sample(
        self, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        self._start()
        # Round-robin shards of the prompts ordered by length, so that the work is even.
        order = sorted(range(len(prompts)), key=lambda index: _length(prompts[index]))
        report = token_listener()
        shards = [order[first :: self._workers] for first in range(self._workers)]
        busy = dict(zip(self._processes, shards, strict=True))
        try:
            for process, shard in busy.items():
                self._send(process, "sample", [prompts[index] for index in shard], settings)
            while busy:
                ready = wait([process.link for process in busy])
                for process in [process for process in busy if process.link in ready]:
                    reply = self._receive(process)
                    if reply is None:
                        del busy[process]
                    elif isinstance(reply, _SampledTokens):
                        report(reply.number)
                    else:
                        index, result = reply
                        yield busy[process][index], result
        finally:
            if busy:
                self.close()

    @property
    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return [process.child.pid for process in self._processes]

    def load_weights(self, path: str | Path, version: int) -> None:
        """Sample from the weights at `path` from now on; the old ones stay if it raises.

        Raises:
            EngineError: there are no such weights, or a process has died.
        """
        self._start()
        self._call("load_weights", str(path), version)
        self._weights = str(path), version

    def close(self) -> None:
        while self._processes:
            process = self._processes.pop()
            process.link.close()
            process.child.kill()  # it holds no state worth saving
            process.child.wait()
            process.log_file.close()

    def _start(self) -> None:
        if self._processes:
            return
        with self._closed_on_error():
            for _ in range(self._workers):
                self._processes.append(self._launch())
            for process in self._processes:
                self._check_version(self._receive(process))
        self._call("build", self._build)
        if self._weights:
            self._call("load_weights", *self._weights)

    def _launch(self) -> _Process:
        if self._python is None:
            return _launch(self._launcher, sys.path, self._environment)
        return _launch([self._python], [], self._environment)

    def _call(self, method: str, *arguments: object) -> None:
        with self._closed_on_error():  # otherwise only some might have done it
            for process in self._processes:
                self._send(process, method, *arguments)
            for process in self._processes:
                self._receive(process)

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _check_version(self, version: str) -> None:
        if version != __version__:
            found = f"{self._python} has rejuice {version}, this one is {__version__}"
            raise EngineError(found, "install the same version there")

    def _send(self, process: _Process, *request: object) -> None:
        try:
            process.link.send(request)
        except OSError as error:
            raise _process_died(process) from error

    def _receive(self, process: _Process) -> Any:
        try:
            reply = process.link.recv()
        except (OSError, EOFError) as error:
            raise _process_died(process) from error
        if isinstance(reply, RejuiceError):
            raise reply
        return reply


def _process_died(process: _Process) -> EngineError:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.child.wait(
            _EXIT_TIMEOUT_S
        )  # let it exit by itself, so that we see its own exit code
    process.child.kill()
    code = process.child.wait()
    log = process.log_file
    log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
    tail = log.read().decode(errors="replace").strip()
    print(tail, file=sys.stderr, end="\n" if tail else "")
    hint = "its output is above" if tail else "it printed nothing; perhaps memory ran out"
    return EngineError(f"a sampling process died with exit code {code}", hint)


def _length(prompt: Prompt) -> int:
    if prompt.token_ids is not None:
        return len(prompt.token_ids)
    return sum(len(content) for _, content in prompt.messages)


def _launch(python: Sequence[str], path: Sequence[str], environment: Mapping[str, str]) -> _Process:
    ours, theirs = socket.socketpair()
    log_file = tempfile.TemporaryFile()  # noqa: SIM115, it stays open as long as the child runs
    command = [*python, "-c", _START, str(theirs.fileno()), str(os.getpid()), *path]
    try:
        with theirs:
            child = subprocess.Popen(
                command,
                env={**DEFAULT_ENVIRONMENT, **os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                pass_fds=[theirs.fileno()],
            )
    except OSError as error:
        ours.close()
        log_file.close()
        raise EngineError(f"cannot run '{command[0]}'", str(error.strerror)) from error
    return _Process(child, Connection(ours.detach()), log_file)


def main(link: Connection) -> None:
    """Serve requests in the process at the other end of the link."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with_parent, args=(int(sys.argv[2]),), daemon=True).start()
    engine: Any = None
    with link:
        while True:
            try:
                method, *arguments = link.recv()
            except EOFError:
                return
            try:
                if method == "build":
                    engine = arguments[0]()
                else:
                    with listening(TokenReports(link.send)):
                        for item in getattr(engine, method)(*arguments) or ():
                            link.send(item)
                link.send(None)
            except RejuiceError as error:
                link.send(error)


def _exit_with_parent(parent: int) -> None:
    # A closed link would show it too, but not while the engine computes, nor if another child of
    # the parent has inherited the other end.
    if hasattr(os, "pidfd_open"):  # Then the process may also be a fork server's child.
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(parent)], [], [])
    else:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
    os._exit(1)
