"""Two stored runs on data: the rows that both sampled, and what changed over all their rows.

Stored a, Stored b ──pairs──> (StoredSet, StoredSet)... ──set_diff──> SetDiff
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...operators import DataError
from ...operators.compute import pc
from ...operators.groups import Array, Groups
from ...operators.logs import visible
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..recipe.recipe import Recipe
from .figures import column_values, group_figures, pass_rates
from .rows import KEPT, RowTable, stored_rows
from .show_whatif import json_lines
from .stored import Stored, StoredSet
from .whatif import KINDS, UNKNOWN, Comparison, changed_fields, compare, differences

# --- Recipes --------------------------------------------------------------------------
# Two recipes in words: what each field of the second is, where it differs, and what it means.

_WIDEST_FIELD = 100
_PLACES = ("project_name", "export_path", "process", "train")


def recipe_differences(a: Recipe, b: Recipe) -> list[str]:
    """Fields of the head, of the steps and of `train:` that differ, as `field old -> new`.

    Defaults are resolved: a field that one of them leaves out has its default. Where the recipes
    write to, and what their project is called, is no difference.

    Example:
        >>> recipe_differences(load("a.yaml"), load("b.yaml"))
        ['pass_rate_filter.max 0.9 -> 1.0   (Highest pass rate to keep)']
    """
    return [f"{line}{_meaning(line, a, b)}" for line in _lines(a, b)]


def _lines(a: Recipe, b: Recipe) -> Iterator[str]:
    heads = [_plain(each.head) for each in (a, b)]
    if a.head.dataset_spec != b.head.dataset_spec:  # How others are generated says nothing then.
        heads = [{**each, "generated_datasets": None} for each in heads]
    for name in sorted(heads[0].keys() | heads[1].keys()):
        if name not in _PLACES:
            yield from differences(name, heads[0].get(name), heads[1].get(name))
    yield from changed_fields(a.steps, b.steps)
    trains = [_plain(each.head.train) for each in (a, b)]
    if None in trains and trains[0] != trains[1]:
        yield "train added" if trains[0] is None else "train left out"
    else:
        yield from differences("train", *trains)


def _plain(model: BaseModel | None) -> Any:
    return None if model is None else model.model_dump(mode="json")


def _meaning(line: str, a: Recipe, b: Recipe) -> str:
    """The first sentence about a field, in brackets; empty where there is none."""
    name, _, field = line.split(" ")[0].partition(".")
    models: dict[str, Any] = {step.name: step.operator for step in (*a.steps, *b.steps)}
    model = models.get(name, b.head.train if name == "train" else b.head)
    wanted = field.partition(".")[0] or name
    if not isinstance(model, BaseModel):
        return ""
    described = type(model).model_json_schema()["properties"].get(wanted, {})
    text = " ".join(str(described.get("description", "")).split())
    sentence = text.partition(". ")[0].removesuffix(".")
    return f"   ({sentence})" if 0 < len(sentence) <= _WIDEST_FIELD else ""


# --- Change ---------------------------------------------------------------------------
# What changed from one set of rows to another: the mean reward, split by component, exactly.
#
# Over the rows that are kept, with the contribution a_c of component c and its weight w_c:
#
#     mean_b r - mean_a r = sum_c (mean_b a_c - mean_a a_c)
#     mean_b a_c - mean_a a_c = w_b (m_b - m_a) + (w_b - w_a) m_a,      m = mean a_c / w
#
# m is the mean of the component's values, after gates and substitutes. Where a weight is 0 its m is
# not known, and the other set's is taken.

_Value = TypeVar("_Value")
_Z95 = 1.959964
LEAST_COUNT = 3
"""A response is frequent from so many rows on."""


class ComponentChange(NamedTuple):
    """What a component adds to the mean reward in two sets, and why it adds more or less."""

    added: tuple[float, float]  # its mean contribution in the one and the other
    weights: tuple[float, float]  # of the sum; NaN where the set has no sum with it
    by_values: float  # of the difference of `added`, what the change of its values makes
    by_weight: float  # what the change of its weight makes
    missing: tuple[float, float]  # the share of rows in which it is missing


class PromptChange(NamedTuple):
    """The mean reward of the responses to a prompt that are kept in both sets."""

    prompt_id: str
    before: float
    after: float


class SetChange(NamedTuple):
    """Two sets of rows."""

    rows: tuple[int, int]  # of each, and `kept` of these
    kept: tuple[int, int]  # rows
    prompts: tuple[int, int, int]  # in both, only in the first, only in the second
    reward: tuple[float, float]  # the mean over the rows kept
    # 95% interval of the difference of `reward` by the spread between groups, as if the two sets
    # had different prompts
    by_chance: tuple[float, float]
    # by name; the differences of `added` sum to that of `reward`, where no reward came with the
    # responses
    components: Mapping[str, ComponentChange]
    pass_rate: tuple[float, float]  # right among the graded rows
    length: tuple[float, float]  # mean, in tokens or characters
    silent: tuple[float, float]  # the share of groups without signal among those with responses
    moved: tuple[PromptChange, ...]  # prompts with rewards in both, the greatest difference first


def set_change(
    a: RowTable, b: RowTable, weights: tuple[Mapping[str, float], Mapping[str, float]]
) -> SetChange:
    """What changed from one set to another."""
    both = (a, b)
    names = dict.fromkeys([*a.components, *b.components])
    reward = _pair(_mean(column_values(rows.table, "reward")[_kept(rows)]) for rows in both)
    half = _Z95 * float(np.hypot(_standard_error(a), _standard_error(b)))
    return SetChange(
        _pair(rows.table.num_rows for rows in both),
        _pair(int(_kept(rows).sum()) for rows in both),
        _prompts(a, b),
        reward,
        (reward[1] - reward[0] - half, reward[1] - reward[0] + half),
        {name: _component(name, both, weights) for name in names},
        _pair(map(_pass_rate, both)),
        _pair(map(_length, both)),
        _pair(map(_silent, both)),
        _moved(a, b),
    )


def new_responses(before: Iterable[str | None], after: Sequence[str | None]) -> dict[str, int]:
    """Responses that are frequent in a set and absent from another, the most frequent first.

    White space does not count; a response is a text, not a meaning.
    """
    old = {" ".join(text.split()) for text in before if text is not None}
    counts = Counter(" ".join(text.split()) for text in after if text is not None)
    return {text: n for text, n in counts.most_common() if n >= LEAST_COUNT and text not in old}


def _standard_error(rows: RowTable) -> float:
    """The standard error of the mean reward, by groups: sqrt(sum_g (sum_i r_i - m)^2) / N."""
    reward_N = column_values(rows.table, "reward")
    used_N = _kept(rows) & np.isfinite(reward_N)
    if not used_N.any():
        return float("nan")
    distance_N = np.where(used_N, reward_N - reward_N[used_N].mean(), 0.0)
    return float(np.sqrt((rows.groups.sum(distance_N) ** 2).sum()) / used_N.sum())


def _component(
    name: str,
    both: tuple[RowTable, RowTable],
    weights: tuple[Mapping[str, float], Mapping[str, float]],
) -> ComponentChange:
    added = _pair(_added(rows, name) for rows in both)
    w = _pair(own.get(name, float("nan")) for own in weights)
    known_w = np.nan_to_num(np.array(w))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.array(added) / known_w
    mean = np.where(known_w == 0, mean[::-1], mean)  # The other set's, where it is not known.
    mean = np.where(np.isfinite(mean), mean, 0.0)
    by_values = float(known_w[1] * (mean[1] - mean[0]))
    by_weight = float((known_w[1] - known_w[0]) * mean[0])
    return ComponentChange(added, w, by_values, by_weight, _pair(_missing(x, name) for x in both))


def _added(rows: RowTable, name: str) -> float:
    """The mean contribution over kept rows with a reward; 0 where the component is not summed."""
    if f"contribution_{name}" not in rows.table.column_names:
        return 0.0
    rewarded_N = _kept(rows) & np.isfinite(column_values(rows.table, "reward"))
    values = np.nan_to_num(column_values(rows.table, f"contribution_{name}")[rewarded_N])
    return _mean(values) if len(values) else 0.0


def _missing(rows: RowTable, name: str) -> float:
    column = f"reward_{name}_missing"
    if column not in rows.table.column_names or not rows.table.num_rows:
        return float("nan")
    return float(np.mean(np.asarray(rows.table[column].is_valid())))


def _kept(rows: RowTable) -> Array:
    kept_N: Array = np.asarray(rows.table["fate"]) == KEPT
    return kept_N


def _pass_rate(rows: RowTable) -> float:
    _, right_G, wrong_G = pass_rates(rows)
    right, graded = float(right_G.sum()), float(right_G.sum() + wrong_G.sum())
    return right / graded if graded else float("nan")


def _length(rows: RowTable) -> float:
    unit = "tokens" if rows.table["tokens"].null_count < rows.table.num_rows else "characters"
    found = pc.mean(rows.table[unit]).as_py()
    return float("nan") if found is None else float(found)


def _silent(rows: RowTable) -> float:
    groups = group_figures(rows, np.ones(rows.table.num_rows, bool))
    return groups.without_signal / groups.groups if groups.groups else float("nan")


def _prompts(a: RowTable, b: RowTable) -> tuple[int, int, int]:
    of_a, of_b = (set(rows.table["prompt_id"].to_pylist()) for rows in (a, b))
    return len(of_a & of_b), len(of_a - of_b), len(of_b - of_a)


def _moved(a: RowTable, b: RowTable) -> tuple[PromptChange, ...]:
    before, after = _mean_rewards(a), _mean_rewards(b)
    found = [PromptChange(name, before[name], after[name]) for name in before if name in after]
    found = [each for each in found if each.before != each.after]
    return tuple(sorted(found, key=lambda x: (-abs(x.after - x.before), x.prompt_id)))


def _mean_rewards(rows: RowTable) -> dict[str, float]:
    reward_N = column_values(rows.table, "reward")
    used_N = _kept(rows) & np.isfinite(reward_N)
    means_G = rows.groups.mean(np.nan_to_num(reward_N), used_N)
    names = rows.table["prompt_id"].take(pa.array(rows.groups.starts_G)).to_pylist()
    return {
        name: float(mean)
        for name, mean in zip(names, means_G, strict=True)
        if name is not None and np.isfinite(mean)
    }


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _pair(values: Iterable[_Value]) -> tuple[_Value, _Value]:
    one, two = values
    return one, two


# --- Diff -----------------------------------------------------------------------------


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
    # the rows that both sampled, by their `response_id`; None: there are none
    common: Comparison | None
    change: SetChange  # over all rows of each
    # responses that are frequent in the second and absent from the first, with counts
    new: Mapping[str, int]


class Side(NamedTuple):
    """One of the two that are compared."""

    path: Path  # as it was given
    recipe: Recipe  # as it is now, or as it ran
    stored: Stored | None  # None: the recipe has not been run


def diff_of(a: Side, b: Side) -> Diff:
    """The differences of two recipes or runs.

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
    """The paths, with the name of the set where a path is not that of a step."""
    a, b = (
        f"{path}, {one.name}" if one.name and path.name != f"{one.training_step:06d}" else str(path)
        for path, one in both
    )
    return a, b


def pairs(a: Stored, b: Stored) -> list[tuple[StoredSet, StoredSet]]:
    """The sets to compare: of training runs, those of the last step that both have.

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
    """The differences of two sets.

    Raises:
        RejuiceError: their files are damaged.
    """
    rows = stored_rows(a), stored_rows(b)
    weights = _weights(a), _weights(b)
    new = new_responses(_responses(a), _responses(b))
    return SetDiff(names, _common(*rows), set_change(*rows, weights), new)


def first_other_samples(a: Stored, b: Stored) -> int | None:
    """The first training step at which two runs sampled other responses; None: there is none."""
    sets = [{x.training_step: x for x in each.sets if x.kind == "answers"} for each in (a, b)]
    for step in sorted(step for step in sets[0].keys() & sets[1].keys() if step is not None):
        one, two = (each[step] for each in sets)
        if _responses(one) != _responses(two):
            return step
    return None


def _common(a: RowTable, b: RowTable) -> Comparison | None:
    """The comparison of the rows that are in both, in the order of the first."""
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
    return compare(before, after, len(rows_a), UNKNOWN)


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
    """Print the differences."""
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
        _print(_common_lines(each.common), console)
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


def _common_lines(found: Comparison | None) -> list[str]:
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
