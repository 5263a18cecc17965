"""Curves of training runs as a picture: one run, or several to compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import yaml

from ...operators.errors import RejuiceError
from ...operators.groups import Array
from ...pipelines.dataset.files import written
from .. import metrics
from ..metrics import Point
from .watch import Figure, figures, validation_figures

Against = Literal["step", "tokens"]
_AXES = {"step": "training step", "tokens": "tokens generated"}
_LINES = ("-", "--", "-.", ":")
_COLUMNS = 4
_SIZE = 4  # of a panel, in inches


class RunGroup(NamedTuple):
    name: str  # their name in the legend
    points: list[list[Point]]  # the logged points of each run


def draw(groups: Sequence[RunGroup], path: Path, *, against: Against = "step") -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(groups)
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(_SIZE * columns, _SIZE * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, panel) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, place)
        axes.set(title=title, ylabel=panel[0].unit, xlabel=_AXES[against])
        _draw_panel(axes, panel, groups, against)
    if len(groups) > 1:
        pairs = (axes.get_legend_handles_labels() for axes in figure.axes)
        known = {name: handle for pair in pairs for handle, name in zip(*pair, strict=True)}
        figure.legend(known.values(), known.keys(), loc="outside upper center", ncols=3)
    else:
        figure.suptitle(groups[0].name)
    with written(path) as file:
        figure.savefig(file, dpi=110, format=path.suffix.removeprefix("."))


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


def _panels(groups: Sequence[RunGroup]) -> dict[str, list[Figure]]:
    """The figures of a report by title, each with those below it; of several sets, without."""
    points = [point for runs in groups for run in runs.points for point in run]
    of_sets = validation_figures(points)
    sets = [each for each in of_sets if not each.name.startswith(" ")]
    found = {"validation accuracy": sets if len(sets) > 1 else of_sets}
    norm = Figure("gradient norm", lambda p: p.grad_norm, unit="before clipping")
    dropped = Figure("rows dropped", _dropped, unit="share of the rows sampled")
    for each in {each.name: each for each in (*figures(points), norm, dropped)}.values():
        if each.name.startswith(" "):
            found.setdefault("reward", []).append(each)
        elif any(each.of(point) is not None for point in points):
            found[each.name] = [each]
    return {title: panel for title, panel in found.items() if panel}


def _dropped(point: Point) -> float | None:
    return None if point.dropped is None or not point.sampled else point.dropped / point.sampled


def _draw_panel(
    axes: Any, panel: Sequence[Figure], groups: Sequence[RunGroup], against: Against
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import EngFormatter, MaxNLocator

    many, alone = len(panel) > 1, len(groups) == 1
    for at, runs in enumerate(groups):
        for nth, figure in enumerate(panel):
            curves = [c for run in runs.points if len((c := _curve(run, figure.of, against))[0])]
            if not curves:
                continue
            # Colours distinguish runs; with a single run, they distinguish its lines.
            colour = f"C{(nth if alone else at) % 10}"
            style = "-" if alone else _LINES[nth % len(_LINES)]
            x, mean, low, high = band(curves)
            marker = "." if len(x) <= 30 else None
            label = figure.name.strip() if alone else runs.name
            axes.plot(x, mean, style, color=colour, label=label, marker=marker)
            if len(curves) > 1:
                axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 100k tokens.
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(alpha=0.3)
    if many and alone:
        axes.legend(fontsize="small")
    elif many:
        styles = zip(panel, _LINES * len(panel), strict=False)
        lines = [Line2D([], [], color="grey", linestyle=x, label=f.name.strip()) for f, x in styles]
        axes.legend(handles=lines, fontsize="small")


def _curve(
    points: Sequence[Point], of: Callable[[Point], float | None], against: Against
) -> tuple[Array, Array]:
    tokens = np.cumsum([point.generated for point in points])
    x = tokens if against == "tokens" else np.array([float(point.step) for point in points])
    y = [of(point) for point in points]
    known = np.array([value is not None for value in y], bool)
    return x[known], np.array([value for value in y if value is not None], float)
