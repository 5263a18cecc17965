"""Tokens that were sampled so far, for whoever shows progress while groups are under way.

An engine may need minutes for its first group. It reports tokens as it samples them, or where it
gets responses only whole, with each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

TokenListener: TypeAlias = Callable[[int], None]
"""Called with numbers of tokens that have been sampled since the last call."""

_listener: ContextVar[TokenListener] = ContextVar("token_listener", default=lambda _: None)


def token_listener() -> TokenListener:
    """The listener of the thread that iterates over `Engine.sample`; at least one that ignores."""
    return _listener.get()


@contextmanager
def listening(listener: TokenListener) -> Iterator[None]:
    """Let engines that sample within this context report their tokens to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
