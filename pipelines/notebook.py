"""What a notebook shows of a run: a few lines, an HTML table, and small plots as SVG.

The HTML has no script and loads nothing. Its texts have the color of the notebook, light or dark.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Protocol

from .safe_output import shown

_MOST_STEPS = 12
"""Lines of steps in a text."""
_MOST_REASONS = 5
_MOST_BARS = 24
_LONGEST = 30
"""Characters of a name."""
_COLOR = "#5b8fc7"
"""The color of bars, which differs enough from white and from black."""
_BAR, _CHARACTER, _BARS, _VALUES = 15, 6.2, 120, 56
"""Pixels: the height of a bar, and the widths of a character, of bars and of numbers."""


class FunnelStep(Protocol):
    """A step of the funnel, as a `StepReport` describes it."""

    @property
    def step(self) -> str: ...
    @property
    def rows_in(self) -> int: ...
    @property
    def rows_out(self) -> int: ...
    @property
    def added(self) -> int: ...
    @property
    def dropped(self) -> Mapping[str, int]: ...
    @property
    def seconds(self) -> float: ...
    @property
    def cached(self) -> bool: ...


def quiet_libraries() -> None:
    """In a notebook, keep libraries from printing that ipywidgets is not installed."""
    if "ipykernel" in sys.modules:
        warnings.filterwarnings("ignore", "IProgress not found")  # tqdm
        logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)


# --- Text -----------------------------------------------------------------------------


def funnel_lines(title: str, steps: Sequence[FunnelStep]) -> Iterator[str]:
    """Yield the funnel in short: totals, and a line for each step that added or dropped rows.

    Example:
        >>> print("\\n".join(funnel_lines("rejuice", report.steps)))
        rejuice: 3 rows in, 9 added, 4 dropped, 8 rows out; 8 steps
          recorded_rollout_mapper  3 -> 12
          pass_rate_filter         12 -> 8, too_easy 4
    """
    added, dropped = (sum(n) for n in zip(*((x.added, _dropped(x)) for x in steps), strict=True))
    counts = f"{steps[0].rows_in:,} rows in, {added:,} added, {dropped:,} dropped"
    yield f"{_name(title)}: {counts}, {steps[-1].rows_out:,} rows out; {len(steps)} steps"
    changing = [step for step in steps if step.added or step.dropped]
    width = max((len(_name(step.step)) for step in changing), default=0)
    for step in changing[:_MOST_STEPS]:
        parts = [f"{step.rows_in:,} -> {step.rows_out:,}", *_reasons(step.dropped)]
        yield f"  {_name(step.step):<{width}}  {', '.join(parts)}"
    if len(changing) > _MOST_STEPS:
        yield f"  ... {len(changing) - _MOST_STEPS} more steps"


def _dropped(step: FunnelStep) -> int:
    return sum(step.dropped.values())


def _reasons(dropped: Mapping[str, int]) -> Iterator[str]:
    """Yield the most frequent reasons, and how many others there are."""
    for reason, n in Counter(dropped).most_common(_MOST_REASONS):
        yield f"{_name(reason)} {n:,}"
    if len(dropped) > _MOST_REASONS:
        yield f"{len(dropped) - _MOST_REASONS} other reasons"


def _name(text: str) -> str:
    """Return a name without secrets and control characters, cut off where it is long."""
    safe = " ".join(shown(text).split())
    return safe if len(safe) <= _LONGEST else f"{safe[:_LONGEST]}…"


# --- HTML: names and values are the user's, and are escaped ---------------------------


def funnel_table(title: str, steps: Sequence[FunnelStep]) -> str:
    """Return the funnel as an HTML table, a row for each step."""
    numbers = ("rows in", "added", "dropped", "rows out", "seconds")
    head = [_cell("step", "th"), *(_cell(n, "th", right=True) for n in numbers)]
    lines = [[*head, _cell("drop reasons", "th")]]
    for step in steps:
        values = (
            f"{step.rows_in:,}",
            f"{step.added:,}" if step.added else "",
            f"{_dropped(step):,}" if step.dropped else "",
            f"{step.rows_out:,}",
            "cached" if step.cached else f"{step.seconds:.2f}",
        )
        cells = [_cell(_name(step.step)), *(_cell(value, right=True) for value in values)]
        lines.append([*cells, _cell(", ".join(_reasons(step.dropped)))])
    rows = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    caption = f'<caption style="text-align:left">{escape(_name(title))}</caption>'
    return f'<table style="border-collapse:collapse;color:inherit">{caption}{rows}</table>'


def _cell(text: str, tag: str = "td", *, right: bool = False) -> str:
    style = f"text-align:{'right' if right else 'left'};padding:1px 8px"
    return f'<{tag} style="{style}">{escape(text)}</{tag}>'


def paragraph(text: str) -> str:
    """Return a text as a paragraph."""
    return f"<p>{escape(shown(text))}</p>"


def listed_names(names: Sequence[str]) -> str:
    """Return the first of some names of columns, and how many others there are."""
    more = len(names) - _MOST_BARS
    listed = ", ".join(map(_name, names[:_MOST_BARS]))
    return f"{listed} and {more} more" if more > 0 else listed


def beside(*plots: str) -> str:
    """Return plots next to one another, as far as there is room."""
    return f'<div style="display:flex;flex-wrap:wrap;gap:24px">{"".join(plots)}</div>'


def rows_plot(steps: Sequence[FunnelStep]) -> str:
    """Return the rows of the dataset, and those after each step, as bars."""
    rows = [("dataset", steps[0].rows_in), *((step.step, step.rows_out) for step in steps)]
    return bars("rows after each step", rows)


def bars(title: str, counts: Sequence[tuple[str, int]]) -> str:
    """Return a horizontal bar for each name and count."""
    highest = max((n for _, n in counts), default=0) or 1
    names = [_name(name) for name, _ in counts[:_MOST_BARS]]
    left = 6 + _CHARACTER * max(map(len, names), default=0)
    drawn = list[str]()
    for at, (name, (_, n)) in enumerate(zip(names, counts, strict=False)):
        middle, length = at * _BAR + _BAR - 4, n / highest * _BARS
        drawn += [
            _text(left - 6, middle, name, "end"),
            _rectangle(left, at * _BAR + 2, length, _BAR - 4),
            _text(left + length + 4, middle, f"{n:,}"),
        ]
    if (more := len(counts) - _MOST_BARS) > 0:
        drawn.append(_text(left - 6, _MOST_BARS * _BAR + _BAR - 4, f"{more} more", "end"))
    height = min(len(counts), _MOST_BARS + 1) * _BAR
    return _plot(title, left + _BARS + _VALUES, height, drawn)


def histogram(title: str, edges: Sequence[float], counts: Sequence[int]) -> str:
    """Return a histogram; `edges` has one number more than `counts`."""
    width, height, highest = 12, 110, max(counts, default=0) or 1
    drawn = [_text(0, 10, f"{highest:,}")]
    for at, n in enumerate(counts):
        length = n / highest * (height - 16)
        drawn.append(_rectangle(at * width, height - length, width - 1, length))
    right = len(counts) * width
    drawn.append(_text(0, height + 13, f"{edges[0]:.3g}"))
    drawn.append(_text(right, height + 13, f"{edges[-1]:.3g}", "end"))
    return _plot(title, right, height + 16, drawn)


def _plot(title: str, width: float, height: int, drawn: Iterable[str]) -> str:
    label = escape(_name(title))
    return (
        f'<figure style="margin:8px 0"><figcaption>{label}</figcaption>'
        f'<svg role="img" aria-label="{label}" width="{width:.0f}" height="{height}" '
        f'font-size="11" font-family="sans-serif" fill="currentColor">{"".join(drawn)}</svg>'
        "</figure>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rectangle(x: float, y: float, width: float, height: float) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{_COLOR}"/>'
