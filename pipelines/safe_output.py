"""stdout and stderr of the command: no secret is printed, and no text steers the terminal.

    typer.echo, logging, warnings, tracebacks ──> SafeStream ──> terminal
    Console of `console.py` ──(is safe itself)───────────────────────^

Without rich, which takes longer to import than most commands need before they print.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from ..operators.logs import redact, visible

_NOTHING = re.compile(r"(?!)")
_STYLES = re.compile(r"(\x1b\[[0-9;]*m)")
_MOVES_OF_BARS = re.compile(r"(\A\r|\A(?:\x1b\[A)+\Z)")
"""How bars of libraries, such as that of an upload, begin to write their line again."""


def shown(text: str) -> str:
    r"""A text as it may be printed: without secrets, and with control characters as `\u001b`."""
    return visible(redact(text))


class SafeStream:
    """A text stream that prints texts as `shown` gives them, and otherwise behaves as another one.

    `passes` are the only control sequences that are written as they are, as a group.
    """

    def __init__(self, raw: TextIO, passes: re.Pattern[str] = _NOTHING) -> None:
        self.raw, self._passes = raw, passes

    @property
    def rich_proxied_file(self) -> SafeStream:
        """What a console of rich that is not ours, such as that of typer's help, writes to."""
        return SafeStream(self.raw, _STYLES)

    def write(self, text: str) -> int:
        parts = self._passes.split(redact(text))
        self.raw.write("".join(part if at % 2 else visible(part) for at, part in enumerate(parts)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def safe_output() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    bars = _MOVES_OF_BARS if sys.stderr.isatty() else _NOTHING
    sys.stdout = cast(TextIO, SafeStream(sys.stdout))
    sys.stderr = cast(TextIO, SafeStream(sys.stderr, bars))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
