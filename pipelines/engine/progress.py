"""Progress bars for a terminal, lines for a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from ..console import Console

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_OF_BASIS = 5.0
"""A rate is of at least so long: groups finish in batches, milliseconds apart."""


class _Counter:
    """Counts something, and how fast it grows from its first count on."""

    def __init__(self) -> None:
        self.total = 0
        self._before, self._start = 0, inf

    def add(self, n: int, now: float) -> None:
        """Count so many more."""
        self.total += n
        if self._start == inf:
            self._start, self._before = now, self.total

    def per_second(self, now: float) -> float:
        """The rate since the first count; 0 until it has been measured for long enough."""
        seconds = now - self._start
        return (self.total - self._before) / seconds if seconds >= _SECONDS_OF_BASIS else 0.0


class StepProgress:
    """What is done of a task; call it with rows as they are computed.

    Rows that were found in the cache are done, but they say nothing about how fast the others will
    be. Nor does the time before the first tokens, in which a model may be loaded, or that before
    the first row: those that are sampled side by side all take as long.

    Args:
        rows: of the task; None: unknown.
        show: called with the task after each change.
    """

    def __init__(self, rows: int | None, show: Callable[[StepProgress], None]) -> None:
        self.rows, self._show = rows, show
        self.found = 0
        self.start = self.now = time.monotonic()
        self._computed, self._sampled = _Counter(), _Counter()

    @property
    def computed(self) -> int:
        """Rows that were computed."""
        return self._computed.total

    def __call__(self, rows: int) -> None:
        """Count rows that have been computed."""
        self._add(self._computed, rows)

    def find(self, rows: int) -> None:
        """Count rows that were found in the cache."""
        self.found += rows
        self._show(self)

    def sample(self, tokens: int) -> None:
        """Count tokens that were sampled for rows under way."""
        self._add(self._sampled, tokens)

    @property
    def done(self) -> int:
        """Rows that are finished."""
        return self.found + self.computed

    @property
    def has_rate(self) -> bool:
        """Whether it has been measured for long enough how fast the task is."""
        return any(each.per_second(self.now) for each in (self._computed, self._sampled))

    @property
    def figures(self) -> str:
        """Tokens, rates and the time left, as far as they are known."""
        tokens, rows = (each.per_second(self.now) for each in (self._sampled, self._computed))
        parts = [f"{self.found:,} from the cache"] if self.found else []
        parts += [f"{self._sampled.total:,} tokens"] if self._sampled.total else []
        parts += [f"{_rate(tokens)} tokens/s"] if tokens else []
        parts += [f"{_rate(rows)} rows/s"] if rows else []
        if rows and self.rows is not None:
            parts.append(f"{(self.rows - self.done) / rows:,.0f} s left")
        return ", ".join(parts)

    def _add(self, counter: _Counter, n: int) -> None:
        self.now = time.monotonic()
        counter.add(n, self.now)
        self._show(self)


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
        """Print a line, unless `quiet`."""
        if not self.quiet:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _lines(self, title: str) -> Callable[[StepProgress], None]:
        last: float | None = None

        def show(task: StepProgress) -> None:
            nonlocal last
            waited = task.now - (task.start if last is None else last)
            if task.rows and task.has_rate and waited >= _SECONDS_BETWEEN_LINES:
                last = task.now
                parts = (f"{task.done:,} of {task.rows:,} rows", task.figures)
                line = ", ".join(part for part in parts if part)
                self.console.print(f"{title}: {line}", highlight=False, soft_wrap=True)

        return show


def _rate(per_second: float) -> str:
    """Whole numbers, and two digits of what is slower."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"
