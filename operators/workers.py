"""Processes of a run: cores, interrupts, and their end with the process that started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# --- The end of a process with its parent ---------------------------------------------

_POLL_S = 0.5  # where the system cannot tell
_PR_SET_PDEATHSIG = 1


def exit_with_parent(parent: int, *, group: bool = False, grace_s: float = 0.0) -> None:
    """End this process `grace_s` after that one, with its process group if it leads one."""
    threading.Thread(target=_exit_with, args=(parent, group, grace_s), daemon=True).start()


def end_with_parent(parent: int) -> None:
    """Have the kernel, which needs no GIL, kill this fork with the thread that has forked it."""
    if sys.platform != "linux":
        exit_with_parent(parent, group=True)
        return
    numbers = map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0))
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, *numbers):
        raise OSError("this process cannot be made to end with its parent")
    if os.getppid() != parent:
        os._exit(1)


def end_group() -> None:
    """Kill this process, and what it has started, if it leads a process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def _exit_with(parent: int, group: bool, grace_s: float) -> None:
    if hasattr(os, "pidfd_open"):  # Then the process may also be a fork server's child.
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(parent)], [], [])
    else:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
    time.sleep(grace_s)
    if group:
        end_group()
    os._exit(1)


# --- Signals that end a run -----------------------------------------------------------

_AGAIN_S = 0.05


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """The signals of a batch system or a closed terminal end a run as Ctrl-C does.

    Outside the main thread, where Python handles no signals, nothing changes.
    """
    before, hook = {}, sys.unraisablehook
    if threading.current_thread() is threading.main_thread():
        sys.unraisablehook = _interrupt_again
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # Under nohup it is ignored.
                before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupts_deferred(while_true: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """An interrupt waits for the end of what is done inside, but for a second one.

    If `while_true` gives False as it comes, it does not wait either.
    """
    deferred, numbers, usual = list[int](), list[int](), signal.default_int_handler
    if threading.current_thread() is threading.main_thread():
        every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        numbers = [number for number in every if signal.getsignal(number) is usual]

    def defer(number: int, _: object) -> None:
        if deferred or not while_true():
            raise KeyboardInterrupt
        deferred.append(number)

    for number in numbers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number in numbers:
            if signal.getsignal(number) is defer:
                signal.signal(number, usual)
        if deferred:
            raise KeyboardInterrupt


def _interrupt_again(ignored: sys.UnraisableHookArgs) -> None:
    """Repeat Ctrl-C where Python has ignored it: in a destructor, or as an import ended."""
    if ignored.exc_type is KeyboardInterrupt:
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(ignored)


# --- Cores ----------------------------------------------------------------------------


def limit_cores(cores: int) -> None:
    """Let `usable_cores` of this process, and of those that it starts, be no more than these."""
    os.environ["LOKY_MAX_CPU_COUNT"] = str(cores)


def usable_cores() -> int:
    """Cores this process may use, at least 1: its affinity and a container's CPU quota count."""
    from loky import cpu_count

    return int(cpu_count())
