"""The fast tests: which files they are in, and what they may not do.

A test is fast unless it is marked `slow`, or with a mark that says what else it needs. A fast test
starts no process and does not load torch: it fails where it tries to. The verifier's workers are a
thread of this process then, which grades as they do but without their deadlines.
"""

from __future__ import annotations

import json
import pickle
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

NOT_FAST = ("slow", "alone", "browser", "real_model", "rebuild", "vllm")
"""The marks of tests that are not fast; each of them implies `slow`."""
_ALL_SLOW = re.compile(
    rf"^pytestmark = (?:\[[^\]]*|.*)\bmark\.(?:{'|'.join(NOT_FAST)})\b", re.MULTILINE
)
_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
_HEAVY = {"torch", "tensordict", "transformers", "vllm"}
_running: str | None = None


def is_left_out(file: Path, expression: str) -> bool:
    """Whether no test of a file can be in a run with `-m expression`, so that it is not imported."""
    if expression == "not slow":
        return bool(_ALL_SLOW.search(file.read_text("utf-8")))
    return expression == "smoke" and "mark.smoke" not in file.read_text("utf-8")


def mark_slow(items: Sequence[pytest.Item]) -> None:
    """Mark as slow what has a mark that implies it."""
    for item in items:
        marks = [mark for mark in NOT_FAST if item.get_closest_marker(mark)]
        if item.get_closest_marker("smoke") and marks != ["slow"]:
            raise pytest.UsageError(f"{item.nodeid}: mark it slow and smoke, and nothing else")
        if marks:
            item.add_marker("slow")


class NotFastError(Exception):
    """A test does what a fast one may not."""


def watch() -> None:
    """Let what runs within `fast_test` fail where it starts a process or loads torch."""
    sys.addaudithook(_forbid)


def _forbid(event: str, arguments: Sequence[object]) -> None:
    if _running is None:
        return
    if event in _STARTS:
        _no_process()
    # Within them, too: `importlib.import_module("torch")` itself is no event.
    if event == "import" and str(arguments[0]).partition(".")[0] in _HEAVY:
        raise NotFastError(f"{_running} loads {arguments[0]}: mark it slow")


def _no_process(*_: object) -> None:
    raise NotFastError(f"{_running} starts a process: mark it slow")


@contextmanager
def fast_test(name: str) -> Iterator[None]:
    """Hold what runs meanwhile to the rules of a fast test of this name."""
    from rejuice.operators.verifier.pool import Pool

    global _running
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "run", _graded_here)
        # What multiprocessing and loky call, of which no audit event tells.
        patch.setattr("_posixsubprocess.fork_exec", _no_process)
        _running = name
        try:
            yield
        finally:
            _running = None


def _graded_here(pool, pairs, *, timeout, workers, rule="equivalent"):
    """What `Pool.run` gives, by a worker that is a thread."""
    from rejuice.operators.process_pool import receive, send
    from rejuice.operators.verifier.pool import GradingOutcome

    link, lock = _worker()
    outcomes = []
    for pair in pairs:
        with lock:  # Without a deadline: the processor time is that of all threads.
            send(link, pickle.dumps([(0, (*pair, rule, 0))]))
            outcomes.append(GradingOutcome(*json.loads(receive(link))[1:]))
    return outcomes


@cache
def _worker() -> tuple[socket.socket, threading.Lock]:
    from rejuice.operators.verifier.worker import serve

    ours, theirs = socket.socketpair()
    threading.Thread(target=serve, args=(theirs,), name="verifier", daemon=True).start()
    return ours, threading.Lock()
