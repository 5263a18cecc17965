"""Print the funnel of a run: rows in, dropped and out, step by step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..dataset.remote import AnyPath, to_path
from ..dataset.run_folder import run_folder
from ..engine.audit_log import NEW_ROW
from ..engine.decision_files import decided_rows
from ..engine.report import Report, StepReport
from ..engine.retryable import MISSING
from .listed import listed
from .show_no_signal import no_signal_of_report

LOG_WIDTH = 140
"""Columns of a log. A terminal with fewer has no room for drop reasons and details in the table."""
_REWARD = "reward_"
_GRADED = ("verdict", "reward", "advantage")
"""Columns that are shown even if they are the same in all rows, as each component is: GRPO learns
nothing then."""
_MOST_MESSAGES = 3
"""Lines about what Data-Juicer has logged, for each step."""


def show_funnel(report: Report, console: Console, path: AnyPath | None = None) -> None:
    """Print how many rows reached each step, how many remained, and why the others were dropped.

    Args:
        report: of the run.
        console: where to print.
        path: where the run is found; None: at its export.
    """
    if console.quiet:
        return
    if not console.is_terminal:
        console.width = LOG_WIDTH
    print_steps(report.project_name, report.steps, console)
    lines = (*missing_line(_missing(report)), *_closing(report))
    signal = no_signal_of_report(report, path or to_path(report.export_path))
    for line in (*lines, *signal):
        console.print(Text(line), soft_wrap=True)


def print_steps(title: str, steps: Sequence[StepReport], console: Console) -> None:
    """Print a line for each step; in a narrow terminal drop reasons are below the table."""
    is_narrow = console.width < LOG_WIDTH
    # Names and values are the user's: in a `Text`, brackets are not rich's markup.
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    table.add_column("step", no_wrap=True)
    for heading in ("rows in", "added", "dropped", "rows out", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in () if is_narrow else ("drop reasons", "details"):
        table.add_column(heading, overflow="fold")
    for step in steps:
        cells = (
            Text(step.step),
            f"{step.rows_in:,}",
            f"{step.added:,}" if step.added else "",
            f"{sum(step.dropped.values()):,}" if step.dropped else "",
            f"{step.rows_out:,}",
            "cached" if step.cached else f"{step.seconds:.2f}",
            Text(listed(step.dropped)),
            Text(_details(step)),
        )
        table.add_row(*cells[: len(table.columns)])
    console.print(table)
    if is_narrow:
        for step in (step for step in steps if step.dropped):
            line = f"{step.step} dropped: {listed(step.dropped)}"
            console.print(Text(line), soft_wrap=True)
        console.print(Text(f"(a terminal of {LOG_WIDTH} columns shows the details of each step)"))


def missing_line(missing: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Why rewards are missing, if any is: by component, how many for each reason."""
    by_component = [f"{name}: {listed(counts)}" for name, counts in missing.items()]
    if by_component:
        yield f"missing rewards: {'; '.join(by_component)}"


def _missing(report: Report) -> dict[str, dict[str, int]]:
    """By component; of a column that several steps write, the last one counts."""
    found = dict[str, dict[str, int]]()
    for step in report.steps:
        for name, figures in step.columns.items():
            if name.startswith(_REWARD) and name.endswith(MISSING) and figures.get("counts"):
                found[name.removeprefix(_REWARD).removesuffix(MISSING)] = figures["counts"]
    return found


def _closing(report: Report) -> Iterator[str]:
    folder = run_folder(to_path(report.export_path))
    if not report.rows_out:
        last = next(step for step in report.steps if not step.rows_out)
        yield f"No row is left: {last.step} dropped the last ones."
    yield f"{report.rows_out:,} rows in {report.export_path}"
    yield f"audit log and report: {folder}"
    for step in report.steps:
        yield from _logged(step)
    row = next(_traceable(folder), None) if report.cache and report.dropped else None
    if row is not None:
        words = [report.export_path, *(["--"] if row.startswith("-") else []), row]
        yield f"to trace one dropped row: rejuice explain {shlex.join(words)}"


def _logged(step: StepReport) -> Iterator[str]:
    """What Data-Juicer has logged while it did the work of a step, a line for each message."""
    for message, n in list(step.logged.items())[:_MOST_MESSAGES]:
        times = "once" if n == 1 else f"{n:,} times"
        yield f"{step.step}: Data-Juicer logged {times}: {message}"
    more = len(step.logged) - _MOST_MESSAGES
    if more > 0:
        messages = "message is" if more == 1 else "messages are"
        yield f"{step.step}: {more} more {messages} in report.json"


def _traceable(folder: AnyPath) -> Iterator[str]:
    """The ids of dropped rows; a row that an operator made without one cannot be named."""
    return (row for row in decided_rows(folder) if row and row != NEW_ROW)


def _details(step: StepReport) -> str:
    """What was retried, the columns that the step wrote, and its notes.

    Columns with a single value are left out, unless they are what a row is graded by.
    """
    parts = [f"retried: {step.retried:,}"] if step.retried else []
    for name, figures in step.columns.items():
        component = name.startswith(_REWARD) and not name.endswith(MISSING)
        if shown := _figures(figures, with_single=component or name in _GRADED):
            parts.append(f"{name}: {shown}")
    parts += [f"{note}: {value:g}" for note, value in step.notes.items() if value]
    return "; ".join(parts)


def _figures(figures: Mapping[str, Any], *, with_single: bool) -> str:
    """The figures of a column; empty where it has a single value that is left out, or none."""
    counts = figures.get("counts", {})
    if counts:
        return listed(counts) if with_single or len(counts) > 1 else ""
    if {"mean", "std", "min", "max"} <= figures.keys():
        mean = f"{round(figures['mean'], 3) + 0.0:.3f}"  # No -0.000.
        if figures["min"] != figures["max"]:
            return f"{mean} ± {figures['std']:.3f}"
        return mean if with_single else ""
    null = figures.get("null", 0)
    return f"missing {null:,}" if with_single and null else ""
