"""Curves of training runs as a picture: one run, or several to compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import yaml

from ...operators.errors import RejuiceError
from ...operators.groups import Array
from ...pipelines.dataset.files import written
from .. import metrics
from ..metrics import Point, component, validation

Against = Literal["step", "tokens"]
_AXES = {"step": "training step", "tokens": "tokens generated"}
_LINES = ("-", "--", "-.", ":")
_COLUMNS = 4
_WIDTH, _HEIGHT = 4, 4
"""Size of a panel, in inches."""


class RunGroup(NamedTuple):
    name: str  # their name in the legend
    points: list[list[Point]]  # the logged points of each run


def draw(folders: Sequence[Path], path: Path, *, against: Against = "step") -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = grouped(folders)
    panels = _panels(groups)
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels, 1):
        _draw_panel(figure.add_subplot(rows, columns, place), panel, groups, against)
    if len(groups) > 1:
        pairs = (axes.get_legend_handles_labels() for axes in figure.axes)
        known = {name: handle for pair in pairs for handle, name in zip(*pair, strict=True)}
        figure.legend(known.values(), known.keys(), loc="outside upper center", ncols=3)
    else:
        figure.suptitle(groups[0].name)
    form = path.suffix.removeprefix(".")
    if form not in figure.canvas.get_supported_filetypes():
        raise RejuiceError(f"{path} has no known format", "end it in .png, .svg or .pdf")
    with written(path) as file:
        figure.savefig(file, dpi=110, format=form)


def grouped(folders: Sequence[Path]) -> list[RunGroup]:
    """Runs grouped by everything but their seeds, in the order in which they are given."""
    found: dict[str, RunGroup] = {}
    for folder in folders:
        if not (folder / "recipe.yaml").exists():
            raise RejuiceError(f"{folder} holds no training run", "give the --output of one")
        points = metrics.read(folder)
        if not any(point.trained for point in points):
            raise RejuiceError(f"{folder} has trained no step", "wait for the first one")
        document = yaml.safe_load((folder / "recipe.yaml").read_text("utf-8"))
        document.pop("export_path", None)  # Runs of two seeds export to different files.
        document.get("train", {}).pop("seed", None)
        name = str(document.get("project_name", folder.name))
        name = name if len(folders) == 1 else f"{name} ({folder.name})"
        key = json.dumps(document, sort_keys=True, default=str)
        found.setdefault(key, RunGroup(name, [])).points.append(points)
    return [
        each._replace(name=f"{each.name}, mean and range of {len(each.points)} seeds")
        if len(each.points) > 1
        else each
        for each in found.values()
    ]


def band(curves: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, Array, Array]:
    """x, mean, lowest and highest of curves, where all of them overlap, interpolated."""
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    x = np.unique(np.concatenate([x for x, _ in curves]))
    x = x[(x >= first) & (x <= last)]
    values = np.array([np.interp(x, *curve) for curve in curves])
    return x, values.mean(0), values.min(0), values.max(0)


_PointsByName: TypeAlias = dict[str, Callable[[Point], float | None]]


class _Panel(NamedTuple):
    title: str
    unit: str
    lines: _PointsByName


_TURNS: _PointsByName = {"turns": lambda p: p.turns, "tool calls": lambda p: p.tool_calls}


def _panels(groups: Sequence[RunGroup]) -> list[_Panel]:
    points = [point for runs in groups for run in runs.points for point in run]
    sets = {name: validation(name) for point in points for name in point.validations}
    if max((len(point.validations) for point in points), default=0) <= 1:
        sets = {"": lambda p: p.validation}
    components = {name: component(name) for point in points for name in point.components}
    panels = [
        _Panel("Validation accuracy", "share correct", sets),
        _Panel("Pass rate in training", "share correct", {"": lambda p: p.pass_rate}),
        _Panel(
            "Reward and its components",
            "mean; components before weights",
            {"reward": lambda p: p.reward, **components},
        ),
        _Panel("Rows dropped", "share of the rows sampled", {"": _dropped}),
        _Panel("Entropy", "nats, as the loss aggregates", {"": lambda p: p.entropy}),
        _Panel("Response length", "tokens, mean", {"": lambda p: p.tokens}),
        _Panel("KL divergence", "nats", {"": lambda p: p.kl}),
        _Panel("Gradient norm", "before clipping", {"": lambda p: p.grad_norm}),
        _Panel("Judgements", "share right, balanced", {"": lambda p: p.judged}),
        _Panel("Turns and tool calls", "per trajectory, mean", _TURNS),
        _Panel("Tool errors", "share of tool calls", {"": lambda p: p.tool_errors}),
    ]

    def logged(lines: _PointsByName) -> _PointsByName:
        return {n: of for n, of in lines.items() if any(of(point) is not None for point in points)}

    drawn = [panel._replace(lines=logged(panel.lines)) for panel in panels]
    return [panel for panel in drawn if panel.lines]


def _draw_panel(axes: Any, panel: _Panel, groups: Sequence[RunGroup], against: Against) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import EngFormatter, MaxNLocator

    many, alone = len(panel.lines) > 1, len(groups) == 1
    for at, runs in enumerate(groups):
        for nth, (name, of) in enumerate(panel.lines.items()):
            curves = [c for run in runs.points if len((c := _curve(run, of, against))[0])]
            if not curves:
                continue
            # Colours distinguish runs; with a single run, they distinguish its lines.
            colour = f"C{(nth if alone else at) % 10}"
            style = "-" if alone else _LINES[nth % len(_LINES)]
            x, mean, low, high = band(curves)
            marker = "." if len(x) <= 30 else None
            label = name if alone else runs.name
            axes.plot(x, mean, style, color=colour, label=label, marker=marker)
            if len(curves) > 1:
                axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
    axes.set(title=panel.title, ylabel=panel.unit, xlabel=_AXES[against])
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 100k tokens.
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(alpha=0.3)
    if many and alone:
        axes.legend(fontsize="small")
    elif many:
        styles = zip(panel.lines, _LINES * len(panel.lines), strict=False)
        lines = [Line2D([], [], color="grey", linestyle=x, label=name) for name, x in styles]
        axes.legend(handles=lines, fontsize="small")


def _curve(
    points: Sequence[Point], of: Callable[[Point], float | None], against: Against
) -> tuple[Array, Array]:
    tokens = np.cumsum([point.generated for point in points])
    x = tokens if against == "tokens" else np.array([float(point.step) for point in points])
    y = [of(point) for point in points]
    known = np.array([value is not None for value in y], bool)
    return x[known], np.array([value for value in y if value is not None], float)


def _dropped(point: Point) -> float | None:
    return None if point.dropped is None or not point.sampled else point.dropped / point.sampled
