"""Two stored runs on data: the rows that both sampled, and what changed over all their rows.

Stored a, Stored b ──pairs──> (StoredSet, StoredSet)... ──set_diff──> SetDiff
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...operators import DataError
from ...operators.arrow_compute import pc
from ...operators.groups import Array, Groups
from ...operators.logs import visible
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..console import figures_table, number_text, path_text, print_lines, widen_log
from ..recipe.recipe import Recipe
from .comparison import (
    KINDS,
    Comparison,
    SetChange,
    advantages_text,
    compare,
    details_lines,
    json_lines,
    new_responses,
    reasons_text,
    recipe_differences,
    set_change,
)
from .rows import RowTable, group_numbers, stored_rows
from .stored import Stored, StoredSet


class Diff(NamedTuple):
    """Two recipes, and what their runs made of rows."""

    paths: tuple[Path, Path]  # as they were given
    fields: Sequence[str]  # of the recipes that differ, see `recipe_differences`
    sets: Sequence[SetDiff]  # of the runs; none where one of them has not been run
    not_run: Sequence[Path]  # the recipes that have not been run
    # of two training runs, their metrics by the steps that both have
    points: Mapping[int, tuple[Mapping[str, float], Mapping[str, float]]]
    # of two training runs, the first step with other responses; None: there is none
    other_samples: int | None


class SetDiff(NamedTuple):
    """Two sets of rows."""

    names: tuple[str, str]  # of the two
    # why the dropped rows of each are not on file; empty where they are
    left_only: tuple[str, str]
    # the rows that both sampled, by their `response_id`; None: there are none
    common: Comparison | None
    change: SetChange  # over all rows of each
    # by the `prompt_id` of a group, N of `rejuice explain PATH 'row N'` where it is that in both
    row_numbers: Mapping[str, int]
    # responses that are frequent in the second and absent from the first, with counts; none, where
    # dropped rows of the first are not on file
    new: Mapping[str, int]


class Side(NamedTuple):
    """One of the two that are compared."""

    path: Path  # as it was given
    recipe: Recipe  # as it is now, or as it ran
    stored: Stored | None  # None: the recipe has not been run


def diff_of(a: Side, b: Side) -> Diff:
    """Return the differences of two recipes or runs.

    Raises:
        RejuiceError: files of a run are damaged, or two training runs share no step.
    """
    paths, fields = (a.path, b.path), recipe_differences(a.recipe, b.recipe)
    one, two = a.stored, b.stored
    if one is None or two is None:
        not_run = [side.path for side in (a, b) if side.stored is None]
        return Diff(paths, fields, (), not_run, {}, None)
    sets = [set_diff(x, y, _names((a.path, x), (b.path, y))) for x, y in pairs(one, two)]
    points, other = dict[int, Any](), None
    if one.kind == two.kind == "training run":
        of_both = [{int(point["step"]): point for point in each.points} for each in (one, two)]
        points = {n: (of_both[0][n], of_both[1][n]) for n in of_both[0] if n in of_both[1]}
        other = first_other_samples(one, two)
    return Diff(paths, fields, sets, (), points, other)


def _names(*both: tuple[Path, StoredSet]) -> tuple[str, str]:
    """Return the paths, with the name of the set where a path is not that of a step."""
    a, b = (
        f"{path_text(path)}, {one.name}"
        if one.name and path.name != f"{one.training_step:06d}"
        else path_text(path)
        for path, one in both
    )
    return a, b


def pairs(a: Stored, b: Stored) -> list[tuple[StoredSet, StoredSet]]:
    """Return the sets to compare: of training runs, those of the last step that both have.

    Of a training run beside a step or an export, its own last step.

    Raises:
        DataError: there are none.
    """
    steps = [{one.training_step for one in each.sets} for each in (a, b)]
    if a.kind == b.kind == "training run":
        steps = [steps[0] & steps[1]] * 2
    last = [max((step or 0 for step in of_one), default=0) for of_one in steps]
    chosen = [
        [one for one in each.sets if (one.training_step or 0) == step]
        for each, step in zip((a, b), last, strict=True)
    ]
    by_kind = [{one.kind: one for one in sets} for sets in chosen]
    found = [(by_kind[0][kind], by_kind[1][kind]) for kind in by_kind[0] if kind in by_kind[1]]
    if not found:
        raise DataError(
            f"{a.path} and {b.path} have no training step in common",
            "give steps of them, such as RUN/steps/000012",
        )
    return found


def set_diff(a: StoredSet, b: StoredSet, names: tuple[str, str]) -> SetDiff:
    """Return the differences of two sets.

    Raises:
        RejuiceError: their files are damaged.
    """
    rows = stored_rows(a), stored_rows(b)
    weights = _weights(a), _weights(b)
    left_a, left_b = (
        "" if found.with_dropped else one.incomplete
        for one, found in zip((a, b), rows, strict=True)
    )
    new = {} if left_a else new_responses(_responses(a), _responses(b))
    return SetDiff(
        names,
        (left_a, left_b),
        _common(*rows),
        set_change(*rows, weights),
        _row_numbers((a, rows[0]), (b, rows[1])),
        new,
    )


def _row_numbers(*sides: tuple[StoredSet, RowTable]) -> dict[str, int]:
    of_a, of_b = (
        dict(
            zip(
                rows.table["prompt_id"].take(pa.array(rows.groups.starts_G)).to_pylist(),
                group_numbers(one, rows).tolist(),
                strict=True,
            )
        )
        for one, rows in sides
    )
    return {name: n for name, n in of_a.items() if n and of_b.get(name) == n}


def first_other_samples(a: Stored, b: Stored) -> int | None:
    """The first training step at which two runs sampled other responses; None: there is none."""
    sets = [{x.training_step: x for x in each.sets if x.kind == "answers"} for each in (a, b)]
    for step in sorted(step for step in sets[0].keys() & sets[1].keys() if step is not None):
        one, two = (each[step] for each in sets)
        if _responses(one) != _responses(two):
            return step
    return None


def _common(a: RowTable, b: RowTable) -> Comparison | None:
    """Return the comparison of the rows that are in both, in the order of the first."""
    ids = [rows.table["response_id"].combine_chunks() for rows in (a, b)]
    places = pc.index_in(ids[0], value_set=ids[1], skip_nulls=True)
    rows_a: Array = np.flatnonzero(np.asarray(places.is_valid()))
    if not len(rows_a):
        return None
    rows_b: Array = np.asarray(places.drop_null()).astype(np.int64)
    tables = a.table.take(pa.array(rows_a)), b.table.take(pa.array(rows_b))
    groups = Groups.of(tables[0])
    before, after = (
        RowTable(table, groups, rows.components) for table, rows in zip(tables, (a, b), strict=True)
    )
    return compare(before, after)


def _weights(one: StoredSet) -> dict[str, float]:
    """The weights with which the rows of a set were summed, the last sum's where there are two."""
    found = dict[str, float]()
    for step in one.recipe.steps:
        if isinstance(step.operator, RewardSumMapper):
            found.update({name: step.operator.weight(name) for name in step.operator.weights})
    return found


def _responses(one: StoredSet) -> Sequence[str | None]:
    return [text for part in range(one.parts) for text in _responses_of(one, part)]


def _responses_of(one: StoredSet, part: int) -> list[str | None]:
    base = one.base(part)
    if "response" not in base.column_names:
        return []
    texts: list[str | None] = base.select(["response"])["response"].cast(pa.string()).to_pylist()
    return texts


# --- Print the differences of two recipes or runs -------------------------------------

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
    """Print the differences."""
    widen_log(console)
    a, b = map(path_text, found.paths)
    lines = [f"A            {a}", f"B            {b}"]
    fields = list(found.fields) or ["the same: no field differs"]
    for name, text in zip(["recipe", *[""] * len(fields)], fields[:_MOST_FIELDS], strict=False):
        lines.append(f"{name:<13}{visible(text)}")
    if len(fields) > _MOST_FIELDS:
        lines.append(f"{'':<13}... and {len(fields) - _MOST_FIELDS} more fields")
    lines += [f"{path} has not been run: there are no rows to compare" for path in found.not_run]
    print_lines(lines, console)
    if found.points:
        console.print(_over_steps(found.points))
        other = found.other_samples
        same = "the same responses in all common steps"
        print_lines(
            [f"sampled      {same if other is None else f'others from step {other} on'}"], console
        )
    for each in found.sets:
        print_lines([*_heading(each), *_common_lines(each)], console)
        console.print(_figures(each))
        if each.change.components:
            console.print(_components(each.change))
        after = (*_not_split(each), *_by_chance(each.change), *_details(each, command))
        print_lines(after, console)


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


def _heading(found: SetDiff) -> Iterator[str]:
    yield f"rows         of A: {found.names[0]}; of B: {found.names[1]}"
    for side, why in zip("AB", found.left_only, strict=True):
        if why:
            yield f"{'':<13}of {side} only those that are left: {why}; what needs the others is -"


def _common_lines(sets: SetDiff) -> list[str]:
    """Return the rows that both sampled."""
    found = sets.common
    if found is None:
        return ["sampled      no response in both"]
    n = found.rows.num_rows
    if not _differ(found):
        return [f"sampled      {n:,} rows in both, all with the same fate, reward and advantage"]
    gained, lost = (
        f"- only in {side}"
        if why
        else f"{found.count(kind):,} only in {side}{reasons_text(found, kind)}"
        for side, kind, why in zip("BA", ("gained", "lost"), sets.left_only, strict=True)
    )
    without = [side for side, when in _SIDES if not _known(found, f"advantage_{when}")]
    advantages = f"no step of {' and '.join(without)} computes any"
    if not without:
        advantages = advantages_text(found)
    return [
        f"sampled      {n:,} rows in both: {found.kept_in_both:,} kept in both, {gained}, {lost}",
        f"advantages   {advantages}",
        f"rank         correlation of rewards within groups {number_text(found.rank)}",
    ]


def _known(found: Comparison, name: str) -> bool:
    return bool(found.rows[name].null_count < found.rows.num_rows)


def _differ(found: Comparison) -> bool:
    reasons = {f"reason_{w}": found.rows[f"reason_{w}"].cast(pa.string()) for _, w in _SIDES}
    rows = {name: found.rows[name] for name in found.rows.column_names} | reasons
    names = ("step", "reason", "reward", "advantage")
    return any(not rows[f"{name}_before"].equals(rows[f"{name}_after"]) for name in names)


def _figures(found: SetDiff) -> Table:
    table, change = figures_table("", "A", "B"), found.change
    both, only_a, only_b = change.prompts
    on_file = zip(change.rows, found.left_only, strict=True)
    table.add_row("rows", *("-" if left_only else f"{n:,}" for n, left_only in on_file))
    table.add_row("rows kept", *(f"{n:,}" for n in change.kept))
    table.add_row("prompts", f"{both + only_a:,}", f"{both + only_b:,}, {both:,} in both")
    rates = (
        ("mean reward", change.reward),
        ("pass rate", change.pass_rate),
        ("groups without signal", change.silent),
    )
    for name, numbers in rates:
        table.add_row(name, *map(number_text, numbers))
    units = change.length_units
    unit = f", {units[0]} and {units[1]}" if units[0] != units[1] else ""
    lengths = ("-" if math.isnan(value) else f"{value:,.1f}" for value in change.length)
    table.add_row(f"mean length{unit}", *lengths)
    return table


def _components(change: SetChange) -> Table:
    headings = ("A", "B", "difference", "by its values", "by its weight", "missing")
    table = figures_table("adds to the mean reward", *headings)
    for name, each in change.components.items():
        before, after = each.added
        missing = " -> ".join("-" if math.isnan(x) else f"{x:.1%}" for x in each.missing)
        signed = (after - before, each.by_values, each.by_weight)
        cells = [number_text(before), number_text(after), *map(_signed, signed), missing]
        table.add_row(Text(visible(name)), *cells)
    of_all = [("mean reward", change.reward)]
    if any(change.rest):
        of_all.insert(0, ("of no component", change.rest))
    for title, (before, after) in of_all:
        table.add_row(title, number_text(before), number_text(after), _signed(after - before))
    return table


def _not_split(found: SetDiff) -> Iterator[str]:
    """Yield of which sets it is not known what the components add."""
    for side in (0, 1):
        added = [each.added[side] for each in found.change.components.values()]
        if any(map(math.isnan, added)) and math.isfinite(found.change.reward[side]):
            why = found.left_only[side] and "with values that are on file "
            yield f"components   of {'AB'[side]} not known: no step {why}sums its reward"


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
        number = found.row_numbers.get(each.prompt_id)
        row = "" if number is None else f"row {number}, "
        yield f"moved        {row}prompt {visible(each.prompt_id)}: {rewards}"
    for text, n in list(found.new.items())[:_MOST_SHOWN]:
        shown = visible(text, one_line=True)
        cut = shown if len(shown) <= _WIDEST else f"{shown[:_WIDEST]}…"
        yield f"new in B     {n:,} rows: {cut}"
    kinds = [kind for kind in KINDS if found.common is not None and found.common.count(kind)]
    kinds += ["prompts"] if found.change.moved else []
    kinds += ["new"] if found.new else []
    yield from details_lines(command, kinds)


def _over_steps(
    points: Mapping[int, tuple[Mapping[str, float], Mapping[str, float]]],
) -> Table:
    """Return the metrics of two runs at steps that both have, from the first to the last."""
    known = {
        title: name
        for title, name in _METRICS.items()
        if any(name in both[0] and name in both[1] for both in points.values())
    }
    table = figures_table("step", *(f"{title} {side}" for title in known for side in "AB"))
    numbers = sorted(step for step, both in points.items() if "rejuice/reward" in both[0])
    every = max(1, math.ceil((len(numbers) - 1) / (_MOST_STEPS - 1)))
    shown = list(dict.fromkeys([*numbers[::every], *numbers[-1:]]))
    for step in shown:
        cells = [
            number_text(side.get(name, math.nan))
            for name in known.values()
            for side in points[step]
        ]
        table.add_row(str(step), *cells)
    return table


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 3) + 0.0:+.3f}"  # No -0.000.
