"""Print what `rejuice diff` finds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...operators.logs import visible
from ..console import figures_table, number_text, path_text, print_lines, widen_log
from .comparison import KINDS, advantages_text, details_lines, json_lines, reasons_text
from .diff import SetDiff, Side, by_chance, changed_recipe, pairs, set_diff

_MOST_FIELDS = 20
_MOST_SHOWN = 3
_WIDEST = 70


def show_diff(a: Side, b: Side, command: str, console: Console) -> None:
    widen_log(console)
    lines = [f"{side:<13}{path_text(each.path)}" for side, each in zip("AB", (a, b), strict=True)]
    fields = changed_recipe(a, b) or ["the same: no field differs"]
    for at, text in enumerate(fields[:_MOST_FIELDS]):
        lines.append(f"{'' if at else 'recipe':<13}{visible(text)}")
    if len(fields) > _MOST_FIELDS:
        lines.append(f"{'':<13}... and {len(fields) - _MOST_FIELDS} more fields")
    not_run = [side.path for side in (a, b) if side.stored is None]
    lines += [f"{path} has not been run: there are no rows to compare" for path in not_run]
    print_lines(lines, console)
    if a.stored is None or b.stored is None:
        return
    for one, two in pairs(a.stored, b.stored):
        show_set_diff(set_diff(one, two, (a.path, b.path)), command, console)


def show_diff_rows(a: Side, b: Side, kind: str) -> None:
    if a.stored is None or b.stored is None:
        return
    for one, two in pairs(a.stored, b.stored):
        found = set_diff(one, two, (a.path, b.path))
        moved = [each._asdict() for each in found.moved]
        new = [{"response": text, "rows": n} for text, n in found.new.items()]
        rows = {"prompts": moved, "new": new}.get(kind, [])
        lines = [json.dumps({"sets": found.names, **row}) for row in rows]
        if kind in KINDS and found.common is not None:
            lines = list(json_lines(found.common, kind))
        for line in lines:
            typer.echo(line)


def show_set_diff(found: SetDiff, command: str, console: Console) -> None:
    print_lines([*_heading(found), *_common_lines(found)], console)
    console.print(_figures(found))
    if found.components:
        console.print(_components(found))
    print_lines((*_not_split(found), *_by_chance(found), *_details(found, command)), console)


def _heading(found: SetDiff) -> Iterator[str]:
    yield f"rows         of A: {found.names[0]}; of B: {found.names[1]}"
    for side, why in zip("AB", found.left_only, strict=True):
        if why:
            yield f"{'':<13}of {side} only those that are left: {why}; what needs the others is -"


def _common_lines(sets: SetDiff) -> Iterator[str]:
    found = sets.common
    if found is None:
        yield "sampled      no response in both"
        return
    n = found.rows.num_rows
    names = ("step", "reason", "reward", "advantage")
    plain = {name: _plain(found.rows[name]) for name in found.rows.column_names}
    if all(plain[f"{name}_before"].equals(plain[f"{name}_after"]) for name in names):
        yield f"sampled      {n:,} rows in both, all with the same fate, reward and advantage"
        return
    gained, lost = (
        f"- only in {side}"
        if why
        else f"{found.counts[kind]:,} only in {side}{reasons_text(found, kind)}"
        for side, kind, why in zip("BA", ("gained", "lost"), sets.left_only, strict=True)
    )
    yield f"sampled      {n:,} rows in both: {found.kept_in_both:,} kept in both, {gained}, {lost}"
    yield f"advantages   {advantages_text(found)}"


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _figures(found: SetDiff) -> Table:
    table, sides = figures_table("", "A", "B"), found.figures
    of_a, of_b, both = found.prompts
    on_file = zip(sides, found.left_only, strict=True)
    table.add_row("rows", *("-" if left_only else f"{x.rows:,}" for x, left_only in on_file))
    table.add_row("rows kept", *(f"{side.kept:,}" for side in sides))
    table.add_row("prompts", f"{of_a:,}", f"{of_b:,}, {both:,} in both")
    table.add_row("mean reward", *(number_text(side.reward) for side in sides))
    table.add_row("pass rate", *(number_text(side.pass_rate) for side in sides))
    table.add_row("groups without signal", *(number_text(side.silent) for side in sides))
    units = [side.unit for side in sides]
    unit = f", {units[0]} and {units[1]}" if units[0] != units[1] else ""
    lengths = ("-" if math.isnan(side.length) else f"{side.length:,.1f}" for side in sides)
    table.add_row(f"mean length{unit}", *lengths)
    return table


def _components(found: SetDiff) -> Table:
    headings = ("A", "B", "difference", "by its values", "by its weight", "missing")
    table = figures_table("adds to the mean reward", *headings)
    for name, each in found.components.items():
        before, after = each.added
        missing = " -> ".join("-" if math.isnan(x) else f"{x:.1%}" for x in each.missing)
        signed = (after - before, each.by_values, each.by_weight)
        cells = [number_text(before), number_text(after), *map(_signed, signed), missing]
        table.add_row(Text(visible(name)), *cells)
    of_all = {"of no component": found.rest} if any(found.rest) else {}
    rewards = (found.figures[0].reward, found.figures[1].reward)
    for title, (before, after) in {**of_all, "mean reward": rewards}.items():
        table.add_row(title, number_text(before), number_text(after), _signed(after - before))
    return table


def _not_split(found: SetDiff) -> Iterator[str]:
    for at, side in enumerate(found.figures):
        added = [each.added[at] for each in found.components.values()]
        if any(map(math.isnan, added)) and math.isfinite(side.reward):
            why = found.left_only[at] and "with values that are on file "
            yield f"components   of {'AB'[at]} not known: no step {why}sums its reward"


def _by_chance(found: SetDiff) -> Iterator[str]:
    low, high = by_chance(found.figures)
    if math.isfinite(low) and found.figures[0].reward != found.figures[1].reward:
        verdict = "chance alone may explain it" if low <= 0 <= high else "more than chance explains"
        interval = f"{_signed(low)} to {_signed(high)}"
        yield f"by chance    95% interval of the difference {interval}: {verdict}"


def _details(found: SetDiff, command: str) -> Iterator[str]:
    for each in found.moved[:_MOST_SHOWN]:
        rewards = f"{each.before:.3f} -> {each.after:.3f}"
        yield f"moved        prompt {visible(each.prompt_id)}: {rewards}"
    for text, n in list(found.new.items())[:_MOST_SHOWN]:
        shown = visible(text, one_line=True)
        cut = shown if len(shown) <= _WIDEST else f"{shown[:_WIDEST]}…"
        yield f"new in B     {n:,} rows: {cut}"
    kinds = [kind for kind in KINDS if found.common is not None and found.common.counts[kind]]
    kinds += [kind for kind, some in (("prompts", found.moved), ("new", found.new)) if some]
    yield from details_lines(command, kinds)


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 3) + 0.0:+.3f}"  # No -0.000.
