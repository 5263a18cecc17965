"""The processes behind the pool.

One *nursery* per pool imports math-verify once and never reads an answer. On request it
forks a worker, which inherits the imports (a few milliseconds instead of a second) and
answers over a socket of its own. Nothing here has a clock: the parent asks the nursery to
kill. The nursery ends, and takes its workers with it, when the parent's socket closes.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import signal
import socket
import struct
import sys
from typing import Any, Literal

Rule = Literal["equivalent", "math_verify"]
"""What compares: the symbolic tier, or math-verify alone."""
MEMORY = 2 << 30  # bytes of address space per worker
_REAP_SECONDS = 0.05  # between looks at what was killed, until it is gone
_LENGTH = struct.Struct("!I")


def send(link: socket.socket, message: Any) -> None:
    """Write one JSON message with its length in front."""
    # Escaped ASCII carries lone surrogates too.
    body = json.dumps(message).encode("ascii")
    link.sendall(_LENGTH.pack(len(body)) + body)


def receive(link: socket.socket) -> Any:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
    """
    return json.loads(_exactly(link, _LENGTH.unpack(_exactly(link, _LENGTH.size))[0]))


def _exactly(link: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = link.recv(size - len(chunks))
        if not chunk:
            raise EOFError("the other side closed the connection")
        chunks += chunk
    return bytes(chunks)


def serve(link: socket.socket) -> None:
    """Answer requests `[answer, reference, rule]` with `[slug, reason]` until the end."""
    while True:
        try:
            request = receive(link)
        except EOFError:
            return
        peak = _peak()
        try:
            reply = ["correct" if _same(*request) else "wrong_answer", ""]
            # Parser and sympy swallow a MemoryError and say that there is no mathematics.
            if reply[0] == "wrong_answer" and _ran_short(peak):
                reply = ["verifier_error", "MemoryError: most of the worker's memory was in use"]
        except Exception as error:  # reported as a verdict, with its reason
            reply = ["verifier_error", f"{type(error).__name__}: {error}"[:500]]
        send(link, reply)


def _same(answer: str, reference: str, rule: Rule = "equivalent") -> bool:
    from . import independent, symbolic

    if rule == "math_verify":
        return independent.same_by_math_verify(answer, reference)
    return symbolic.equivalent(answer, reference)


def _peak() -> int:
    """The most address space this process has had, in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(1024 * int(line.split()[1]) for line in status if line[:6] == "VmPeak")
    except (OSError, StopIteration):
        return 0


def _ran_short(before: int) -> bool:
    """Whether memory may have run out since the peak was `before`: an allocation can double."""
    peak, limit = _peak(), _limit()
    return (peak > before and peak > limit // 2) or peak > limit - limit // 20


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


def _be_a_worker(link: socket.socket, control: socket.socket) -> None:
    control.close()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the nursery
    serve(link)


def nursery(control: socket.socket) -> None:
    """Fork a worker for every socket received, kill those named, until the parent is gone."""
    # It warns at every call that the clock is ours.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    # The workers inherit what this imports, and the parser's warm tables.
    _same(r"\frac{x}{\sqrt{2}}+1", r"1+\frac{\sqrt{2}x}{2}")
    alive, killed = set[int](), set[int]()
    send(control, os.getpid())
    try:
        while True:
            asked, _, _ = select.select([control], [], [], _REAP_SECONDS if killed else None)
            gone = {pid for pid in alive if os.waitpid(pid, os.WNOHANG)[0]}
            alive, killed = alive - gone, killed - gone
            if not asked:
                continue
            request, descriptors, _, _ = socket.recv_fds(control, 8, 1)
            if not request:
                return
            number = int.from_bytes(request, "big")
            if descriptors:
                with socket.socket(fileno=descriptors[0]) as link:
                    alive.add(_fork(link, control))
            elif number in alive:
                # Only a child not yet waited for: its id cannot belong to anyone else.
                os.kill(number, signal.SIGKILL)
                killed.add(number)
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)


def _fork(link: socket.socket, control: socket.socket) -> int:
    pid = os.fork()
    if pid:
        control.sendall(pid.to_bytes(8, "big"))
        return pid
    status = 1
    try:
        _be_a_worker(link, control)
        status = 0
    finally:
        os._exit(status)  # never back into the nursery's loop


def main(descriptor: int) -> None:
    """Be the nursery at the other end of this socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with socket.socket(fileno=descriptor) as parent:
        nursery(parent)
