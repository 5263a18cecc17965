"""What `rejuice report` and the end of a run print: the funnel."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, get_args

import numpy as np
from rich.console import Console
from rich.text import Text

from ...operators import RejuiceError
from ...operators.arrow_compute import pc
from ...operators.chats import DIALOGUES, PROMPT_ALONE, PROMPT_CUT
from ...operators.logs import visible
from ..console import LOG_WIDTH, figures_table, listed, path_text, print_lines, widen_log
from ..dataset.files import run_folder
from ..dataset.remote import AnyPath, to_path
from ..engine.report import (
    COUNTS,
    MISSING,
    NEW_ROW,
    AuditLog,
    ColumnFigures,
    Report,
    StepLog,
    StepReport,
    decided_rows,
    masked_by,
)
from ..engine.steps import AppliedStep
from ..recipe.steps import gives_credit
from .figures import SetFigures, set_figures, source_figures, source_lines
from .no_signal import DECISIVE, no_signal_of_sets
from .rows import BY_TRAINING, RowTable, joined_rows, stored_rows
from .stored import SetKind, Stored, StoredSet, open_stored, span_text

# --- Print the funnel of a run: rows in, dropped and out, step by step ----------------

_REWARD = "reward_"
_GRADED = ("verdict", "reward", "advantage")
"""Columns that are shown even if they are the same in all rows, as each component is: GRPO learns
nothing then."""
_NOTED = {
    PROMPT_CUT: "responses began with their prompt, which was cut",
    PROMPT_ALONE: "responses are their prompt, or its end: no dialogue is read in that column",
    DIALOGUES: "questions were read as dialogues",
}
_MOST_MESSAGES = 3
"""Lines about what Data-Juicer has logged, for each step."""


def show_end_of_run(report: Report, console: Console) -> None:
    """The funnel of a run that this process has made; it is only read where it has sources."""
    if not console.quiet:
        show_funnel(report, console)
        columns = chain(report.columns, *(step.written for step in report.steps))
        if "data_source" in columns:
            show_sources(to_path(report.export_path), console)


def show_funnel(report: Report, console: Console, path: AnyPath | None = None) -> None:
    widen_log(console)
    print_steps(report.project_name, report.steps, console)
    lines = (*missing_line(_missing_counts(report)), *_closing(report))
    signal = _no_signal(report, path or to_path(report.export_path))
    print_lines((*lines, *signal), console)


def _no_signal(report: Report, path: AnyPath) -> Iterator[str]:
    """Yield a line about a run where none of its groups has a signal; else nothing."""
    written: dict[str, ColumnFigures] = {}
    for step in report.steps:
        written |= step.columns
    advantage = written.get("advantage", {})
    silent = not advantage.get("n") or advantage.get("min") == advantage.get("max") == 0
    if not silent or written.keys().isdisjoint(DECISIVE):
        return  # Nothing of the run needs to be read.
    try:
        (one,) = open_stored(path).sets
        if one.incomplete and "advantage" not in written:
            return  # Of the rows that are left, two may not differ because others were dropped.
        yield from no_signal_of_sets([one])
    except (RejuiceError, OSError):  # Whatever of the run is gone: its report is not.
        if "advantage" in written:
            counts = listed(written.get("verdict", {}).get("counts", {}))
            yield f"No group has a signal: all advantages are 0{counts and f' ({counts})'}."


def show_sources(path: AnyPath, console: Console) -> None:
    try:
        sets = open_stored(path).sets
        bases = [one.base(0).column_names for one in sets if one.parts]
        if not any("data_source" in names for names in bases):
            return  # No row needs to be read.
        found = source_figures(joined_rows([stored_rows(one) for one in sets]))
    except (RejuiceError, OSError):  # Whatever of the run is gone: its report is not.
        return
    print_lines(map(visible, source_lines(found)), console)


def print_steps(title: str, steps: Sequence[StepReport], console: Console) -> None:
    """A line for each step; in a narrow terminal drop reasons are below the table."""
    is_narrow = console.width < LOG_WIDTH
    # Names and values are the user's: in a `Text`, brackets are not rich's markup.
    table = figures_table("step", *COUNTS, title=Text(title))
    for heading in () if is_narrow else ("drop reasons", "details"):
        table.add_column(heading, overflow="fold")
    for step in steps:
        words = () if is_narrow else (Text(listed(step.dropped)), Text(_details(step)))
        table.add_row(Text(step.step), *step.counts(), *words)
    console.print(table)
    if is_narrow:
        dropped = [f"{x.step} dropped: {listed(x.dropped)}" for x in steps if x.dropped]
        print_lines(dropped, console)
        console.print(Text(f"(a terminal of {LOG_WIDTH} columns shows the details of each step)"))


def missing_line(missing: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    by_component = [f"{name}: {listed(counts)}" for name, counts in missing.items()]
    if by_component:
        yield f"missing rewards: {'; '.join(by_component)}"


def _missing_counts(report: Report) -> dict[str, dict[str, int]]:
    """By component; of a column that several steps write, the last one counts."""
    found = dict[str, dict[str, int]]()
    for step in report.steps:
        for name, figures in step.columns.items():
            is_reason = name.startswith(_REWARD) and name.endswith(MISSING)
            if is_reason and figures.get("counts"):
                found[name.removeprefix(_REWARD).removesuffix(MISSING)] = figures["counts"]
    return found


def _closing(report: Report) -> Iterator[str]:
    folder = run_folder(to_path(report.export_path))
    if not report.rows_out:
        last = next(step for step in report.steps if not step.rows_out)
        yield f"No row is left: {last.step} dropped the last ones."
    export = path_text(report.export_path)
    yield f"{report.rows_out:,} rows in {export}"
    yield f"audit log and report: {path_text(folder)}"
    for step in report.steps:
        if step.unmatched:
            yield f"warning: {step.step}: {step.unmatched}"
    for step in report.steps:
        yield from _logged(step)
        for note, text in _NOTED.items():
            if n := step.notes.get(note):
                yield f"{step.step}: {n:,.0f} {text}"
    # A row that an operator made without an id cannot be named.
    rows = (row for row in decided_rows(folder) if row and row != NEW_ROW)
    row = next(rows, None) if report.cache and report.dropped else None
    if row is not None:
        words = [export, *(["--"] if row.startswith("-") else []), row]
        yield f"to trace one dropped row: rejuice explain {shlex.join(words)}"


def _logged(step: StepReport) -> Iterator[str]:
    for message, n in list(step.logged.items())[:_MOST_MESSAGES]:
        times = "once" if n == 1 else f"{n:,} times"
        yield f"{step.step}: logged {times}: {message}"
    more = len(step.logged) - _MOST_MESSAGES
    if more > 0:
        messages = "message is" if more == 1 else "messages are"
        yield f"{step.step}: {more} more {messages} in report.json"


def _details(step: StepReport) -> str:
    """Columns with a single value are left out, unless they are what a row is graded by."""
    where = step.matched is not None
    parts = [f"applied to {step.matched:,} of {step.rows_in:,} rows"] if where else []
    parts += [f"retried: {step.retried:,}"] if step.retried else []
    for name, figures in step.columns.items():
        component = name.startswith(_REWARD) and not name.endswith(MISSING)
        if weight := masked_by(name):
            if masked := figures.get("mean"):
                whose = "their responses" if where else "a response"
                parts.append(f"{weight} masks {masked:.1%} of the tokens of {whose}")
        elif shown := _figures(figures, with_single=component or name in _GRADED):
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
            return f"{mean} (sd {figures['std']:.3f})"
        return mean if with_single else ""
    null = figures.get("null", 0)
    return f"missing {null:,}" if with_single and null else ""


# --- What became of the rows of a training run, or of one of its steps ----------------

TRAINING = "training"
"""The name in decisions of what training itself drops, such as groups that are too many."""


def set_funnel(rows: RowTable, applied: Iterable[AppliedStep]) -> list[StepReport]:
    """What steps did to each part of some sets; seconds are 0: they are not on file."""
    log = AuditLog()
    for each in applied:
        change, seconds = each.result.change, each.result.seconds
        log.step(each.step.name).add(each.step.operator, each.before, change, seconds)
    found = [entry.report() for entry in log.steps.values()]
    by_training = rows.table.filter(pc.equal(rows.table["fate"], BY_TRAINING))["reason"]
    if not len(by_training):
        return found
    own, kept = StepLog(TRAINING), int(rows.kept_N.sum())
    own.rows_in, own.rows_out = kept + len(by_training), kept
    own.dropped = Counter(map(str, by_training.to_pylist()))
    return [*found, own.report()]


class KindFigures(NamedTuple):
    """All sets of a kind together, without those that have not what steps did on file."""

    sets: Sequence[StoredSet]
    rows: RowTable
    figures: SetFigures


def figures_by_kind(stored: Stored) -> dict[SetKind, KindFigures]:
    found = dict[SetKind, KindFigures]()
    for kind in get_args(SetKind):
        sets = [one for one in stored.sets if one.kind == kind and not one.incomplete]
        if sets:
            rows = joined_rows([stored_rows(one) for one in sets])
            parts = (one.applied(part) for one in sets for part in range(one.parts))
            funnel = set_funnel(rows, chain.from_iterable(parts))
            found[kind] = KindFigures(sets, rows, set_figures(rows, funnel))
    return found


def report_facts(stored: Stored) -> dict[str, Any]:
    by_kind = figures_by_kind(stored)
    found: dict[str, Any] = {str(kind): each.figures for kind, each in by_kind.items()}
    left_out = {one.name: one.incomplete for one in stored.sets if one.incomplete}
    found |= {"left_out": left_out, "steps": stored.points}
    return {"rows_out": _rows_left(stored, by_kind), **found}


def _rows_left(stored: Stored, by_kind: Mapping[SetKind, KindFigures]) -> int | None:
    """Those of all sets; None: the run has none on file, so nothing is known of its rows."""
    sizes = [int(each.rows.kept_N.sum()) for each in by_kind.values()]
    sizes += [int(one.final().num_rows) for one in stored.sets if one.incomplete]
    return sum(sizes) if stored.sets else None


def show_training(stored: Stored, console: Console) -> int | None:
    """Print the funnel, groups, components and missing rewards; how many rows are left."""
    widen_log(console)
    by_kind = figures_by_kind(stored)
    for kind, (sets, rows, figures) in by_kind.items():
        print_steps(span_text([one.name for one in sets]), figures.funnel, console)
        print_lines((*_lines(kind, sets, rows, figures), *no_signal_of_sets(sets, rows)), console)
    for one in (one for one in stored.sets if one.incomplete):
        print_lines([f"left out: {one.incomplete}"], console)
    if not stored.sets:
        train = stored.read_recipe().head.train
        off = train is not None and not train.keep_rollouts
        why = "keeps no rollouts (train.keep_rollouts: false)" if off else "has no step on file"
        print_lines([f"{stored.path} {why}"], console)
    return _rows_left(stored, by_kind)


def _lines(
    kind: SetKind, sets: Sequence[StoredSet], rows: RowTable, figures: SetFigures
) -> Iterator[str]:
    """Groups, and each component: its mean, its share of the advantages, and why it is missing."""
    groups = figures.groups
    yield f"{rows.kept_N.sum():,} of {rows.table.num_rows:,} {kind} left"
    signal = f"{groups.without_signal:,} without signal"
    if not sum(figures.advantages.counts):
        has_credit = any(gives_credit(step.operator) for one in sets for step in one.recipe.steps)
        signal = "no row has an advantage" if has_credit else "no step computes advantages"
    yield (
        f"groups       {groups.groups:,}: {groups.all_right:,} all right, {groups.mixed:,} mixed, "
        f"{groups.all_wrong:,} all wrong, {groups.ungraded:,} not graded; {signal}"
    )
    for name, each in figures.components.items():
        share = ""
        if np.isfinite(each.variance_share):
            share = f"; {each.variance_share:.0%} of the advantages' variance"
        mean = f"{each.mean:.3f}" if each.n else "-"
        yield f"{name:<12} mean {mean} of {each.n:,}{share}"
    if figures.masked > 0:
        yield f"masked       {figures.masked:.1%} of the tokens of a response, on average"
    missing = {name: each.missing for name, each in figures.components.items() if each.missing}
    yield from missing_line(missing)
    yield from map(visible, source_lines(figures.sources))
