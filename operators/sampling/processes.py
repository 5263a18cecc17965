"""An engine in processes of its own, such as one single-threaded process per core."""

from __future__ import annotations

import contextlib
import os
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

# By command line, never by `multiprocessing`, so that `__main__` may be a notebook. It says its
# version before it imports what another version may not have.
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
_WATCH = 0.5  # seconds between looks at whether the parent lives
_DYING = 5.0  # seconds that libraries may take to end a process that has failed
_SHOWN = 8192  # bytes, at most, of what a process said before it died
# Threads that spin while they wait take turns from those that work; progress bars say nothing
# where nobody reads them.
_QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


class _Process(NamedTuple):
    child: subprocess.Popen[bytes]
    link: Connection
    said: IO[bytes]  # a file, so that warnings do not run through the progress bar


class EngineProcesses:
    """Shares prompts out among `workers` processes, each with the engine that `build` gives.

    They end with this process, however it ends, and when a call to `sample` is left before its
    end; the next call starts them again. One call at a time.

    What they print goes to a file of their own; its end is shown if they die of themselves.

    Args:
        build: makes the engine; it crosses a process boundary, so it must pickle.
        workers: how many processes.
        threads: with which each computes; None: as many as its libraries choose.
        python: interpreter of another environment, which has this rejuice and what is needed;
            None: this one, with the same `sys.path`.
        environment: further variables for the processes.

    Raises:
        EngineError: a process does not start, or has another rejuice; or what `build` raises.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        workers: int = 1,
        threads: int | None = 1,
        python: str | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._build, self._workers, self._python = build, workers, python
        omp = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        self._environment = {**_QUIET, **omp, **environment}
        self._weights: tuple[str, int] | None = None
        self._processes = list[_Process]()
        self._start()

    def sample(
        self, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        self._start()
        # Dealt like cards, by length, so that each has as much to do.
        order = sorted(range(len(prompts)), key=lambda index: _length(prompts[index]))
        hands = [order[first :: self._workers] for first in range(self._workers)]
        busy = dict(zip(self._processes, hands, strict=True))
        try:
            for process, hand in busy.items():
                self._send(process, "sample", [prompts[index] for index in hand], settings)
            while busy:
                ready = wait([process.link for process in busy])
                for process in [process for process in busy if process.link in ready]:
                    reply = self._receive(process)
                    if reply is None:
                        del busy[process]
                    else:
                        index, result = reply
                        yield busy[process][index], result
        finally:
            if busy:
                self.close()

    @property
    def pids(self) -> list[int]:
        """Of the processes that run."""
        return [process.child.pid for process in self._processes]

    def load_weights(self, path: str | Path, version: int) -> None:
        """Sample from the weights at `path` from now on; from those before where it raises.

        Raises:
            EngineError: there are none, or a process has died.
        """
        self._start()
        self._call("load_weights", str(path), version)
        self._weights = str(path), version

    def close(self) -> None:
        while self._processes:
            process = self._processes.pop()
            process.link.close()
            process.child.kill()  # it has nothing to lose
            process.child.wait()
            process.said.close()

    def _start(self) -> None:
        if self._processes:
            return
        with self._closed_on_error():
            for _ in range(self._workers):
                self._processes.append(_launch(self._python, self._environment))
            for process in self._processes:
                self._check_version(self._receive(process))
        self._call("build", self._build)
        if self._weights:
            self._call("load_weights", *self._weights)

    def _call(self, method: str, *arguments: object) -> None:
        with self._closed_on_error():  # some may have done it and others not
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
            raise EngineError(found, "install the same one there")

    def _send(self, process: _Process, *request: object) -> None:
        try:
            process.link.send(request)
        except OSError as error:
            raise _died(process) from error

    def _receive(self, process: _Process) -> Any:
        try:
            reply = process.link.recv()
        except (OSError, EOFError) as error:
            raise _died(process) from error
        if isinstance(reply, RejuiceError):
            raise reply
        return reply


def _died(process: _Process) -> EngineError:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.child.wait(_DYING)  # by itself, so that the code is its own
    process.child.kill()
    code = process.child.wait()
    process.said.seek(max(0, process.said.seek(0, os.SEEK_END) - _SHOWN))
    said = process.said.read().decode(errors="replace").strip()
    print(said, file=sys.stderr, end="\n" if said else "")
    where = "what it said is above" if said else "it said nothing; perhaps memory ran out"
    return EngineError(f"a sampling process died with exit code {code}", where)


def _length(prompt: Prompt) -> int:
    return sum(len(content) for _, content in prompt.messages)


def _launch(python: str | None, environment: Mapping[str, str]) -> _Process:
    ours, theirs = socket.socketpair()
    said = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the child
    path = [] if python else sys.path
    words = [python or sys.executable, "-c", _START, str(theirs.fileno()), str(os.getpid()), *path]
    try:
        with theirs:
            child = subprocess.Popen(
                words,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[theirs.fileno()],
            )
    except OSError as error:
        ours.close()
        said.close()
        raise EngineError(f"cannot run '{words[0]}'", str(error.strerror)) from error
    return _Process(child, Connection(ours.detach()), said)


def usable_cores() -> int:
    """Cores that this process may use: affinity and limits of a container count."""
    from loky import cpu_count

    return int(cpu_count())


def main(link: Connection) -> None:
    """Be the process at the other end of the link."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
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
                    for item in getattr(engine, method)(*arguments) or ():
                        link.send(item)
                link.send(None)
            except RejuiceError as error:
                link.send(error)


def _end_with(parent: int) -> None:
    # A closed link would tell as well, but not while the engine computes, nor if another child
    # of the parent has inherited the other end.
    while os.getppid() == parent:
        time.sleep(_WATCH)
    os._exit(1)
