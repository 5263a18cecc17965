"""Follows one program of the fork server from its start to its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from typing import Literal, NamedTuple

from .server import ENDED, FAILED, READY

STARTUP_SECONDS = 120.0  # for the process of a program, on a busy machine; usually milliseconds
_KILL_SECONDS = 30.0  # that the fork server may take to kill a process and reap it
_READ = 1 << 16  # bytes at a time


class SandboxError(RuntimeError):
    """The sandbox itself has failed: nothing is known about the program."""


class SandboxLimits(NamedTuple):
    """What a program may use.

    Attributes:
        seconds: of wall time. Starting the process is not counted.
        memory: bytes of address space, beyond what Python itself has.
        output: bytes of stdout, and as many of stderr.
    """

    seconds: float = 5.0
    memory: int = 512 << 20
    output: int = 1 << 16


class Execution(NamedTuple):
    """How a program has ended, and what it has printed.

    Attributes:
        status: `error`: an exception or another exit code than 0; the others name the limit that
            ended it. A program can give itself any status, by its exit code or what it prints.
        stdout: UTF-8, with U+FFFD for what is not.
        stderr: likewise; at an exception, the end of the traceback.
        exit_code: minus the signal where one ended it; None: killed for its time or output.
    """

    status: Literal["ok", "error", "timeout", "memory", "output"]
    stdout: str
    stderr: str
    exit_code: int | None


class Stop:
    """Ends a program from another thread, also one that has not begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._is_wanted = False

    def ends(self, link: socket.socket) -> None:
        """Take this as the link of the program to end."""
        with self._lock:
            self._link = link
        if self._is_wanted:
            self()

    def __call__(self) -> None:
        """End the program: what `Sandbox.run` gives then has no meaning."""
        with self._lock, contextlib.suppress(OSError):  # it has ended already
            self._is_wanted = True
            if self._link is not None:
                self._link.shutdown(socket.SHUT_WR)


class RunningProgram:
    """Follows one program until it has ended.

    Args:
        link: to the fork server and, until it is confined, the process.
        streams: descriptors from which its stdout and stderr are read.
        limits: what it may use.
    """

    def __init__(self, link: socket.socket, streams: list[int], limits: SandboxLimits) -> None:
        self._link, self._limits = link, limits
        self._printed = {stream: bytearray() for stream in streams}
        self._killed_for: Literal["timeout", "output"] | None = None
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)

    def wait(self) -> Execution:
        """How it has ended."""
        first = self._receive(time.monotonic() + STARTUP_SECONDS)
        if first != READY:
            if not first:
                raise SandboxError("the fork server has ended before the program ran")
            reason = first.removeprefix(FAILED) if first.startswith(FAILED) else b"its process died"
            raise SandboxError(
                f"the program could not be confined: {reason.decode(errors='replace')}"
            )
        for stream in self._printed:
            os.set_blocking(stream, False)
            self._poll.register(stream, select.POLLIN)
        ended = self._follow(time.monotonic() + self._limits.seconds)
        if not ended:
            raise SandboxError("the fork server has ended while the program ran")
        for stream in self._printed:
            while self._read(stream):
                pass
        return self._execution(*ENDED.unpack(ended))

    def _follow(self, deadline: float) -> bytes:
        """Read what it prints until it ends; return the message that says so, empty if none."""
        while True:
            left = deadline - time.monotonic()
            ready = [stream for stream, _ in self._poll.poll(max(0.0, left) * 1000)]
            if self._link.fileno() in ready:
                return self._link.recv(ENDED.size)
            for stream in ready:
                if not self._read(stream):
                    self._poll.unregister(stream)
            over = any(len(each) > self._limits.output for each in self._printed.values())
            if over or time.monotonic() >= deadline:
                self._killed_for = "output" if over else "timeout"
                self._link.shutdown(socket.SHUT_WR)
                return self._receive(time.monotonic() + _KILL_SECONDS)

    def _read(self, stream: int) -> bool:
        """Read what there is, but never more than a byte above the limit; False: no more."""
        printed = self._printed[stream]
        room = self._limits.output + 1 - len(printed)
        try:
            part = os.read(stream, min(_READ, room))
        except BlockingIOError:
            return False
        printed += part
        return bool(part)

    def _receive(self, deadline: float) -> bytes:
        self._link.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            return self._link.recv(_READ)
        except TimeoutError as error:
            raise SandboxError("the fork server does not answer") from error
        except ConnectionResetError:
            return b""

    def _execution(self, exit_code: int, processor_seconds: float) -> Execution:
        limit = self._limits.output
        over = any(len(printed) > limit for printed in self._printed.values())
        stdout, stderr = (bytes(each[:limit]).decode("utf-8", "replace")
                          for each in self._printed.values())  # fmt: skip
        status: Literal["ok", "error", "timeout", "memory", "output"]
        if self._killed_for or over:
            return Execution(self._killed_for or "output", stdout, stderr, None)
        if exit_code == 0:
            status = "ok"
        elif exit_code == -signal.SIGXCPU:
            status = "timeout"
        elif exit_code == -signal.SIGKILL:
            # Not by us: for its processor time, or because the machine has no memory left.
            status = "timeout" if processor_seconds > self._limits.seconds else "memory"
        elif stderr.rstrip("\n").rpartition("\n")[2].startswith("MemoryError"):
            status = "memory"
        else:
            status = "error"
        return Execution(status, stdout, stderr, exit_code)
