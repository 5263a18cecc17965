"""Errors of aiohttp: which of them mean that an address cannot be reached, and their messages."""

from __future__ import annotations

import errno

import aiohttp

UNREACHABLE = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


def is_unreachable(error: BaseException) -> bool:
    """Whether waiting may help: it does not fix a certificate."""
    return isinstance(error, UNREACHABLE) and not isinstance(error, aiohttp.ClientSSLError)


def why_unreachable(error: Exception) -> str:
    """The reason in a few words, for the log."""
    cause = getattr(error, "os_error", None) or error
    # Where a host has several addresses, the number is only in the text.
    refused = f"[Errno {errno.ECONNREFUSED}]" in str(cause)
    return "connection refused" if refused else message_of(error)


def message_of(error: Exception) -> str:
    """The message of an error in one line."""
    message = " ".join(str(error).split()) or type(error).__name__
    return message.replace(" ssl:default", "")  # aiohttp adds it even without TLS.
