"""Progress bars for a terminal, lines for a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.text import Text

_SECONDS_BETWEEN_LINES = 10.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:,.0f} rows/s")


class Progress:
    """Shows one task at a time; silent where `quiet`."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet

    @contextmanager
    def task(self, title: str, rows: int | None) -> Iterator[Callable[[int], None]]:
        """Show a task of so many rows (None: unknown); yields a function that advances it."""
        if self.quiet:
            yield lambda _: None
        elif self.console.is_terminal:
            with RichProgress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                _Rate(),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            ) as bar:
                task = bar.add_task(title, total=rows)
                yield lambda n: bar.advance(task, n)
        else:
            yield self._lines(title, rows)

    def tell(self, line: str) -> None:
        """Print a line, unless `quiet`."""
        if not self.quiet:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _lines(self, title: str, rows: int | None) -> Callable[[int], None]:
        start = last = time.monotonic()
        done = before = 0

        def advance(n: int) -> None:
            nonlocal done, last, start, before
            done += n
            now = time.monotonic()
            if before == 0:  # A rate is of what is done from now on: a model had to be loaded.
                start, before = now, done
            elif done > before and now - last >= _SECONDS_BETWEEN_LINES and rows:
                last, rate = now, (done - before) / (now - start)
                left = (rows - done) / rate
                self.console.print(
                    f"{title}: {done:,} of {rows:,} rows, {rate:,.0f} rows/s, {left:,.0f} s left",
                    highlight=False,
                )

        return advance
