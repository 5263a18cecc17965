"""The processes of the pool.

A fork server imports math-verify once and never reads an answer. Its forks answer over sockets of
their own. The system itself ends one at the end of its processor time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import signal
import socket
import sys
from typing import Literal

from ..process_pool import batches, receive, reply, send, serve_forks

Rule = Literal["equivalent", "math_verify", "reference"]
"""How to compare: by the symbolic tier, or by math-verify alone; or to check the reference only."""
MEMORY = 2 << 30  # bytes of address space per worker
_OUT_OF_MEMORY = (MemoryError, SystemError)  # the second where C code has failed to allocate


def serve(link: socket.socket) -> None:
    """Answer rows of (answer, reference, rule, seconds) with (slug, reason) until the end.

    The seconds are those of the processor; 0: as many as it takes.
    """
    for rows in batches(link):
        for number, (*pair, seconds) in rows:
            # On a busy machine, a worker may wait for a processor for longer than its work takes.
            # By the wall alone, whether a response earns a reward would depend on the load.
            signal.setitimer(signal.ITIMER_PROF, seconds)
            outcome = _outcome(*pair)
            signal.setitimer(signal.ITIMER_PROF, 0)
            reply(link, number, *outcome)


def _outcome(answer: str, reference: str, rule: Rule) -> tuple[str, str]:
    peak = _peak()
    try:
        if _same(answer, reference, rule):
            return "correct", ""
        # The parser and sympy catch a MemoryError and report that there is no mathematics.
        if _ran_short(peak):
            return "verifier_error", "MemoryError: most of the worker's memory was in use"
    except Exception as error:  # becomes the verdict, with its reason
        ours = isinstance(error, _OUT_OF_MEMORY) or _ran_short(peak)
        if ours or rule != "equivalent" or not _is_usable(reference):
            return "verifier_error", f"{type(error).__name__}: {error}"[:500]
    return "wrong_answer", ""


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


def _is_usable(reference: str) -> bool:
    """Whether the reference can be graded against, so that the answer is no answer to it."""
    with contextlib.suppress(Exception):
        return _same("", reference, "reference")
    return False


def _peak() -> int:
    """Peak address space of this process in bytes; 0 if the system does not report it."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        return next((1024 * int(line.split()[1]) for line in status if line[:6] == "VmPeak"), 0)
    return 0


def _ran_short(before: int) -> bool:
    """Whether memory may have run out since the peak was `before`: one allocation may double it."""
    peak, limit = _peak(), _limit()
    return (peak > before and peak > limit // 2) or peak > limit - limit // 20


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


def main(descriptor: int, _parent: int) -> None:
    with socket.socket(fileno=descriptor) as control:
        sys.path[:] = json.loads(receive(control))
        # Without a timeout of its own, it warns at every call.
        logging.getLogger("math_verify").setLevel(logging.ERROR)
        # The forks inherit these imports and the parser's tables.
        _same(r"\frac{x}{\sqrt{2}}+1", r"1+\frac{\sqrt{2}x}{2}")
        serve_forks(control, _serve_limited)


def _serve_limited(link: socket.socket) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    send(link, b"ready")
    serve(link)
