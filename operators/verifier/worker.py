"""The processes of the pool.

One fork server per pool imports math-verify once and never reads an answer. On request it forks
a worker, which inherits the imports (a few milliseconds instead of a second) and answers over its
own socket. Nothing here measures time: the parent asks the fork server to kill late workers. The
fork server ends, together with its workers, when the parent's socket closes.
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

Rule = Literal["equivalent", "math_verify", "reference"]
"""How to compare: by the symbolic tier, or by math-verify alone; or to check the reference only."""
MEMORY = 2 << 30  # bytes of address space per worker
_REAP_SECONDS = 0.05  # between checks whether killed workers have ended
_OUT_OF_MEMORY = (MemoryError, SystemError)  # the second where C code has failed to allocate
_LENGTH = struct.Struct("!I")


def send(link: socket.socket, message: Any) -> None:
    """Send one JSON message, preceded by its length."""
    # ASCII with escapes can also represent lone surrogates.
    body = json.dumps(message).encode("ascii")
    link.sendall(_LENGTH.pack(len(body)) + body)


def receive(link: socket.socket) -> Any:
    """Receive one message.

    Raises:
        EOFError: the other side has closed the connection.
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
            # The parser and sympy catch a MemoryError and report that there is no mathematics.
            if reply[0] == "wrong_answer" and _ran_short(peak):
                reply = ["verifier_error", "MemoryError: most of the worker's memory was in use"]
        except Exception as error:  # becomes the verdict, with its reason
            reply = ["verifier_error", f"{type(error).__name__}: {error}"[:500]]
            ours = isinstance(error, _OUT_OF_MEMORY) or _ran_short(peak)
            if not ours and _broken_by_answer(*request):
                reply = ["wrong_answer", ""]
        send(link, reply)


def _same(answer: str, reference: str, rule: Rule = "equivalent") -> bool:
    # Not above: math-verify takes a second to import, and only workers need it.
    from . import symbolic
    from .independent import same_by_math_verify

    if rule == "math_verify":
        return same_by_math_verify(answer, reference)
    if rule == "reference":
        symbolic.check(reference)
        return True
    return symbolic.equivalent(answer, reference)


def _broken_by_answer(answer: str, reference: str, rule: Rule) -> bool:
    """Return whether the reference can be graded against, so that the answer is no answer to it."""
    if rule != "equivalent":
        return False
    try:
        return _same("", reference, "reference")
    except Exception:
        return False


def _peak() -> int:
    """Peak address space of this process in bytes; 0 if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(1024 * int(line.split()[1]) for line in status if line[:6] == "VmPeak")
    except (OSError, StopIteration):
        return 0


def _ran_short(before: int) -> bool:
    """Whether memory may have run out since the peak was `before`: one allocation may double it."""
    peak, limit = _peak(), _limit()
    return (peak > before and peak > limit // 2) or peak > limit - limit // 20


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


def _run_worker(link: socket.socket, control: socket.socket) -> None:
    control.close()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the fork server
    serve(link)


def fork_server(control: socket.socket) -> None:
    """Fork a worker for each socket received, kill workers on request, until the parent ends."""
    # Without a timeout of its own, it warns at every call.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    # The workers inherit these imports and the parser's tables.
    _same(r"\frac{x}{\sqrt{2}}+1", r"1+\frac{\sqrt{2}x}{2}")
    alive, killed = set[int](), set[int]()
    send(control, os.getpid())
    try:
        while True:
            ready, _, _ = select.select([control], [], [], _REAP_SECONDS if killed else None)
            ended = {pid for pid in alive if os.waitpid(pid, os.WNOHANG)[0]}
            alive, killed = alive - ended, killed - ended
            if not ready:
                continue
            request, descriptors, _, _ = socket.recv_fds(control, 8, 1)
            if not request:
                return
            number = int.from_bytes(request, "big")
            if descriptors:
                with socket.socket(fileno=descriptors[0]) as link:
                    alive.add(_fork(link, control))
            elif number in alive:
                # Only a child that was not waited for yet: no other process can have its id.
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
        _run_worker(link, control)
        status = 0
    finally:
        os._exit(status)  # never return to the loop of the fork server


def main(descriptor: int) -> None:
    """Run the fork server at the other end of this socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    with socket.socket(fileno=descriptor) as parent:
        fork_server(parent)
