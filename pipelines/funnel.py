"""The funnel of a run, for people."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .export import run_folder
from .report import Report, StepReport

_LOG_WIDTH = 140


def show_funnel(report: Report, console: Console) -> None:
    """Print how many rows came to each step, how many were left, and why the others went."""
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    # Names and values are the user's: in a `Text`, brackets are not rich's markup.
    table = Table(title=Text(report.project_name), title_justify="left", box=None, pad_edge=False)
    table.add_column("step", no_wrap=True)
    for heading in ("rows in", "added", "dropped", "rows out", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why, and what was found", overflow="fold")
    for step in report.steps:
        table.add_row(
            Text(step.step),
            f"{step.rows_in:,}",
            f"{step.added:,}" if step.added else "",
            f"{sum(step.dropped.values()):,}" if step.dropped else "",
            f"{step.rows_out:,}",
            "cached" if step.cached else f"{step.seconds:.2f}",
            Text(_findings(step)),
        )
    console.print(table)
    folder = run_folder(Path(report.export_path))
    console.print(Text(f"{report.rows_out:,} rows in {report.export_path}"), soft_wrap=True)
    console.print(Text(f"decisions and report.json in {folder}"), soft_wrap=True)


def _findings(step: StepReport) -> str:
    parts = [f"{reason} {count:,}" for reason, count in step.dropped.items()]
    for name, figures in step.columns.items():
        if counts := figures.get("counts"):
            parts += [f"{value} {count:,}" for value, count in counts.items()]
        elif "mean" in figures:
            parts.append(f"{name} {round(figures['mean'], 3) + 0.0:.3f} ± {figures['std']:.3f}")
    parts += [f"{note} {value:g}" for note, value in step.notes.items() if value]
    return ", ".join(parts)
