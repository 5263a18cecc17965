"""Loggers whose lines have no secret in them, and nothing that could steer a terminal."""

from __future__ import annotations

import logging

from .redaction import redact
from .visible import visible


def logger(name: str) -> logging.Logger:
    """A logger of the standard library, for lines with texts of others, such as a server's message.

    They are made safe here, and not where they are shown: every process has handlers of its own.

    Args:
        name: of the module.
    """
    found = logging.getLogger(name)
    if _make_safe not in found.filters:
        found.addFilter(_make_safe)
    return found


def _make_safe(record: logging.LogRecord) -> bool:
    record.msg, record.args = visible(redact(record.getMessage())), None
    return True
