"""The console of rich that all commands print to."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from rich import console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ..operators.logs import visible
from .safe_output import SafeStream, shown

Item = TypeVar("Item")
LOG_WIDTH = 140
"""Columns of a log. A terminal with fewer has no room for drop reasons and details in a table."""


class Console(console.Console):
    """A console whose styles, bars and tables reach the terminal, and control characters of texts
    do not; see `shown`. With `only_json`, it prints tables alone, as JSON lines (`--json`)."""

    def __init__(self, *, only_json: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.only_json = only_json

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects as rich does, or a line for each row of a table among them."""
        if not self.only_json:
            return super().print(*objects, **options)
        for table in objects:
            for row in rows_of(table) if isinstance(table, Table) else ():
                line = Text(json.dumps(row, ensure_ascii=False))
                super().print(line, soft_wrap=True)

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
        """Yield the segments of something; texts as they may be printed."""
        if isinstance(renderable, str):
            renderable = shown(renderable)
        elif isinstance(renderable, Text) and (safe := shown(renderable.plain)) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = safe
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


class FigureText(Text):
    """A cell of a table: the text that people read, and the value that `--json` prints."""

    def __init__(self, text: str, value: object) -> None:
        super().__init__(text)
        self.value = value


def rows_of(table: Table) -> Iterator[dict[str, object]]:
    """The rows of a table by heading: numbers in columns that are on the right, elsewhere texts."""
    title = {} if table.title is None else {"table": str(table.title)}
    columns = [[_value(cell, each.justify) for cell in each.cells] for each in table.columns]
    headings = [str(each.header) for each in table.columns]
    for row in zip(*columns, strict=True):
        yield {**title, **dict(zip(headings, row, strict=True))}


def _value(cell: RenderableType, justify: str) -> object:
    if isinstance(cell, FigureText):
        return cell.value
    text = Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)
    if justify != "right":
        return text
    try:
        number = float(text.replace(",", "").removesuffix("%"))
        number = number / 100 if text.endswith("%") else number
    except ValueError:  # A figure that is not known is an empty text, or `-`.
        return text if text not in ("", "-") else None
    return (int(number) if number.is_integer() else number) if math.isfinite(number) else None


def widen_log(console: console.Console) -> None:
    """Make a console `LOG_WIDTH` wide, unless it is a terminal, which has a width of its own."""
    if not console.is_terminal:
        console.width = LOG_WIDTH


def print_lines(lines: Iterable[str], console: console.Console) -> None:
    """Print lines of any length as they are: brackets in them are not rich's markup."""
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def tracked(items: Iterable[Item], total: float | None = None) -> Iterable[Item]:
    """The same items, with a progress bar where somebody is looking."""
    from rich.progress import track

    bar = Console(stderr=True)
    quiet = not bar.is_terminal
    return track(items, "working", total, console=bar, transient=True, disable=quiet)


def figures_table(first: str, *others: str, title: Text | None = None) -> Table:
    """Return a table without lines: a column of names, and columns of figures on the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def path_text(path: object) -> str:
    """Return a path, or several with commas between them, as commands print it.

    Relative where it is below the working directory, otherwise as it is.

    Example:
        >>> path_text(Path.cwd() / "outputs" / "a.parquet")
        'outputs/a.parquet'
    """
    below = re.escape(f"{Path.cwd()}/")
    return re.sub(rf"(^|, ){below}(?=[^,])", r"\1", str(path))


def listed(counts: Mapping[str, int]) -> str:
    """Return how often each value occurs.

    Example:
        >>> listed({"wrong_answer": 1200, "correct": 3})
        'wrong_answer 1,200, correct 3'
    """
    return ", ".join(f"{value} {count:,}" for value, count in counts.items())


def number_text(value: float) -> str:
    """Return a number with three digits; `-` where it is not known."""
    return "-" if math.isnan(value) else f"{value:.3f}"
