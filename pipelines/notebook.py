"""What a notebook shows of a run: a few lines, an HTML table, and small plots as SVG.

The HTML has no script and loads nothing. Its texts have the color of the notebook, light or dark.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterable, Sequence
from html import escape

from .safe_output import shown

_MOST_BARS = 24
_LONGEST = 30
"""Characters of a name."""
_COLOR = "#5b8fc7"
"""The color of bars, which differs enough from white and from black."""
_BAR, _CHARACTER, _BARS, _VALUES = 15, 6.2, 120, 56
"""Pixels: the height of a bar, and the widths of a character, of bars and of numbers."""


def quiet_libraries() -> None:
    """In a notebook, keep libraries from printing that ipywidgets is not installed."""
    if "ipykernel" in sys.modules:
        warnings.filterwarnings("ignore", "IProgress not found")  # tqdm
        logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)


def shown_name(text: str) -> str:
    """A name without secrets and control characters, cut off where it is long."""
    safe = " ".join(shown(text).split())
    return safe if len(safe) <= _LONGEST else f"{safe[:_LONGEST]}…"


# --- HTML: names and values are the user's, and are escaped ---------------------------


def cell(text: str, tag: str = "td", *, right: bool = False) -> str:
    style = f"text-align:{'right' if right else 'left'};padding:1px 8px"
    return f'<{tag} style="{style}">{escape(text)}</{tag}>'


def paragraph(text: str) -> str:
    return f"<p>{escape(shown(text))}</p>"


def listed_names(names: Sequence[str]) -> str:
    """The first of some names of columns, and how many others there are."""
    more = len(names) - _MOST_BARS
    listed = ", ".join(map(shown_name, names[:_MOST_BARS]))
    return f"{listed} and {more} more" if more > 0 else listed


def beside(*plots: str) -> str:
    """Plots next to one another, as far as there is room."""
    return f'<div style="display:flex;flex-wrap:wrap;gap:24px">{"".join(plots)}</div>'


def bars(title: str, counts: Sequence[tuple[str, int]]) -> str:
    highest = max((n for _, n in counts), default=0) or 1
    names = [shown_name(name) for name, _ in counts[:_MOST_BARS]]
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
    """`edges` has one number more than `counts`."""
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
    label = escape(shown_name(title))
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
