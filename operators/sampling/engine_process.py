"""The process in which an engine runs; `processes` starts it, and talks to it over a link.

From the parent come calls: the name of a method and its arguments. For `sample`, the argument is
the settings, and lists of prompts follow while it runs, then None. To the parent go results as they
come, then None; or the error that ended the call.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from ..errors import RejuiceError
from ..workers import exit_with_parent
from .protocol import Engine, Prompt, Settings, listening

_REPORT_S = 1.0  # seconds between two reports of sampled tokens
_CLOSED = object()


class SampledTokens(NamedTuple):
    """What a process sends while its groups are under way: tokens since it last did."""

    number: int


class TokenReports:
    """Adds up sampled tokens, and sends their number about once a second.

    Args:
        send: called with the message.
    """

    def __init__(self, send: Callable[[SampledTokens], object]) -> None:
        self._send, self._number, self._last = send, 0, 0.0

    def __call__(self, tokens: int) -> None:
        """Add tokens that have been sampled."""
        self._number += tokens
        if self._number and time.monotonic() - self._last >= _REPORT_S:
            self._send(SampledTokens(self._number))
            self._number, self._last = 0, time.monotonic()


def main(link: Connection) -> None:
    """Serve calls in the process at the other end of the link."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # For assisted generation, which no engine uses, transformers would import scikit-learn, and
    # with it scipy and pandas: a quarter of what a process takes to start.
    sys.modules.setdefault("sklearn", None)  # type: ignore[arg-type]
    exit_with_parent(int(sys.argv[2]))
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read, args=(link, inbox), daemon=True).start()
    engine: Any = None
    with link:
        while (call := inbox.get()) is not _CLOSED:
            if isinstance(call, Exception):
                raise call
            method, *arguments = call
            try:
                if method == "build":
                    engine = arguments[0]()
                    link.send(None)
                elif method == "sample":
                    _sample(engine, arguments[0], inbox, link)
                    link.send(None)
                else:
                    link.send(getattr(engine, method)(*arguments))
            except RejuiceError as error:
                link.send(error)


def _read(link: Connection, inbox: SimpleQueue[Any]) -> None:
    """Read all that comes at once: a parent that waits to send would not read results."""
    try:
        while True:
            inbox.put(link.recv())
    except (EOFError, OSError):
        inbox.put(_CLOSED)
    except Exception as error:  # What cannot be unpickled here, such as for want of a module.
        inbox.put(error)


def _sample(engine: Engine, settings: Settings, inbox: SimpleQueue[Any], link: Connection) -> None:
    unfinished = 0

    def prompts() -> Iterator[Prompt | None]:
        nonlocal unfinished
        while True:
            try:
                # Only an engine that has nothing to do waits.
                more = inbox.get_nowait() if unfinished else inbox.get()
            except Empty:
                yield None
                continue
            if isinstance(more, Exception):
                raise more
            if more is None or more is _CLOSED:
                return
            for prompt in more:
                unfinished += 1
                yield prompt

    with listening(TokenReports(link.send)):
        for item in engine.sample(prompts(), settings):
            unfinished -= 1
            link.send(item)
