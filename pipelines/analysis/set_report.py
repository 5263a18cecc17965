"""Print what became of the rows of a training run, or of one of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text

from ...operators.compute import pc
from .figures import SetFigures, set_figures
from .funnel import set_funnel, summed
from .rows import KEPT, stored_rows
from .show_funnel import LOG_WIDTH, missing_line, print_steps
from .show_no_signal import no_signal_of_sets
from .stored import SetKind, Stored, StoredSet


class _SetReport(NamedTuple):
    figures: SetFigures
    rows: int
    kept: int


def show_training(stored: Stored, console: Console) -> int:
    """Print the funnel, groups, components and missing rewards of all sets of each kind together.

    Args:
        stored: a training run or step.
        console: where to print.

    Returns:
        How many rows are left.
    """
    if not console.is_terminal:
        console.width = LOG_WIDTH
    kept = 0
    for kind in ("answers", "judgements"):
        sets = [one for one in stored.sets if one.kind == kind]
        if sets:
            kept += _show_kind(kind, sets, console)
    if not stored.sets:
        console.print(Text(f"{stored.path} keeps no rollouts (train.keep_rollouts: false)"))
        return 1  # Nothing is known of its rows.
    return kept


def _show_kind(kind: SetKind, sets: Sequence[StoredSet], console: Console) -> int:
    known = [one for one in sets if not one.incomplete]
    reports = [_report(one) for one in known]
    if known:
        names = known[0].name if len(known) == 1 else f"{known[0].name} to {known[-1].name}"
        print_steps(names, summed(each.figures.funnel for each in reports), console)
        for line in (*_lines(kind, reports), *no_signal_of_sets(known)):
            console.print(Text(line), soft_wrap=True)
    for one in (one for one in sets if one.incomplete):
        console.print(Text(f"left out: {one.incomplete}"), soft_wrap=True)
    others = sum(int(one.final().num_rows) for one in sets if one.incomplete)
    return others + sum(each.kept for each in reports)


def _report(one: StoredSet) -> _SetReport:
    rows = stored_rows(one)
    funnel = set_funnel(rows, [list(one.applied(part)) for part in range(one.parts)])
    unit = "tokens" if rows.table["tokens"].null_count < rows.table.num_rows else "characters"
    lengths_N = np.array(pc.fill_null(rows.table[unit], -1), np.int32)
    kept = int((np.asarray(rows.table["fate"]) == KEPT).sum())
    return _SetReport(set_figures(rows, funnel, lengths_N), rows.table.num_rows, kept)


def _lines(kind: SetKind, reports: Sequence[_SetReport]) -> Iterator[str]:
    """Groups, and each component: its mean, its share of the advantages, and why it is missing."""
    kept, rows = sum(each.kept for each in reports), sum(each.rows for each in reports)
    yield f"{kept:,} of {rows:,} {kind} left"
    groups = [each.figures.groups for each in reports]
    total = [sum(of_all) for of_all in zip(*(each[:6] for each in groups), strict=True)]
    has_advantages = any(sum(each.figures.advantages.counts) for each in reports)
    signal = f"{total[5]:,} without signal" if has_advantages else "no step computes advantages"
    yield (
        f"groups       {total[0]:,}: {total[1]:,} all right, {total[3]:,} mixed, "
        f"{total[2]:,} all wrong, {total[4]:,} not graded; {signal}"
    )
    names = dict.fromkeys(name for each in reports for name in each.figures.components)
    for name in names:
        found = [x.figures.components[name] for x in reports if name in x.figures.components]
        n = sum(each.n for each in found)
        mean = sum(each.mean * each.n for each in found if each.n) / n if n else float("nan")
        shares = [each.variance_share for each in found if np.isfinite(each.variance_share)]
        share = f"; {np.mean(shares):.0%} of the advantages' variance" if shares else ""
        mean_text = f"{mean:.3f}" if n else "-"
        yield f"{name:<12} mean {mean_text} of {n:,}{share}"
    missing = {name: Counter[str]() for name in names}
    for each in reports:
        for name, component in each.figures.components.items():
            missing[name].update(component.missing)
    yield from missing_line({name: dict(counts) for name, counts in missing.items() if counts})
