"""An engine in separate processes, such as one single-threaded process per core."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from .._version import __version__
from ..errors import EngineError, RejuiceError
from ..logs import logger
from ..process_pool import CommandProcess, python_path, receive, send
from ..servers.concurrency import capacity_for
from ..workers import exit_with_parent
from .protocol import Engine, Failure, Group, Prompt, Settings, listening, token_listener

# --- A process, as its parent sees it -------------------------------------------------

T = TypeVar("T")
_log = logger(__name__)

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


class _ProcessDiedError(EngineError):
    """A process has ended, which it never does by itself."""


class _Process(CommandProcess):
    def __init__(
        self, command: Sequence[str], path: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.capacity, self._given = 0, 0
        self.prompts = dict[int, tuple[int, Prompt]]()
        # A file, so that its output does not disturb our progress bar.
        self._log_file = log = tempfile.TemporaryFile()  # noqa: SIM115, it stays open
        env = {**DEFAULT_ENVIRONMENT, **os.environ, **environment}
        try:
            super().__init__(
                "sampling.processes", path=path, command=command, env=env, stdout=log, stderr=log
            )
        except OSError as error:
            raise EngineError(f"cannot run '{command[0]}'", str(error.strerror)) from error
        self.link.settimeout(None)

    @property
    def free(self) -> int:
        return self.capacity - len(self.prompts)

    def begin(self, settings: Settings) -> None:
        self._given = 0  # It counts the prompts that it gets.
        self.send(("sample", settings))

    def give(self, numbered: tuple[int, Prompt]) -> Prompt:
        self.prompts[self._given] = numbered
        self._given += 1
        return numbered[1]

    def send(self, message: object) -> None:
        try:
            send(self.link, pickle.dumps(message))
        except OSError as error:
            raise self._died() from error

    def receive(self) -> Any:
        try:
            reply = pickle.loads(receive(self.link))
        except (OSError, EOFError) as error:
            raise self._died() from error
        if isinstance(reply, RejuiceError):
            raise reply
        return reply

    def close(self) -> None:
        super().close()
        self._log_file.close()

    def _died(self) -> _ProcessDiedError:
        with contextlib.suppress(subprocess.TimeoutExpired):  # So that we see its own exit code.
            self.process.wait(_EXIT_TIMEOUT_S)
        self.process.kill()
        code, log = self.process.wait(), self._log_file
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        tail = log.read().decode(errors="replace").strip()
        print(tail, file=sys.stderr, end="\n" if tail else "")
        hint = "its output is above" if tail else "it printed nothing; perhaps memory ran out"
        return _ProcessDiedError(f"a sampling process died with exit code {code}", hint)


# --- All of them ----------------------------------------------------------------------


class EngineProcesses:
    """Shares prompts out among `workers` processes, each with the engine that `build` returns.

    A process gets more prompts as it finishes some. If one dies, whether it has prompts or not, the
    others go on and sample its prompts, with a line in the log; it is started again for the first
    call after `close`. The error of the last one ends the call, after the end of what it printed.

    The processes end with this process, however it ends, and when the iteration over `sample` is
    left early; the next call starts them again. One call at a time.

    Args:
        build: is pickled.
        threads: in each; None: its libraries choose.
        python: interpreter of another environment, with the same version of rejuice; None: the
            current one, with the same `sys.path`.
        launcher: command that does what the current interpreter does.
        own_environment: further environment variables, for each process.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        workers: int = 1,
        threads: int | None = 1,
        python: str | None = None,
        launcher: Sequence[str] | None = None,
        own_environment: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._build = build
        self._python = [python] if python else launcher or [sys.executable]
        self._path = [] if python else python_path()
        omp = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        own = own_environment or [{}] * workers
        self._environments = [{**omp, **each} for each in own]
        self._weights: tuple[str, int] | None = None
        self._processes = list[_Process]()
        self._lost = list[tuple[int, Prompt]]()  # prompts of processes that have died
        self._start()

    def sample(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        self._start()
        with self._closed_on_error():  # Also where the iteration is left early.
            yield from self._sample(enumerate(prompts), settings)

    def capacity(self, settings: Settings) -> int:
        self._start()
        self._ask_capacities(settings)
        return sum(process.capacity for process in self._processes)

    @property
    def pids(self) -> list[int]:
        return [process.process.pid for process in self._processes]

    def load_weights(self, path: str | Path, version: int) -> None:
        """Sample from the weights at `path` from now on; the old ones stay if it raises."""
        self._start()
        self._call("load_weights", str(path), version)
        self._weights = str(path), version

    def close(self) -> None:
        while self._processes:
            self._processes.pop().close()

    def _start(self) -> None:
        if self._processes:
            return
        with self._closed_on_error():
            for environment in self._environments:
                self._processes.append(_Process(self._python, self._path, environment))
            for process in self._processes:
                if (version := process.receive()) != __version__:
                    found = f"{self._python[0]} has rejuice {version}, this one is {__version__}"
                    raise EngineError(found, "install the same version there")
            for process in self._processes:
                process.send(("build", self._build))
            for process in self._processes:
                process.receive()
        if self._weights:
            self._call("load_weights", *self._weights)

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _call(self, method: str, *arguments: object) -> dict[_Process, Any]:
        with self._closed_on_error():  # otherwise only some might have done it
            dict(self._each(lambda process: process.send((method, *arguments))))
            return dict(self._each(_Process.receive))

    def _ask_capacities(self, settings: Settings) -> None:
        for process, own in self._call("capacity", settings).items():
            process.capacity = capacity_for(own)  # Some wait there, so that it waits for none.

    def _each(
        self, work: Callable[[_Process], T], processes: Sequence[_Process] | None = None
    ) -> Iterator[tuple[_Process, T]]:
        """What `work` returns for each process; those that have died are lost, not the last."""
        for process in list(self._processes if processes is None else processes):
            try:
                found = work(process)
            except _ProcessDiedError as error:
                self._lose(process, error)
            else:
                yield process, found

    def _lose(self, process: _Process, error: _ProcessDiedError) -> None:
        if len(self._processes) == 1:
            raise error
        self._processes.remove(process)
        process.close()
        self._lost += process.prompts.values()
        left, count = len(self._processes), len(process.prompts)
        its = f", with its {count} prompts" if count else ""
        _log.warning("%s: %d of %d go on%s", error, left, left + 1, its)

    def _sample(
        self, prompts: Iterator[tuple[int, Prompt]], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        self._ask_capacities(settings)
        self._lost.clear()
        dict(self._each(lambda process: process.begin(settings)))
        is_last, report = False, token_listener()
        while not is_last or any(process.prompts for process in self._processes):
            if not is_last:
                is_last = self._hand_out(prompts)
            busy = [process for process in self._processes if process.prompts]
            there = wait([process.link for process in busy]) if busy else []
            ready = [process for process in busy if process.link in there]
            for process, reply in self._each(_Process.receive, ready):
                if isinstance(reply, int):  # of tokens, since the last such message
                    report(reply)
                else:
                    place, result = reply
                    yield process.prompts.pop(place)[0], result
        try:
            dict(self._each(_Process.receive))  # The end of the call.
        except _ProcessDiedError as error:  # The last one.
            if self._lost:
                raise
            _log.warning("%s: all prompts were sampled before", error)
            self.close()  # All are started again for the next call.
        if self._lost:
            yield from self._sample(iter(list(self._lost)), settings)

    def _hand_out(self, prompts: Iterator[tuple[int, Prompt]]) -> bool:
        """Send the next prompts, first those of processes that have died, each to the process with
        the fewest, in order of length, so that the work is even. Whether they were the last
        ones."""
        free = sum(process.free for process in self._processes)
        taken, self._lost = self._lost[:free], self._lost[free:]
        taken += islice(prompts, free - len(taken))
        is_last = len(taken) < free
        shares: dict[_Process, list[Prompt]] = {each: [] for each in self._processes if is_last}
        for numbered in sorted(taken, key=lambda each: _length(each[1])):
            open_ones = [process for process in self._processes if process.free]
            process = min(open_ones, key=lambda each: len(each.prompts))
            shares.setdefault(process, []).append(process.give(numbered))
        dict(self._each(lambda process: process.send((shares[process], is_last)), list(shares)))
        return is_last


def _length(prompt: Prompt) -> int:
    if prompt.token_ids is not None:
        return len(prompt.token_ids)
    return sum(len(content) for _, content in prompt.messages)


# --- In a process ---------------------------------------------------------------------
# From the parent come calls: the name of a method and its arguments. For `sample`, the argument is
# the settings, and lists of prompts follow while it runs, each with whether it is the last one. To
# the parent go results as they come, and about once a second how many tokens were sampled since;
# then None, or the error that ended the call.

_REPORT_S = 1.0
_CLOSED = object()


def main(descriptor: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # For assisted generation, which no engine uses, transformers would import scikit-learn, and
    # with it scipy and pandas: a quarter of what a process takes to start.
    sys.modules.setdefault("sklearn", None)  # type: ignore[arg-type]
    exit_with_parent(parent)
    inbox: SimpleQueue[Any] = SimpleQueue()
    link = socket.socket(fileno=descriptor)
    _tell(link, __version__)
    threading.Thread(target=_read, args=(link, inbox), daemon=True).start()
    engine: Any = None
    with link:
        while (call := inbox.get()) is not _CLOSED:
            method, *arguments = call
            try:
                if method == "build":
                    engine = arguments[0]()
                    _tell(link, None)
                elif method == "sample":
                    _sample(engine, arguments[0], inbox, link)
                    _tell(link, None)
                else:
                    _tell(link, getattr(engine, method)(*arguments))
            except RejuiceError as error:
                _tell(link, error)


def _tell(link: socket.socket, message: object) -> None:
    send(link, pickle.dumps(message))


def _read(link: socket.socket, inbox: SimpleQueue[Any]) -> None:
    """Read all that comes at once: a parent that waits to send would not read results."""
    try:
        while True:
            inbox.put(pickle.loads(receive(link)))
    except (EOFError, OSError):
        inbox.put(_CLOSED)
    except Exception:  # What cannot be unpickled here, such as for want of a module.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _sample(
    engine: Engine, settings: Settings, inbox: SimpleQueue[Any], link: socket.socket
) -> None:
    unfinished, tokens, last_report = 0, 0, time.monotonic()

    def prompts() -> Iterator[Prompt]:
        nonlocal unfinished
        is_last = False
        while not is_last and (more := inbox.get()) is not _CLOSED:
            share, is_last = more
            for prompt in share:
                unfinished += 1
                yield prompt

    def report(sampled: int, after_s: float = _REPORT_S) -> None:
        nonlocal tokens, last_report
        tokens += sampled
        if tokens and time.monotonic() - last_report >= after_s:
            _tell(link, tokens)
            tokens, last_report = 0, time.monotonic()

    with listening(report):
        for item in engine.sample(prompts(), settings):
            unfinished -= 1
            if not unfinished:  # After its last result, nobody listens to an idle process.
                report(0, 0.0)
            _tell(link, item)
