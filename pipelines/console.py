"""The console of rich that all commands print to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from rich import console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..operators.logs import visible
from .terminal import SafeStream, shown


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
