"""The processes in which a user's function runs.

    pool = shared_pool(FunctionSetup(target, ...))
    pool.run([{"response": "12"}])

Nothing of this process is in them: a function may load torch, or set signals.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from ..errors import NotReadyError, suggest
from ..process_pool import STARTUP_SECONDS, CommandProcess, ProcessPool, python_path, receive
from ..workers import usable_cores
from .process import RowOutcome
from .target import FunctionSignature, FunctionTarget

_FIRST_CALL = ", its imports included: import at the top of the file, or raise timeout_s"
_MOST_ROWS = 32  # of one message
_MOST_NAMED = 10  # functions of a file, in a message
_MOST_POOLS = 8  # of one process; the one that was not used for longest is closed


class FunctionSetup(NamedTuple):
    """Which function the processes load, and how they call it. As JSON, it names their pool."""

    target: FunctionTarget
    digest: str  # of its code as it was when the operator was made
    kwargs: Mapping[str, Any] = {}
    keys: tuple[str, ...] = ()
    listed: bool = False
    timeout_s: float = 30.0

    def as_json(self) -> str:
        """What a process gets."""
        path = python_path()
        if self.target.file is not None:
            path.insert(0, os.path.dirname(self.target.file))
        fields = {**self._asdict(), **self.target._asdict(), "path": path}
        return json.dumps(fields, sort_keys=True)


class FunctionProcess(CommandProcess):
    """One process with the function; a NotReadyError if that was edited since."""

    def __init__(self, setup: FunctionSetup) -> None:
        if setup.target.digest() != setup.digest:
            # Its rewards would be kept, and compared, as those of the code from before.
            found = f"{setup.target} or a file that it imports was edited since the run began"
            raise NotReadyError(found, "start it again")
        # A function may print responses, which may steer a terminal.
        super().__init__("functions.process", setup.as_json().encode(), stderr=subprocess.DEVNULL)
        self._target = setup.target
        self.is_ready = self.has_answered = False

    def prepare(self) -> None:
        where = str(self._target)
        try:
            ready = json.loads(receive(self.link))
        except TimeoutError:
            found = f"{where} is not imported after {STARTUP_SECONDS:g} s"
            raise NotReadyError(found, "do less when it is imported") from None
        except (EOFError, OSError):
            found = f"the process that imports {where} ended"
            right = "import it in a Python of your own to see why"
            raise NotReadyError(found, right) from None
        if "others" in ready:
            raise _no_such_function(self._target, ready["others"])
        if "failed" in ready:
            raise NotReadyError(f"{where} does not import: {ready['failed']}")
        required, optional, takes_any = ready["parameters"]
        self.signature = FunctionSignature(tuple(required), tuple(optional), takes_any)
        self.is_async, self.is_ready = ready["is_async"], True


def _no_such_function(target: FunctionTarget, others: Sequence[str]) -> NotReadyError:
    right = suggest(target.name, others)
    if not right:
        has = ", ".join(others[:_MOST_NAMED]) + (", ..." if len(others) > _MOST_NAMED else "")
        right = f"its functions are: {has}" if others else "it has none"
    return NotReadyError(f"{target.file or target.module} has no function '{target.name}'", right)


def signature_of(target: FunctionTarget) -> FunctionSignature:
    """The parameters of a function.

    Only where its source does not say, as of an object that is made when the file runs, a process
    imports it; a NotReadyError, if that fails.
    """
    found = target.signature()
    if found is None:
        with closing(FunctionProcess(FunctionSetup(target, target.digest()))) as process:
            process.prepare()
        found = process.signature
    return found


class FunctionPool(ProcessPool[FunctionProcess, RowOutcome]):
    """Up to `size` processes with one function, started when first needed. Thread-safe."""

    def __init__(self, setup: FunctionSetup, size: int) -> None:
        super().__init__(f"the calls of {setup.target}", size)
        self._setup = setup

    def check(self) -> None:
        """Load the function; a NotReadyError if it does not import."""
        process = self.take()
        assert process is not None  # It waits for one.
        try:
            if not process.is_ready:
                process.prepare()
        except BaseException:
            self.discard(process)
            raise
        self.give_back(process)

    def run(self, rows: Sequence[Mapping[str, Any]]) -> list[RowOutcome]:
        """Call the function with the arguments of each row."""
        # Several of them for each process, so that none waits long for the last one.
        most = max(1, min(_MOST_ROWS, len(rows) // (2 * self.size)))
        return self.ask(rows, seconds=self._setup.timeout_s, workers=self.size, most=most)

    def start(self) -> FunctionProcess:
        return FunctionProcess(self._setup)

    def answer(self, process: FunctionProcess, *fields: Any) -> RowOutcome:
        process.has_answered = True
        return RowOutcome(*fields)

    def lost(self, process: FunctionProcess, *, late: bool) -> RowOutcome:
        reason, error = "function_failed", "its process ended (a crash, or out of memory)"
        if late:
            more = "" if process.has_answered else _FIRST_CALL
            reason, error = "timeout", f"it took longer than {self._setup.timeout_s:g} s{more}"
        return RowOutcome.missing(reason, error, self._setup.keys)


# --- The pools of this process --------------------------------------------------------

_pools: dict[str, FunctionPool] = {}
_stopping = False
_lock = threading.Lock()


def _forget() -> None:
    """In a fork, whose other threads are gone: one of them may have had the lock."""
    global _lock, _stopping
    _lock, _stopping = threading.Lock(), False
    _pools.clear()


os.register_at_fork(after_in_child=_forget)


def shared_pool(setup: FunctionSetup) -> FunctionPool:
    """The pool of a function, which lasts until this process ends."""
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
