"""Progress bars for a terminal, lines for a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..console import Console

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_OF_BASIS = 5.0
"""A rate is of at least so long: groups finish in batches, milliseconds apart."""


class StepProgress:
    """What is done of a task; call it with rows as they are computed.

    Rows that were found in the cache are done, but they say nothing about how fast the others will
    be. Nor does the time before the first tokens, in which a model may be loaded, or that before
    the first row: those that are sampled side by side all take as long.
    """

    def __init__(self, rows: int | None, show: Callable[[StepProgress], None]) -> None:
        self.rows, self._show = rows, show
        self.found = self.computed = self.tokens = 0
        self.start = self.now = time.monotonic()
        self._first_rows = self._first_tokens = (0.0, 0)  # when they came, and how many they were

    def __call__(self, rows: int) -> None:
        self.now = time.monotonic()
        self.computed += rows
        if self.computed == rows:
            self._first_rows = self.now, rows
        self._show(self)

    def find(self, rows: int) -> None:
        self.found += rows
        self._show(self)

    def sample(self, tokens: int) -> None:
        self.now = time.monotonic()
        self.tokens += tokens
        if self.tokens == tokens:
            self._first_tokens = self.now, tokens
        self._show(self)

    @property
    def done(self) -> int:
        return self.found + self.computed

    @property
    def rates(self) -> tuple[float, float]:
        """Rows and tokens per second since the first; 0 until measured for long enough."""
        return self._rate(self.computed, *self._first_rows), self._rate(
            self.tokens, *self._first_tokens
        )

    def _rate(self, total: int, start: float, before: int) -> float:
        seconds = self.now - start
        return (total - before) / seconds if total and seconds >= _SECONDS_OF_BASIS else 0.0

    @property
    def figures(self) -> str:
        """Tokens, rates and the time left, as far as they are known."""
        rows, tokens = self.rates
        parts = [f"{self.found:,} from the cache"] if self.found else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens else []
        parts += [f"{_rounded(tokens)} tokens/s"] if tokens else []
        parts += [f"{_rounded(rows)} rows/s"] if rows else []
        if rows and self.rows is not None:
            parts.append(f"{(self.rows - self.done) / rows:,.0f} s left")
        return ", ".join(parts)


class Progress:
    """Shows one task at a time; silent where `quiet`."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet

    @contextmanager
    def task(self, title: str, rows: int | None) -> Iterator[StepProgress]:
        """Show a task of so many rows (None: unknown)."""
        if self.quiet:
            yield StepProgress(rows, lambda _: None)
        elif self.console.is_terminal:
            from rich import progress  # Only where somebody looks at a bar.

            with progress.Progress(
                progress.SpinnerColumn(),
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[figures]}"),
                console=self.console,
                transient=True,
            ) as bar:
                shown = bar.add_task(title, total=rows, figures="")
                yield StepProgress(
                    rows, lambda task: bar.update(shown, completed=task.done, figures=task.figures)
                )
        else:
            yield StepProgress(rows, self._lines(title))

    def tell(self, line: str) -> None:
        if not self.quiet:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _lines(self, title: str) -> Callable[[StepProgress], None]:
        last: float | None = None

        def show(task: StepProgress) -> None:
            nonlocal last
            waited = task.now - (task.start if last is None else last)
            if task.rows and waited >= _SECONDS_BETWEEN_LINES and any(task.rates):
                last = task.now
                line = f"{title}: {task.done:,} of {task.rows:,} rows, {task.figures}"
                self.console.print(line, highlight=False, soft_wrap=True)

        return show


def _rounded(per_second: float) -> str:
    """Whole numbers, and two digits of what is slower."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"
