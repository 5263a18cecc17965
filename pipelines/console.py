"""The console of rich that all commands print to."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO, cast

from rich import console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..operators.logs import redact, visible

# --- Terminal -------------------------------------------------------------------------
# stdout and stderr of the command: no secret is printed, and no text steers the terminal.
#
# typer.echo, logging, warnings, tracebacks ──> SafeStream ──> terminal
# Console of `console.py` ──(is safe itself)───────────────────────^

_NOTHING = re.compile(r"(?!)")
_STYLES = re.compile(r"(\x1b\[[0-9;]*m)")
_MOVES_OF_BARS = re.compile(r"(\A\r|\A(?:\x1b\[A)+\Z)")
"""How bars of libraries, such as that of an upload, begin to write their line again."""


def shown(text: str) -> str:
    r"""A text as it may be printed: without secrets, and with control characters as `\u001b`."""
    return visible(redact(text))


class SafeStream:
    """A text stream that prints texts as `shown` gives them, and otherwise behaves as another one.

    Attributes:
        raw: the other one.

    Args:
        raw: the other one.
        passes: the only control sequences that are written as they are, as a group.
    """

    def __init__(self, raw: TextIO, passes: re.Pattern[str] = _NOTHING) -> None:
        self.raw, self._passes = raw, passes

    @property
    def rich_proxied_file(self) -> SafeStream:
        """What a console of rich that is not ours, such as that of typer's help, writes to."""
        return SafeStream(self.raw, _STYLES)

    def write(self, text: str) -> int:
        """Write a text, and give its length."""
        parts = self._passes.split(redact(text))
        self.raw.write("".join(part if at % 2 else visible(part) for at, part in enumerate(parts)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def safe_output() -> Iterator[None]:
    """Make stdout and stderr safe, for all that is printed inside."""
    before = sys.stdout, sys.stderr
    bars = _MOVES_OF_BARS if sys.stderr.isatty() else _NOTHING
    sys.stdout = cast(TextIO, SafeStream(sys.stdout))
    sys.stderr = cast(TextIO, SafeStream(sys.stderr, bars))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


# --- The console of rich that all commands print to -----------------------------------


class Console(console.Console):
    """A console whose styles, bars and tables reach the terminal, and control characters of texts
    do not; see `shown`."""

    @property
    def file(self) -> IO[str]:
        """What is written to: the terminal itself, as texts are safe before they are laid out."""
        found = super().file
        return found.raw if isinstance(found, SafeStream) else found

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of something; texts as they may be printed."""
        if isinstance(renderable, str):
            renderable = shown(renderable)
        elif isinstance(renderable, Text) and (safe := shown(renderable.plain)) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = safe
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
