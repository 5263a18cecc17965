"""Leases in an object store, which has no locks: small files that are written again and again.

    .curated.run.lock-9af3…     the claim of a process that has the lease, or asks for it

A process writes a claim, and lists those of others after that. Where there is none it has the
lease; else it takes its claim back, and asks again later: of two that ask at once, at most one
finds itself alone. Whoever has the lease writes its claim again every few seconds. A claim that
does not change for long enough is that of a process that was killed, and is removed. Clocks are not
compared.

A process that is suspended loses its lease, and does not know before it looks.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from ...operators import DataError
from .remote import RemotePath

_BEAT_S = 5.0
_WAIT_S = 20.0
"""A claim that has not changed for so long is that of a process that was killed."""
_ASKS, _HAS = "asks", "has"


@contextmanager
def leased(path: RemotePath, is_taken: Callable[[], object] = lambda: None) -> Iterator[RemotePath]:
    """Have a lease for the time of the block, as soon as no other process has it.

    Yields:
        The claim. Once it does not exist any more, the lease is lost.

    Raises:
        DataError: the store refuses something.
    """
    claim = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    try:
        _acquire(claim, path, is_taken)
        ended = threading.Event()
        thread = threading.Thread(target=_renew, args=(claim, ended), daemon=True)
        thread.start()
        try:
            yield claim
        finally:
            ended.set()
            thread.join()
    finally:
        with suppress(DataError):  # Else it ends by itself; what ended the block is reported.
            claim.unlink(missing_ok=True)


def _acquire(claim: RemotePath, path: RemotePath, is_taken: Callable[[], object]) -> None:
    """Write a claim, again and again, until there is no other."""
    seen = dict[RemotePath, tuple[str, float]]()
    for number in count():
        claim.write_text(f"{_ASKS} {number}")
        others = _others(claim, path)
        if not others:
            return
        claim.unlink(missing_ok=True)
        if _at_work(others, seen):
            is_taken()
        time.sleep(_BEAT_S / 5 * random.uniform(0.5, 1.0))  # Else two might ask at once forever.


def _others(claim: RemotePath, path: RemotePath) -> list[RemotePath]:
    names = path.parent.file_names()
    claims = (path.with_name(name) for name in names if name.startswith(f"{path.name}-"))
    return [each for each in claims if each != claim]


def _at_work(claims: list[RemotePath], seen: dict[RemotePath, tuple[str, float]]) -> bool:
    """Whether a process that has the lease is at work; what is left of killed ones is removed."""
    at_work, now = False, time.monotonic()
    for claim in claims:
        content = claim.read_if_there()
        if content is None:
            continue
        text = content.decode("utf-8", "replace")
        before, since = seen.setdefault(claim, (text, now))
        if text != before:
            seen[claim] = text, now
            at_work |= text.startswith(_HAS)
        elif now - since >= _WAIT_S:
            claim.unlink(missing_ok=True)
    return at_work


def _renew(claim: RemotePath, ended: threading.Event) -> None:
    for number in count():
        if ended.wait(_BEAT_S):
            return
        try:
            if not claim.exists():
                return  # This process was suspended, and another one goes on.
            claim.write_text(f"{_HAS} {number}")
        except DataError:
            continue  # The run itself meets the same error where it writes, and reports it.
