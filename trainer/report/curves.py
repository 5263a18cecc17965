"""Curves of training runs: one run, or several to compare."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import yaml

from ...operators.errors import RejuiceError
from ...operators.groups import Array
from ...pipelines.dataset.files import written
from ...pipelines.recipe.train import default_aggregate
from .. import metrics
from ..metrics import Point, component, validation

Against = Literal["step", "tokens"]
_AXES = {"step": "training step", "tokens": "tokens generated"}
_DROPPED = "Rows dropped"
_PER_TOKEN = "nats per token"
_NATS_PER = {
    "token-mean": _PER_TOKEN,
    "seq-mean-token-mean": _PER_TOKEN,
    "trajectory-turn-token-mean": _PER_TOKEN,
    "seq-mean-token-sum": "nats per response",
}
_LINES = ("-", "--", "-.", ":")
_ONE_ROW = 3
_WIDTH, _HEIGHT = 4, 4
"""Size of a panel, in inches; more than `_ONE_ROW` panels are put in two rows."""


class Curve(NamedTuple):
    """A figure of one run, at the steps where it was logged."""

    x: Array  # float64[T], ascending
    y: Array  # float64[T]


class Band(NamedTuple):
    """A figure of several runs that differ in their seeds only."""

    x: Array  # float64[T]
    mean: Array  # float64[T]
    low: Array  # float64[T], the lowest of the runs
    high: Array  # float64[T], the highest


class RunGroup(NamedTuple):
    """Runs that differ in their seeds only."""

    name: str  # their name in the legend
    points: list[list[Point]]  # the logged points of each run
    # `loss.aggregate`, by which verl also aggregates entropy, and KL divergence as a loss
    losses: str


def draw(folders: Sequence[Path], path: Path, *, against: Against = "step") -> None:
    """Draw the curves of runs as a picture.

    Raises:
        RejuiceError: a folder holds no run that has trained a step, or the path names no picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    groups = grouped(folders)
    panels = _panels(groups)
    rows = 1 if len(panels) <= _ONE_ROW else 2
    columns = -(-len(panels) // rows)
    size = (_WIDTH * columns, _HEIGHT * rows)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels, 1):
        _draw_panel(figure.add_subplot(rows, columns, place), panel, groups, against)
    if len(groups) > 1:
        handles = _handles(figure, groups)
        figure.legend(handles=handles, loc="outside upper center", ncols=min(3, len(handles)))
    else:
        figure.suptitle(_title(groups[0]))
    form = path.suffix.removeprefix(".")
    if form not in figure.canvas.get_supported_filetypes():
        raise RejuiceError(f"{path} has no known format", "end it in .png, .svg or .pdf")
    with written(path) as file:
        figure.savefig(file, dpi=110, format=form)


def grouped(folders: Sequence[Path]) -> list[RunGroup]:
    """Runs grouped by everything but their seeds, in the order in which they are given."""
    found: dict[str, list[_NamedRun]] = {}
    for folder in folders:
        document = _document(folder)
        name = str(document.get("project_name", folder.name))
        document.pop("export_path", None)  # Runs of two seeds export to different files.
        train = document.get("train", {})
        train.pop("seed", None)
        key = json.dumps(document, sort_keys=True, default=str)
        loss = train.get("loss") or {}
        # That of agents is one of tokens, too.
        losses = str(loss.get("aggregate") or default_aggregate(loss.get("policy", "vanilla")))
        found.setdefault(key, []).append(_NamedRun(folder, name, losses))
    return [
        RunGroup(name, [_points(run.folder) for run in runs], runs[0].losses)
        for name, runs in zip(_names(list(found.values())), found.values(), strict=True)
    ]


class _NamedRun(NamedTuple):
    folder: Path
    name: str
    losses: str


def _names(groups: Sequence[Sequence[_NamedRun]]) -> list[str]:
    """The names of groups of runs: their project, and their folder if projects share a name."""
    projects, stems = [runs[0].name for runs in groups], [_stem(runs) for runs in groups]
    if len(set(zip(projects, stems, strict=True))) < len(groups):
        stems = [runs[0].folder.name for runs in groups]
    return [
        project if projects.count(project) == 1 else f"{project} ({stem})"
        for project, stem in zip(projects, stems, strict=True)
    ]


def _stem(runs: Sequence[_NamedRun]) -> str:
    """Return the common beginning of their folders' names: `plain` for plain_10 and plain_11."""
    names = [run.folder.name for run in runs]
    if len(names) == 1:
        return names[0]
    shared = os.path.commonprefix(names)  # noqa: RUF071 (compares characters on purpose)
    return shared.rstrip("-_. 0123456789") or names[0]


def band(curves: Sequence[Curve]) -> Band:
    """Mean and range of curves, where all of them overlap, by linear interpolation."""
    first = max(curve.x[0] for curve in curves)
    last = min(curve.x[-1] for curve in curves)
    x = np.unique(np.concatenate([curve.x for curve in curves]))
    x = x[(x >= first) & (x <= last)]
    values = np.array([np.interp(x, curve.x, curve.y) for curve in curves])
    return Band(x, values.mean(0), values.min(0), values.max(0))


_PointsByName: TypeAlias = dict[str, Callable[[Point], float | None]]


class _Panel(NamedTuple):
    title: str
    unit: str
    lines: _PointsByName


_TURNS: _PointsByName = {"turns": lambda p: p.turns, "tool calls": lambda p: p.tool_calls}


def _panels(groups: Sequence[RunGroup]) -> list[_Panel]:
    """The panels in which something is drawn, with those of their lines that are."""
    points = [point for runs in groups for run in runs.points for point in run]
    components = {name: None for point in points for name in point.components}
    rewards: _PointsByName = {"reward": lambda p: p.reward}
    rewards |= {name: component(name) for name in components}
    last = _Panel("Gradient norm", "before clipping", {"": lambda p: p.grad_norm})
    if any(point.judged is not None for point in points):
        last = _Panel("Judgements", "share right, balanced", {"": lambda p: p.judged})
    entropy = _nats(groups, "actor/entropy", "actor/entropy_loss")
    panels = [
        _Panel("Validation accuracy", "share correct", _validations(points)),
        _Panel("Pass rate in training", "share correct", {"": lambda p: p.pass_rate}),
        _Panel("Reward and its components", "mean; components before weights", rewards),
        _Panel(_DROPPED, "share of the rows sampled", {"": _dropped}),
        _Panel("Entropy", entropy, {"": lambda p: p.entropy}),
        _Panel("Response length", "tokens, mean", {"": lambda p: p.tokens}),
        _Panel("KL divergence", _nats(groups, "actor/kl_loss"), {"": lambda p: p.kl}),
        last,
        _Panel("Turns and tool calls", "per trajectory, mean", _TURNS),
        _Panel("Tool errors", "share of tool calls", {"": lambda p: p.tool_errors}),
    ]

    def logged(lines: _PointsByName) -> _PointsByName:
        return {n: of for n, of in lines.items() if any(of(point) is not None for point in points)}

    drawn = [panel._replace(lines=logged(panel.lines)) for panel in panels]
    return [panel for panel in drawn if panel.lines]


def _validations(points: Sequence[Point]) -> _PointsByName:
    """A line for each validation set; one without a name where the runs have one set each."""
    names = {name: None for point in points for name in point.validations}
    if max((len(point.validations) for point in points), default=0) <= 1:
        return {"": lambda p: p.validation}
    return {name: validation(name) for name in names}


def _handles(figure: Any, groups: Sequence[RunGroup]) -> list[Any]:
    """For the legend: each group's line in the first panel that has one."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    return [found[_title(runs)] for runs in groups if _title(runs) in found]


def _nats(groups: Sequence[RunGroup], *aggregated: str) -> str:
    """Return the unit of figures that are aggregated as the loss is; their substitutes are not."""
    units = set[str]()
    for runs in groups:
        points = [point for run in runs.points for point in run]
        logged = any(not point.figures.keys().isdisjoint(aggregated) for point in points)
        units.add(_NATS_PER.get(runs.losses, f"nats, {runs.losses}") if logged else _PER_TOKEN)
    return units.pop() if len(units) == 1 else "nats, as loss.aggregate is"


def _draw_panel(axes: Any, panel: _Panel, groups: Sequence[RunGroup], against: Against) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    many = len(panel.lines) > 1
    for at, runs in enumerate(groups):
        for nth, (name, of) in enumerate(panel.lines.items()):
            curves = [c for run in runs.points if len((c := _curve(run, of, against)).x)]
            if not curves:
                continue
            # Colours distinguish runs; with a single run, they distinguish its lines.
            colour = f"C{(nth if len(groups) == 1 else at) % 10}"
            style = "-" if len(groups) == 1 else _LINES[nth % len(_LINES)]
            label = name if len(groups) == 1 and many else _title(runs)
            shown = band(curves)
            few = len(shown.x) <= 30
            axes.plot(
                shown.x, shown.mean, style, color=colour, label=label, marker="." if few else None
            )
            if len(curves) > 1:
                axes.fill_between(shown.x, shown.low, shown.high, color=colour, alpha=0.2, lw=0)
    axes.set_title(panel.title)
    axes.set_ylabel(panel.unit)
    axes.set_xlabel(_AXES[against])
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 100k tokens.
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    if panel.title == _DROPPED:
        axes.set_ylim(bottom=0)
    if many:
        _legend(axes, panel, groups)


def _legend(axes: Any, panel: _Panel, groups: Sequence[RunGroup]) -> None:
    if len(groups) == 1:
        axes.legend(fontsize="small")
        return
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color="grey", linestyle=_LINES[nth % len(_LINES)], label=name)
        for nth, name in enumerate(panel.lines)
    ]
    axes.legend(handles=lines, fontsize="small")


def _title(runs: RunGroup) -> str:
    seeds = len(runs.points)
    return runs.name if seeds == 1 else f"{runs.name}, mean and range of {seeds} seeds"


def _curve(points: Sequence[Point], of: Callable[[Point], float | None], against: Against) -> Curve:
    tokens = np.cumsum([point.generated for point in points])
    x = tokens if against == "tokens" else np.array([float(point.step) for point in points])
    y = [of(point) for point in points]
    known = np.array([value is not None for value in y], bool)
    return Curve(x[known], np.array([value for value in y if value is not None], float))


def _document(folder: Path) -> dict[str, Any]:
    path = folder / "recipe.yaml"
    if not path.exists():
        raise RejuiceError(f"{folder} holds no training run", "give the --output of one")
    document: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return document


def _points(folder: Path) -> list[Point]:
    points = metrics.read(folder)
    if not any(point.trained for point in points):
        raise RejuiceError(f"{folder} has trained no step", "wait for the first one")
    return points


def _dropped(point: Point) -> float | None:
    return None if point.dropped is None or not point.sampled else point.dropped / point.sampled
