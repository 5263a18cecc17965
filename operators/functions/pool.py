"""The processes in which a user's function runs: one that is late or dies is replaced.

    pool = shared_pool(FunctionSetup(target, ...))
    pool.run([{"response": "12"}], timeout_s=30.0)

Processes are started by command line, not by `multiprocessing`, so `__main__` may be a notebook,
and nothing of this process is in them: a function may load torch, or set signals.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from ..errors import NotReadyError, suggest
from ..workers import usable_cores
from .process import GradedValues, receive, send
from .target import FunctionTarget

STARTUP_SECONDS = 300.0
"""What the import of a function may take, on a busy machine."""
_GRACE_S = 5.0  # by which an async function that blocks its loop is found
_FIRST_CALL = ", its imports included: import at the top of the file, or raise timeout_s"
_MOST_ROWS = 32  # of one message
_MOST_NAMED = 10  # functions of a file, in a message
_MOST_POOLS = 8  # of one process; the one that was not used for longest is closed
_START = """
import sys, types
sys.path.pop(0)  # the working directory: none of its files may shadow a module
package = types.ModuleType("_rejuice")
package.__path__ = [sys.argv[1]]
sys.modules["_rejuice"] = package
from _rejuice.functions.process import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""


class FunctionSetup(NamedTuple):
    """Which function the processes load, and how they call it. As JSON, it names their pool."""

    target: FunctionTarget
    digest: str  # of its code as it was when the operator was made
    kwargs: Mapping[str, Any] = {}
    keys: tuple[str, ...] = ()
    listed: bool = False
    timeout_s: float = 30.0

    def as_json(self) -> str:
        """Return what a process gets."""
        # An editable installation has entries that are no paths.
        path = [os.path.abspath(e) if os.path.exists(e) else e for e in sys.path if e]
        if self.target.file is not None:
            path.insert(0, os.path.dirname(self.target.file))
        fields = {**self._asdict(), **self.target._asdict(), "path": path}
        return json.dumps(fields, sort_keys=True)


class RowOutcome(NamedTuple):
    """What became of a row: its values or the reasons why there are none, and the error's text."""

    values: GradedValues
    error: str = ""
    keys: Sequence[str] = ()  # of the dict that was returned, where it lacks one that is wanted


class FunctionProcess:
    """One process with the function.

    Raises:
        NotReadyError: the function does not import, or was edited since.
    """

    def __init__(self, setup: FunctionSetup) -> None:
        if setup.target.digest() != setup.digest:
            # Its rewards would be kept, and compared, as those of the code from before.
            found = f"{setup.target} or a file that it imports was edited since the run began"
            raise NotReadyError(found, "start it again")
        self._link, theirs = socket.socketpair()
        operators = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        words = [operators, str(theirs.fileno()), str(os.getpid())]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _START, *words],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    # A function may print responses, which may steer a terminal.
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # So that it ends with the processes that it starts.
                )
        except BaseException:
            self._link.close()
            raise
        try:
            self._prepare(setup)
        except BaseException:
            self.close()
            raise

    def _prepare(self, setup: FunctionSetup) -> None:
        where = str(setup.target)
        self._link.settimeout(STARTUP_SECONDS)
        try:
            send(self._link, setup.as_json().encode())
            ready = json.loads(receive(self._link))
        except TimeoutError:
            found = f"{where} is not imported after {STARTUP_SECONDS:g} s"
            raise NotReadyError(found, "do less when it is imported") from None
        except (EOFError, OSError):
            found = f"the process that imports {where} ended"
            right = "import it in a Python of your own to see why"
            raise NotReadyError(found, right) from None
        if "others" in ready:
            raise _no_such_function(setup.target, ready["others"])
        if "failed" in ready:
            raise NotReadyError(f"{where} does not import: {ready['failed']}")
        self.parameters: list[tuple[str, str]] = [(n, kind) for n, kind in ready["parameters"]]
        self.is_async: bool = ready["is_async"]
        self.has_answered = False

    def answers(
        self, rows: Sequence[tuple[int, Mapping[str, Any]]], timeout_s: float
    ) -> Iterator[tuple[int, RowOutcome]]:
        """Yield the answers to rows as they come, in order unless the function is async.

        Raises:
            TimeoutError: the next answer is late. The process is of no further use.
            EOFError, OSError: the process has ended.
        """
        self._link.settimeout(timeout_s)
        send(self._link, pickle.dumps(rows))
        for _ in rows:
            # A reply comes in one piece: its rest is not what takes the time.
            at, values, error, keys = json.loads(receive(self._link))
            self.has_answered = True
            yield at, RowOutcome([(value, reason) for value, reason in values], error, keys)

    def kill(self) -> None:
        """End it, and what it has started, while another thread waits for its answers."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it, and what it has started. Idempotent."""
        self._link.close()
        self.kill()
        self._process.wait()

    def forget(self) -> None:
        """Leave it to the parent of this process, which is a fork."""
        self._link.close()
        self._process.returncode = 0


def _no_such_function(target: FunctionTarget, others: Sequence[str]) -> NotReadyError:
    right = suggest(target.name, others)
    if not right:
        has = ", ".join(others[:_MOST_NAMED]) + (", ..." if len(others) > _MOST_NAMED else "")
        right = f"its functions are: {has}" if others else "it has none"
    return NotReadyError(f"{target.file or target.module} has no function '{target.name}'", right)


class FunctionPool:
    """Up to `size` processes with one function, started when first needed. Thread-safe."""

    def __init__(self, setup: FunctionSetup, size: int) -> None:
        self._setup, self._size = setup, size
        self._idle = list[FunctionProcess]()
        self._started = 0
        self._under_way = set[_Work]()
        self._closed = False
        self._free = threading.Condition()

    def check(self) -> None:
        """Load the function.

        Raises:
            NotReadyError: it does not import.
        """
        self._give_back(self._take())

    def run(self, rows: Sequence[Mapping[str, Any]]) -> list[RowOutcome]:
        """Call the function with the arguments of each row.

        Raises:
            NotReadyError: the function does not import.
            InterruptedError: another thread has called `stop`.
        """
        if _stopping:
            raise InterruptedError(f"the calls of {self._setup.target} were stopped")
        # Several of them for each process, so that none waits long for the last one.
        most = max(1, min(_MOST_ROWS, len(rows) // (2 * self._size)))
        work = _Work(list(enumerate(rows)), most)
        threads = min(self._size, work.count)
        with self._free:
            self._under_way.add(work)
        try:
            if threads <= 1:
                self._do(work)
            else:
                with ThreadPoolExecutor(threads) as executor:
                    self._wait_for([executor.submit(self._do, work) for _ in range(threads)], work)
        finally:
            with self._free:
                self._under_way.discard(work)
        if work.stopped:
            raise InterruptedError(f"the calls of {self._setup.target} were stopped")
        return [work.outcomes[at] for at in range(len(rows))]

    def _wait_for(self, threads: Sequence[Future[None]], work: _Work) -> None:
        try:
            for each in threads:
                each.result()
        except BaseException:  # Ctrl-C, too: the threads would go on until all rows are answered.
            work.stop()
            raise

    def stop(self) -> None:
        """Let the calls of `run` in other threads end at once, with an error."""
        with self._free:
            under_way = list(self._under_way)
        for work in under_way:
            work.stop()

    def close(self) -> None:
        """End all processes that do nothing; the others end with what they do."""
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()

    def forget(self) -> None:
        """Drop the processes, which are those of the parent, in a fork."""
        for process in self._idle:
            process.forget()
        self._idle = []

    def _do(self, work: _Work) -> None:
        process: FunctionProcess | None = None
        try:
            while rows := work.next():
                process = process or self._take()
                if not self._answered(process, rows, work):
                    self._discard(process)
                    process = None
        except BaseException:
            work.stop()
            if process is not None:  # It may be in the middle of a row.
                self._discard(process)
            raise
        if process is not None:
            self._give_back(process)

    def _answered(
        self, process: FunctionProcess, rows: Sequence[tuple[int, Mapping[str, Any]]], work: _Work
    ) -> bool:
        """Take the answers to rows; False: the process is lost, and what remains is put back."""
        timeout_s = self._setup.timeout_s
        left = dict(rows)
        if not work.begin(process):
            return False
        try:
            wait_s = timeout_s + (_GRACE_S if process.is_async else 0.0)
            for at, outcome in process.answers(rows, wait_s):
                work.outcomes[at] = outcome
                del left[at]
            return True
        except TimeoutError:
            more = "" if process.has_answered else _FIRST_CALL
            lost = self._none("timeout", f"it took longer than {timeout_s:g} s{more}")
        except (EOFError, OSError):
            lost = self._none("function_failed", "its process ended (a crash, or out of memory)")
        finally:
            work.end(process)
        if process.is_async and len(left) > 1:
            # Whichever of them has blocked the others is found when each is alone.
            work.put_back([[row] for row in left.items()])
        else:
            first, *others = left.items()
            work.outcomes[first[0]] = lost
            work.put_back([others])
        return False

    def _none(self, reason: str, error: str) -> RowOutcome:
        return RowOutcome([(None, reason)] * (1 + len(self._setup.keys)), error)

    def _take(self) -> FunctionProcess:
        with self._free:
            while True:
                if self._idle:
                    return self._idle.pop()
                if self._started < self._size:
                    self._started += 1
                    break
                self._free.wait()
        try:
            return FunctionProcess(self._setup)
        except BaseException:
            self._count_ended()
            raise

    def _give_back(self, process: FunctionProcess) -> None:
        with self._free:
            if not self._closed:
                self._idle.append(process)
                self._free.notify()
                return
        self._discard(process)

    def _discard(self, process: FunctionProcess) -> None:
        process.close()
        self._count_ended()

    def _count_ended(self) -> None:
        with self._free:
            self._started -= 1
            self._free.notify()


class _Work:
    """Rows that are not answered yet, in batches, and the outcomes of the others. Thread-safe."""

    def __init__(self, rows: Sequence[tuple[int, Mapping[str, Any]]], most: int) -> None:
        self._batches = deque(rows[at : at + most] for at in range(0, len(rows), most))
        self._lock = threading.Lock()
        self._busy = set[FunctionProcess]()
        self.stopped = False
        self.count = len(self._batches)
        self.outcomes: dict[int, RowOutcome] = {}

    def next(self) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Take a batch; empty: there is none."""
        with self._lock:
            return self._batches.popleft() if self._batches else ()

    def put_back(self, batches: Sequence[Sequence[tuple[int, Mapping[str, Any]]]]) -> None:
        """Return rows that were taken and are not answered."""
        with self._lock:
            if not self.stopped:
                self._batches.extendleft(batch for batch in batches if batch)

    def begin(self, process: FunctionProcess) -> bool:
        """Note that a process is about to answer rows; False: it should not."""
        with self._lock:
            if not self.stopped:
                self._busy.add(process)
            return not self.stopped

    def end(self, process: FunctionProcess) -> None:
        """Note that it is not any more: whoever has taken it may close it."""
        with self._lock:
            self._busy.discard(process)

    def stop(self) -> None:
        """Give no further batches, and end those that are under way: something has failed."""
        with self._lock:
            self.stopped = True
            self._batches.clear()
            for process in self._busy:  # No other thread has closed it, so its number is still its.
                process.kill()


# --- The pools of this process --------------------------------------------------------

_pools: dict[str, FunctionPool] = {}
_stopping = False
_lock = threading.Lock()


def shared_pool(setup: FunctionSetup) -> FunctionPool:
    """Return the pool of a function, which lasts until this process ends.

    Raises:
        InterruptedError: all calls are stopped.
    """
    key = setup.as_json()
    with _lock:
        if _stopping:
            raise InterruptedError("calls of functions are stopped")
        pool = _pools.pop(key, None) or FunctionPool(setup, usable_cores())
        _pools[key] = pool
        old = [_pools.pop(each) for each in list(_pools)[:-_MOST_POOLS]]
    for each in old:
        each.close()
    return pool


def stop_pools() -> None:
    """Let the calls of functions in other threads end at once, with an error.

    So do calls that begin later, such as that of a thread in an earlier step, until `close_pools`.
    """
    global _stopping
    with _lock:
        _stopping = True
        pools = list(_pools.values())
    for each in pools:
        each.stop()


def close_pools() -> None:
    """End the processes of all pools; the next use starts others."""
    global _stopping
    with _lock:
        _stopping = False
        pools = list(_pools.values())
        _pools.clear()
    for each in pools:
        each.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # It may have been locked at the fork.
    for each in _pools.values():
        with contextlib.suppress(OSError):
            each.forget()
    _pools.clear()


atexit.register(close_pools)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
