"""An engine in separate processes, such as one single-threaded process per core."""

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
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import IO, Any, Generic, NamedTuple, TypeVar

from .._version import __version__
from ..errors import EngineError, RejuiceError
from ..logs import logger
from ..servers.concurrency import capacity_for
from ..workers import exit_with_parent
from .protocol import Engine, Failure, Group, Prompt, Settings, listening, token_listener

# --- Which process samples which prompts ----------------------------------------------

W = TypeVar("W", bound=Hashable)


class OnDemand(Generic[W]):
    """Which worker has which prompts.

    The next prompt goes to the worker with the fewest unfinished ones, as long as it has fewer than
    its capacity. Prompts that are handed out at a time are so in order of length, so that the work
    is even.

    Args:
        prompts: with their numbers.
        capacities: of each worker, how many unfinished prompts it may have.

    Attributes:
        ended: whether there are no more to hand out.
        lost: prompts of workers that were lost, as far as no other one has got them.
    """

    def __init__(self, prompts: Iterable[tuple[int, Prompt]], capacities: Mapping[W, int]) -> None:
        self._prompts, self._capacities = iter(prompts), dict(capacities)
        self.ended, self.lost = False, list[tuple[int, Prompt]]()
        self._unfinished: dict[W, dict[int, tuple[int, Prompt]]] = {w: {} for w in capacities}
        self._given = dict.fromkeys(capacities, 0)  # workers count the prompts that they get

    @property
    def busy(self) -> list[W]:
        """Workers with unfinished prompts."""
        return [worker for worker, unfinished in self._unfinished.items() if unfinished]

    def hand_out(self) -> dict[W, list[Prompt]]:
        """The prompts to send now, by worker; those of workers that were lost come first.

        The last time, each worker has a share, if an empty one.
        """
        if self.ended:
            return {}
        free = sum(self._free(worker) for worker in self._capacities)
        taken, self.lost = self.lost[:free], self.lost[free:]
        taken += islice(self._prompts, free - len(taken))
        self.ended = len(taken) < free
        shares: dict[W, list[Prompt]] = {each: [] for each in self._capacities if self.ended}
        for number, prompt in sorted(taken, key=lambda each: _length(each[1])):
            open_ones = [worker for worker in self._capacities if self._free(worker)]
            worker = min(open_ones, key=lambda each: len(self._unfinished[each]))
            self._unfinished[worker][self._given[worker]] = number, prompt
            self._given[worker] += 1
            shares.setdefault(worker, []).append(prompt)
        return shares

    def finish(self, worker: W, place: int) -> int:
        """Note a result.

        Returns:
            The index of the prompt.
        """
        number, _ = self._unfinished[worker].pop(place)
        return number

    def lose(self, worker: W) -> int:
        """Take a worker out; its unfinished prompts, so many, are `lost`."""
        lost = self._unfinished.pop(worker)
        del self._capacities[worker]
        self.lost += lost.values()
        return len(lost)

    def _free(self, worker: W) -> int:
        return self._capacities[worker] - len(self._unfinished[worker])


def _length(prompt: Prompt) -> int:
    if prompt.token_ids is not None:
        return len(prompt.token_ids)
    return sum(len(content) for _, content in prompt.messages)


# --- The processes, as their parent sees them -----------------------------------------

T = TypeVar("T")
_log = logger(__name__)

# Started by command line, not by `multiprocessing`, so that `__main__` may be a notebook. The
# process sends its version before it imports modules that another version may not have.
_START = """
import sys
sys.path[:] = sys.argv[3:] or sys.path
from multiprocessing.connection import Connection
from rejuice.operators import __version__
link = Connection(int(sys.argv[1]))
link.send(__version__)
from rejuice.operators.sampling.processes import main
main(link)
"""
_EXIT_TIMEOUT_S = 5.0  # seconds that a failed process may take to exit
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


class EngineProcesses:
    """Shares prompts out among `workers` processes, each with the engine that `build` returns.

    A process gets more prompts as it finishes some. If one dies, whether it has prompts or not, the
    others go on and sample its prompts, with a line in the log; it is started again for the first
    call after `close`. The error of the last one ends the call.

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
        own_environment: and further ones for each of them.

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
        own_environment: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._build, self._workers, self._python = build, workers, python
        self._launcher = launcher or (sys.executable,)
        omp = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        own = own_environment or [{}] * workers
        self._environments = [{**omp, **environment, **each} for each in own]
        self._weights: tuple[str, int] | None = None
        self._processes = list[_Process]()
        self._start()

    def sample(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        self._start()
        with self._closed_on_error():  # Also where the iteration is left early.
            yield from self._sample(enumerate(prompts), settings)

    def capacity(self, settings: Settings) -> int:
        self._start()
        return sum(self._capacities(settings).values())

    def _capacities(self, settings: Settings) -> dict[_Process, int]:
        """Prompts of each process: some wait there, so that its engine does not wait for us."""
        own = self._call("capacity", settings)
        return {process: capacity_for(capacity) for process, capacity in own.items()}

    def _sample(
        self, prompts: Iterable[tuple[int, Prompt]], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        capacities = self._capacities(settings)
        self._each(lambda process: self._send(process, ("sample", settings)))
        work = OnDemand(prompts, {each: capacities[each] for each in self._processes})
        self._hand_out(work)
        while work.busy:
            yield from self._results(work)
            self._hand_out(work)
        try:
            self._each(self._receive)  # The end of the call.
        except _ProcessDiedError as error:  # The last one.
            if work.lost:
                raise
            _log.warning("%s: all prompts were sampled before", error)
            self.close()  # All are started again for the next call.
        if work.lost:
            yield from self._sample(work.lost, settings)

    def _hand_out(self, work: OnDemand[_Process]) -> None:
        while shares := work.hand_out():  # Again if a process was lost.
            for process, share in shares.items():
                try:
                    self._send(process, (share, work.ended))
                except _ProcessDiedError as error:
                    self._lose(process, work, error)

    def _results(self, work: OnDemand[_Process]) -> Iterator[tuple[int, Group | Failure]]:
        """Yield what is there of results, after waiting for at least one message."""
        report = token_listener()
        ready = wait([process.link for process in work.busy])
        for process in [process for process in work.busy if process.link in ready]:
            try:
                reply = self._receive(process)
            except _ProcessDiedError as error:
                self._lose(process, work, error)
                continue
            if isinstance(reply, SampledTokens):
                report(reply.number)
            else:
                place, result = reply
                yield work.finish(process, place), result

    def _lose(self, process: _Process, work: OnDemand[_Process], error: _ProcessDiedError) -> None:
        """Go on without a process.

        Raises:
            EngineError: it was the last one.
        """
        self._drop(process, error, work.lose(process))

    def _drop(self, process: _Process, error: _ProcessDiedError, prompts: int = 0) -> None:
        """Go on without a process, which had so many prompts.

        Raises:
            EngineError: it was the last one.
        """
        if len(self._processes) == 1:
            raise error
        self._processes.remove(process)
        _end(process)
        left, its = len(self._processes), f", with its {prompts} prompts" if prompts else ""
        _log.warning("%s: %d of %d go on%s", error, left, left + 1, its)

    @property
    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return [process.child.pid for process in self._processes]

    def load_weights(self, path: str | Path, version: int) -> None:
        """Sample from the weights at `path` from now on; the old ones stay if it raises.

        Raises:
            EngineError: there are no such weights, or all processes have died.
        """
        self._start()
        self._call("load_weights", str(path), version)
        self._weights = str(path), version

    def close(self) -> None:
        while self._processes:
            _end(self._processes.pop())

    def _start(self) -> None:
        if self._processes:
            return
        with self._closed_on_error():
            for environment in self._environments:
                self._processes.append(self._launch(environment))
            for process in self._processes:
                self._check_version(self._receive(process))
            for process in self._processes:
                self._send(process, ("build", self._build))
            for process in self._processes:
                self._receive(process)
        if self._weights:
            self._call("load_weights", *self._weights)

    def _launch(self, environment: Mapping[str, str]) -> _Process:
        if self._python is None:
            return _launch(self._launcher, sys.path, environment)
        return _launch([self._python], [], environment)

    def _call(self, method: str, *arguments: object) -> dict[_Process, Any]:
        """Return what the method returns in each process that lives."""
        with self._closed_on_error():  # otherwise only some might have done it
            self._each(lambda process: self._send(process, (method, *arguments)))
            return self._each(self._receive)

    def _each(self, work: Callable[[_Process], T]) -> dict[_Process, T]:
        """Return what `work` returns for each process; those that have died are lost.

        Raises:
            EngineError: all have died.
        """
        found = dict[_Process, T]()
        for process in list(self._processes):
            try:
                found[process] = work(process)
            except _ProcessDiedError as error:
                self._drop(process, error)
        return found

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

    def _send(self, process: _Process, message: object) -> None:
        try:
            process.link.send(message)
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


class _ProcessDiedError(EngineError):
    """A process has ended, which it never does by itself."""


def _end(process: _Process) -> None:
    process.link.close()
    process.child.kill()  # it holds no state worth saving
    process.child.wait()
    process.log_file.close()


def _process_died(process: _Process) -> _ProcessDiedError:
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
    return _ProcessDiedError(f"a sampling process died with exit code {code}", hint)


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


# --- In a process ---------------------------------------------------------------------
# From the parent come calls: the name of a method and its arguments. For `sample`, the argument is
# the settings, and lists of prompts follow while it runs, each with whether it is the last one. To
# the parent go results as they come, then None; or the error that ended the call.

_REPORT_S = 1.0  # seconds between two reports of sampled tokens
_CLOSED = object()


class SampledTokens(NamedTuple):
    """What a process sends while its groups are under way: tokens since it last did."""

    number: int


class TokenReports:
    """Adds up sampled tokens, and sends their number about once a second.

    Args:
        send: called with the message.
    """

    def __init__(self, send: Callable[[SampledTokens], object]) -> None:
        self._send, self._number, self._last = send, 0, 0.0

    def __call__(self, tokens: int) -> None:
        """Add tokens that have been sampled."""
        self._number += tokens
        if time.monotonic() - self._last >= _REPORT_S:
            self.flush()

    def flush(self) -> None:
        """Send what was added since the last message."""
        if self._number:
            self._send(SampledTokens(self._number))
            self._number, self._last = 0, time.monotonic()


def main(link: Connection) -> None:
    """Serve calls in the process at the other end of the link."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # For assisted generation, which no engine uses, transformers would import scikit-learn, and
    # with it scipy and pandas: a quarter of what a process takes to start.
    sys.modules.setdefault("sklearn", None)  # type: ignore[arg-type]
    exit_with_parent(int(sys.argv[2]))
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read, args=(link, inbox), daemon=True).start()
    engine: Any = None
    with link:
        while (call := inbox.get()) is not _CLOSED:
            if isinstance(call, Exception):
                raise call
            method, *arguments = call
            try:
                if method == "build":
                    engine = arguments[0]()
                    link.send(None)
                elif method == "sample":
                    _sample(engine, arguments[0], inbox, link)
                    link.send(None)
                else:
                    link.send(getattr(engine, method)(*arguments))
            except RejuiceError as error:
                link.send(error)


def _read(link: Connection, inbox: SimpleQueue[Any]) -> None:
    """Read all that comes at once: a parent that waits to send would not read results."""
    try:
        while True:
            inbox.put(link.recv())
    except (EOFError, OSError):
        inbox.put(_CLOSED)
    except Exception as error:  # What cannot be unpickled here, such as for want of a module.
        inbox.put(error)


def _sample(engine: Engine, settings: Settings, inbox: SimpleQueue[Any], link: Connection) -> None:
    unfinished = 0

    def prompts() -> Iterator[Prompt]:
        nonlocal unfinished
        last = False
        while not last:
            more = inbox.get()
            if isinstance(more, Exception):
                raise more
            if more is _CLOSED:
                return
            share, last = more
            for prompt in share:
                unfinished += 1
                yield prompt

    reports = TokenReports(link.send)
    with listening(reports):
        for item in engine.sample(prompts(), settings):
            unfinished -= 1
            if not unfinished:  # After its last result, nobody listens to an idle process.
                reports.flush()
            link.send(item)
