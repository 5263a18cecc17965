"""The console of rich that all commands print to."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import orjson
import pyarrow as pa
from pydantic import BaseModel
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
        if isinstance(renderable, str):
            renderable = shown(renderable)
        elif isinstance(renderable, Text) and (safe := shown(renderable.plain)) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = safe
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


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
    """A table without lines: a column of names, and columns of figures on the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def as_json(value: Any, *, pretty: bool = False) -> str:
    """A value as JSON, of which nothing can change a terminal; numbers that are not known are null.

    Of a table, it has the number of rows.
    """
    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if pretty else 0)
    text = orjson.dumps(value, plain, option).decode()
    return "".join(x if x.isprintable() or x == "\n" else json.dumps(x)[1:-1] for x in text)


def plain(value: Any) -> Any:
    """What JSON has of a value that orjson does not know."""
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, pa.Table):
        return value.num_rows
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return str(value).encode("utf-8", "backslashreplace").decode()  # A path may be no UTF-8.


def path_text(path: object) -> str:
    """A path, or several with commas between them, as commands print it: relative where it is below
    the working directory."""
    below = re.escape(f"{Path.cwd()}/")
    return re.sub(rf"(^|, ){below}(?=[^,])", r"\1", str(path))


def listed(counts: Mapping[str, int]) -> str:
    """`wrong_answer 1,200, correct 3`."""
    return ", ".join(f"{value} {count:,}" for value, count in counts.items())


def number_text(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
