"""Print the differences of two recipes or runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...operators.visible import visible
from .change import SetChange
from .comparison import KINDS, Comparison
from .diff import Diff, SetDiff
from .show_comparison import json_lines

_WIDTH = 140
_MOST_STEPS = 5
_SIDES = (("A", "before"), ("B", "after"))
_MOST_FIELDS = 20
_MOST_SHOWN = 3
_WIDEST = 70
_METRICS = {
    "reward": "rejuice/reward",
    "pass rate": "rejuice/pass_rate",
    "tokens": "response_length/mean",
    "entropy": "actor/entropy",
}


def show_diff(found: Diff, command: str, console: Console) -> None:
    """Print the differences.

    Args:
        found: the differences.
        command: as it was given, for the lines that recommend it with `--rows`.
        console: where to print.
    """
    if not console.is_terminal:
        console.width = _WIDTH
    lines = [f"A            {found.paths[0]}", f"B            {found.paths[1]}"]
    fields = list(found.fields) or ["the same: no field differs"]
    for name, text in zip(["recipe", *[""] * len(fields)], fields[:_MOST_FIELDS], strict=False):
        lines.append(f"{name:<13}{visible(text)}")
    if len(fields) > _MOST_FIELDS:
        lines.append(f"{'':<13}... and {len(fields) - _MOST_FIELDS} more fields")
    lines += [f"{path} has not been run: there are no rows to compare" for path in found.not_run]
    _print(lines, console)
    if found.points:
        console.print(_over_steps(found.points))
        other = found.other_samples
        same = "the same responses in all common steps"
        _print(
            [f"sampled      {same if other is None else f'others from step {other} on'}"], console
        )
    for each in found.sets:
        _print(_heading(each), console)
        _print(_common(each.common), console)
        console.print(_figures(each.change))
        console.print(_components(each.change))
        _print([*_by_chance(each.change), *_details(each, command)], console)


def show_diff_rows(found: Diff, kind: str) -> None:
    """Print what a figure is made of, as JSON lines: rows, prompts or responses."""
    for each in found.sets:
        if kind in KINDS:
            if each.common is not None:
                for line in json_lines(each.common, kind):
                    typer.echo(line)
        elif kind == "prompts":
            for moved in each.change.moved:
                typer.echo(json.dumps({"sets": each.names, **moved._asdict()}))
        else:
            for text, n in each.new.items():
                typer.echo(json.dumps({"sets": each.names, "response": text, "rows": n}))


def _print(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _heading(found: SetDiff) -> list[str]:
    return [f"rows         of A: {found.names[0]}; of B: {found.names[1]}"]


def _common(found: Comparison | None) -> list[str]:
    """The rows that both sampled."""
    if found is None:
        return ["sampled      no response in both"]
    n, counts = found.rows.num_rows, {kind: found.count(kind) for kind in KINDS}
    if not _differ(found):
        return [f"sampled      {n:,} rows in both, all with the same fate, reward and advantage"]
    why = {kind: _listed(found.reasons(kind)) for kind in ("gained", "lost")}
    without = [side for side, when in _SIDES if not _known(found, f"advantage_{when}")]
    advantages = f"no step of {' and '.join(without)} computes any"
    if not without:
        advantages = (
            f"of {found.kept_in_both:,} rows {counts['flipped']:,} change sign, "
            f"{counts['silenced']:,} become 0, {counts['woken']:,} are 0 no longer"
        )
    return [
        f"sampled      {n:,} rows in both: {found.kept_in_both:,} kept in both, "
        f"{counts['gained']:,} only in B{why['gained']}, {counts['lost']:,} only in A{why['lost']}",
        f"advantages   {advantages}",
        f"rank         correlation of rewards within groups {_number(found.rank)}",
    ]


def _known(found: Comparison, name: str) -> bool:
    return bool(found.rows[name].null_count < found.rows.num_rows)


def _differ(found: Comparison) -> bool:
    rows = found.rows
    names = ("step", "reason", "reward", "advantage")
    return any(not rows[f"{name}_before"].equals(rows[f"{name}_after"]) for name in names)


def _figures(change: SetChange) -> Table:
    table = _table("", "A", "B")
    both, only_a, only_b = change.prompts
    counts = (("rows", change.rows), ("rows kept", change.kept))
    for name, values in counts:
        table.add_row(name, *(f"{value:,}" for value in values))
    table.add_row("prompts", f"{both + only_a:,}", f"{both + only_b:,}, {both:,} in both")
    rates = (
        ("mean reward", change.reward),
        ("pass rate", change.pass_rate),
        ("groups without signal", change.silent),
    )
    for name, numbers in rates:
        table.add_row(name, *map(_number, numbers))
    table.add_row("mean length", *(f"{value:,.1f}" for value in change.length))
    return table


def _components(change: SetChange) -> Table:
    headings = ("A", "B", "difference", "by its values", "by its weight", "missing")
    table = _table("adds to the mean reward", *headings)
    for name, each in change.components.items():
        before, after = each.added
        missing = " -> ".join("-" if math.isnan(x) else f"{x:.1%}" for x in each.missing)
        signed = (after - before, each.by_values, each.by_weight)
        cells = [_number(before), _number(after), *map(_signed, signed), missing]
        table.add_row(Text(visible(name)), *cells)
    before, after = change.reward
    if change.components:
        table.add_row("mean reward", _number(before), _number(after), _signed(after - before))
    return table


def _by_chance(change: SetChange) -> Iterator[str]:
    low, high = change.by_chance
    before, after = change.reward
    if math.isfinite(low) and before != after:
        verdict = "chance alone may explain it" if low <= 0 <= high else "more than chance explains"
        interval = f"{_signed(low)} to {_signed(high)}"
        yield f"by chance    95% interval of the difference {interval}: {verdict}"


def _details(found: SetDiff, command: str) -> Iterator[str]:
    for each in found.change.moved[:_MOST_SHOWN]:
        rewards = f"{each.before:.3f} -> {each.after:.3f}"
        yield f"moved        prompt {visible(each.prompt_id)}: {rewards}"
    for text, n in list(found.new.items())[:_MOST_SHOWN]:
        shown = visible(text, one_line=True)
        cut = shown if len(shown) <= _WIDEST else f"{shown[:_WIDEST]}…"
        yield f"new in B     {n:,} rows: {cut}"
    kinds = [kind for kind in KINDS if found.common is not None and found.common.count(kind)]
    kinds += ["prompts"] if found.change.moved else []
    kinds += ["new"] if found.new else []
    if kinds:
        others = f", or {', '.join(kinds[1:])}" if kinds[1:] else ""
        yield f"details      {command} --rows {kinds[0]}{others}"


def _over_steps(
    points: Mapping[int, tuple[Mapping[str, float], Mapping[str, float]]],
) -> Table:
    """The metrics of two runs at steps that both have, from the first to the last."""
    known = {
        title: name
        for title, name in _METRICS.items()
        if any(name in both[0] and name in both[1] for both in points.values())
    }
    table = _table("step", *(f"{title} {side}" for title in known for side in "AB"))
    numbers = sorted(step for step, both in points.items() if "rejuice/reward" in both[0])
    every = max(1, math.ceil((len(numbers) - 1) / (_MOST_STEPS - 1)))
    shown = list(dict.fromkeys([*numbers[::every], *numbers[-1:]]))
    for step in shown:
        cells = [
            _number(side.get(name, math.nan)) for name in known.values() for side in points[step]
        ]
        table.add_row(str(step), *cells)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _listed(reasons: Mapping[str, int]) -> str:
    listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return f" ({listed})" if listed else ""


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # No -0.000.


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
